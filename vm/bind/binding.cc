// The table of all bindings: ops and their in-place forms, then the functions that are not ops.
#include "vm/bind/binding.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ops/core/overlap.h"
#include "ops/core/resize.h"
#include "ops/defs/each_tensor.h"
#include "ops/defs/forms.h"
#include "ops/grad/tape.h"
#include "vm/bind/functions.h"

namespace lutra {
namespace {

// -- ops

// Returns whether out= may have another dtype than the result. Ops that promote their operands, and ops that join
// tensors, cast the result; other ops require its dtype.
bool casts_out(const OpInfo& op, const Args& args) {
  static constexpr OpId kOwn[] = {
      OpId::abs,        OpId::bitwise_not, OpId::ceil,     OpId::floor,    OpId::frac,        OpId::neg,
      OpId::round,      OpId::sgn,         OpId::sign,     OpId::trunc,    OpId::nan_to_num,  OpId::hardshrink,
      OpId::softshrink, OpId::softplus,    OpId::gelu,     OpId::where,    OpId::lerp,        OpId::logsigmoid,
      OpId::full,       OpId::arange,      OpId::empty,    OpId::rand,     OpId::randn,       OpId::randint,
      OpId::signbit,    OpId::heaviside,   OpId::isposinf, OpId::isneginf, OpId::float_power, OpId::clone};
  static constexpr OpId kCast[] = {OpId::addr,    OpId::cat,          OpId::stack,     OpId::hstack, OpId::vstack,
                                   OpId::dstack,  OpId::column_stack, OpId::outer,     OpId::kron,   OpId::mean,
                                   OpId::var,     OpId::std,          OpId::normalize, OpId::diff,   OpId::logsumexp,
                                   OpId::nanmean, OpId::igamma,       OpId::igammac};
  const auto has = [&](const auto& list) {
    return std::find(std::begin(list), std::end(list), op.id) != std::end(list);
  };
  static constexpr OpId kOwnByNumbers[] = {OpId::clamp, OpId::clamp_min, OpId::clamp_max};
  if (has(kOwnByNumbers)) {
    return std::any_of(args.begin() + !args.empty(), args.end(), [](const Value& v) { return v.is<Tensor>(); });
  }
  return op.has(kPointwise) ? !has(kOwn) : has(kCast);
}

// Returns whether PyTorch would write elements of out= that it reads later through this argument.
bool moves_elements(const OpInfo& op, size_t argument) {
  static constexpr OpId kAny[] = {OpId::gather, OpId::take, OpId::index_select, OpId::cross, OpId::linalg_cross};
  static constexpr OpId kButFirst[] = {OpId::scatter,   OpId::scatter_add, OpId::scatter_reduce,
                                       OpId::index_add, OpId::index_copy,  OpId::index_reduce};
  const auto has = [&](const auto& list) {
    return std::find(std::begin(list), std::end(list), op.id) != std::end(list);
  };
  // The parts of a joined list (cat, stack, ...).
  const bool list = op.args[argument].type == ArgType::kTensorList;
  return list || has(kAny) || (argument > 0 && has(kButFirst));
}

// Returns whether out= may have dtype `out` in further cases: draws write any dtype, any and all write bytes, and max
// and min of all elements cast like ops that promote.
bool casts_more(const std::string& fn, const OpInfo& op, DType result, DType out) {
  if (fn == "any" || fn == "all") return out == DType::kUInt8 || is_bool(out);
  const bool whole = (fn == "max" || fn == "min") && op.results == 1;
  return fn == "bernoulli" || (whole && info(result).kind <= info(out).kind);
}

// Returns whether the op's dtype= defaults to the dtype of out=.
bool dtype_of_out(const OpInfo& op) {
  switch (op.id) {
    case OpId::sum:
    case OpId::nansum:
    case OpId::prod:
    case OpId::cumsum:
    case OpId::cumprod: return true;
    default: return op.has(kCreation);
  }
}

void adopt_out_dtype(const OpInfo& op, Args& args, ArgReader& in, const ExtraKeyword* out) {
  if (!out || out->value < 0 || in.kind(out->value) != LuaKind::kTensor || !dtype_of_out(op)) return;
  for (size_t i = 0; i < args.size(); ++i) {
    if (op.args[i].type == ArgType::kDType && args[i].is_none()) args[i] = in.tensor(out->value)->dtype;
  }
}

void check_out(const std::string& fn, const OpInfo& op, const Args& args, const Tensor& out, const Tensor& result) {
  if (grad_enabled() && (out->requires_grad || result->requires_grad)) {
    fail(fn, ": out= does not support automatic differentiation, but an argument requires grad");
  }
  const bool cast = casts_more(fn, op, result->dtype, out->dtype) ||
                    (casts_out(op, args) && info(result->dtype).kind <= info(out->dtype).kind);
  if (out->dtype != result->dtype && !cast) {
    fail(fn, ": the result of dtype ", name(result->dtype), " cannot be written to out= of dtype ", name(out->dtype));
  }
  if (out->device() != result->device()) {
    fail(fn, ": expected all tensors to be on the same device, but found at least two devices, ",
         to_string(result->device()), " and ", to_string(out->device()), " (out=)!");
  }
  if (out->numel() == 0) return;
  each_argument_tensor(args, [&](size_t i, const Tensor& t) {
    const Overlap shared = t ? overlap(out, t) : Overlap::kNone;
    if ((op.has(kPointwise) && shared == Overlap::kPartial) || (moves_elements(op, i) && shared != Overlap::kNone)) {
      fail(fn, ": out= and an argument share some memory; clone() one of them before the operation");
    }
  });
}

// Implements out=: copies the result into the given tensor, which takes the result's shape. `strided`: it also takes
// the result's strides if it takes its shape.
void write_out(const std::string& fn, const Tensor& out, const Tensor& result, bool strided) {
  // These keep the shape of out= if it has the right number of elements.
  if ((fn == "linspace" || fn == "logspace" || fn == "arange") && out->numel() == result->numel()) {
    call_inplace(OpId::copy_, {out, op1(OpId::view, {result, out->sizes})});
    return;
  }
  if (to_string(out->sizes) != to_string(result->sizes)) {
    if (out->is_fake())
      throw OtherSizes(str("out= has shape ", to_string(out->sizes), ", the result ", to_string(result->sizes),
                           ": make it with the result's sizes"));
    resize(out, result->sizes, strided ? result->strides : contiguous_strides(result->sizes));
    note_new_layout(out);
  }
  call_inplace(OpId::copy_, {out, result});
}

}  // namespace

Tensor written_out(const std::string& fn, const Value& out, const Tensor& result) {
  if (out.is_none()) return result;
  const Tensor to = out.tensor();
  check_out(fn, info(OpId::nonzero), {}, to, result);
  write_out(fn, to, result, true);
  return to;
}

namespace {

// Reads out=: a list for ops with several results, or one tensor.
std::vector<Tensor> read_out(const std::string& fn, ArgReader& in, ArgReader::H h, int results, bool list) {
  std::vector<Tensor> out;
  const bool one = results == 1 && !list;
  if (one && in.kind(h) == LuaKind::kTensor) return {in.tensor(h)};
  if (in.kind(h) != LuaKind::kTable || in.length(h) != results) {
    fail(fn, ": argument 'out' must be ", one ? "a Tensor" : str("a list of ", results, " Tensors"), ", got ",
         in.describe(h));
  }
  for (int i = 1; i <= results; ++i) {
    const ArgReader::H item = in.index(h, i);
    if (in.kind(item) != LuaKind::kTensor) fail(fn, ": argument 'out' must hold Tensors, got ", in.describe(item));
    out.push_back(in.tensor(item));
  }
  return out;
}

void check_operands(const std::string& fn, const OpInfo& op, const Args& args) {
  bool operands = false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].is<Tensor>()) return;
    operands |= op.args[i].type == ArgType::kOperand;
  }
  if (operands) fail(fn, ": at least one argument must be a Tensor");
}

bool is_true(const std::string& fn, ArgReader& in, const ExtraKeyword& keyword) {
  if (keyword.value < 0) return false;
  if (in.kind(keyword.value) != LuaKind::kBoolean) {
    fail(fn, ": argument '", keyword.name, "' must be a boolean, got ", in.describe(keyword.value));
  }
  return in.boolean(keyword.value);
}

bool takes_out(const Binding& self, const OpInfo& op) {
  if (self.copies) return true;
  constexpr uint32_t kWithout = kView | kMutates | kList | kMethodOnly | kNoOut;
  return !self.inplace && !(op.flags & kWithout) && !(self.flags & kMethod && !(self.flags & kFunctionOf));
}

// The keywords that an op's binding accepts in addition to its schema.
struct Extras {
  ExtraKeyword rows[4];
  size_t count = 0;
  ExtraKeyword *out = nullptr, *requires_grad = nullptr, *inplace = nullptr, *generator = nullptr;
  Extras(const Binding& self, const OpInfo& op) {
    if (takes_out(self, op)) *(out = &rows[count++]) = {"out"};
    if (op.has(kCreation) || op.has(kTakesRequiresGrad)) *(requires_grad = &rows[count++]) = {"requires_grad"};
    // Not for nn.functional's activations, whose forms have a position for it.
    if (!self.inplace && op.has(kInplace) && !(self.forms && self.forms->front().inplace >= 0))
      *(inplace = &rows[count++]) = {"inplace"};
    if (self.flags & kDraws) *(generator = &rows[count++]) = {"generator"};
  }
  Extras(const Extras&) = delete;
  std::span<ExtraKeyword> all() { return {rows, count}; }
};

template <class F>
auto drawn(const std::string& fn, ArgReader& in, const ExtraKeyword& generator, const F& draw) -> decltype(draw()) {
  GeneratorScope scope(fn, in, generator);
  auto results = draw();
  scope.keep();
  return results;
}

// The op and its arguments, bound to the form that fits the call.
struct OpCall {
  const OpInfo& op;
  Args args;
  bool inplace = false;
};
OpCall bind_call(const Binding& self, ArgReader& in, Extras& extras) {
  if (!self.forms) return {info(self.op), bind_schema(self.name, *self.schemas[0], in, extras.all())};
  const Form& form = (*self.forms)[choose_form(self.name, self.schemas, in, extras.all())];
  const Args given = bind_schema(self.name, form.args, in, extras.all());
  return {info(form.op), form.op_args(given), form.inplace >= 0 && given[size_t(form.inplace)].as<bool>()};
}

const OpInfo& first_op(const Binding& self) { return info(self.forms ? self.forms->front().op : self.op); }

LuaResults run_op(const Binding& self, ArgReader& in) {
  Extras extras(self, first_op(self));
  auto [op, args, inplace] = bind_call(self, in, extras);
  check_operands(self.name, op, args);
  // In its schema each argument has a default, but a call without arguments is an error.
  if (op.id == OpId::arange && args[1].is_none() && in.kind(0) == LuaKind::kNil) {
    fail("arange: argument 'end' is missing");
  }
  if (op.has(kCreation) && args.back().is_none()) args.back() = default_device_value();
  if (self.inplace || inplace || (extras.inplace && is_true(self.name, in, *extras.inplace))) {
    if (!args[0].is<Tensor>()) {
      fail(self.name, ": argument '", op.args[0].name, "' must be a Tensor, got ", in.describe(0));
    }
    if (op.id == OpId::float_power && args[0].as<Tensor>()->dtype != DType::kFloat64) {
      fail(self.name, ": the result is float64, which cannot be written to ", name(args[0].as<Tensor>()->dtype));
    }
    return {call_inplace(op.id, std::move(args))};
  }
  adopt_out_dtype(op, args, in, extras.out);
  const bool has_out = extras.out && extras.out->value >= 0;
  const Args operands = has_out ? args : Args();
  const auto call = [&] { return call_op(op.id, std::move(args)); };
  Results results = extras.generator ? drawn(self.name, in, *extras.generator, call) : call();
  if (extras.requires_grad && is_true(self.name, in, *extras.requires_grad)) set_requires_grad(results[0], true);
  if (self.copies) {
    for (Tensor& r : results) r = op1(OpId::clone, {r, std::string("contiguous_format")});
  }
  if (has_out) {
    const std::vector<Tensor> given = read_out(self.name, in, extras.out->value, int(results.size()), op.has(kList));
    for (size_t i = 0; i < given.size(); ++i) check_out(self.name, op, operands, given[i], results[i]);
    for (size_t i = 0; i < given.size(); ++i) write_out(self.name, given[i], results[i], op.has(kPointwise));
    results = given;
  }
  if (op.has(kList)) return {std::vector<Tensor>(std::move(results))};
  return LuaResults(results.begin(), results.end());
}

// Returns the name for errors. Functions of nn.functional use the op's name.
std::string title_of(const Binding& binding) {
  constexpr std::string_view kRoom = "nn.functional.";
  return binding.name.starts_with(kRoom) ? binding.name.substr(kRoom.size()) : binding.name;
}

// Runs an op's binding. Errors of the op's parts are reported under the called name; errors about elements under the
// op's name, as in compiled code.
LuaResults call_op_binding(const Binding& self, ArgReader& in) {
  try {
    return run_op(self, in);
  } catch (const Error& error) {
    if (error.kind == ErrorKind::kData || dynamic_cast<const NeedsData*>(&error)) throw;
    const std::string title = title_of(self), text = error.what();
    if (title == self.name || !text.starts_with(self.name + ": ")) rethrow_named(error, title);
    throw Error(error.kind, title + text.substr(self.name.size()));
  }
}

// Returns whether an op's name is a method, a function or both, and whether it draws random numbers.
uint32_t flags_of(const OpInfo& op, uint32_t only) {
  only |= op.flags;
  const bool of_text = !op.args.empty() && op.args[0].type == ArgType::kStr;  // einsum: no tensor comes first
  uint32_t flags = kBoth;
  if (only & kMethodOnly) flags = kMethod;
  if (only & kFunctionOnly || op.has(kCreation) || of_text) flags = kFunctionOf;
  return op.has(kRandom) || op.has(kTakesGenerator) ? flags | kDraws : flags;
}

void add_op(std::vector<Binding>& out, const std::string& name, const OpInfo& op) {
  Binding binding{name, flags_of(op, 0), call_op_binding, op.id};
  binding.schemas = {&op.args};
  out.push_back(binding);
  if (!op.has(kInplace)) return;
  binding.name += "_", binding.inplace = true, binding.flags = kBoth;
  out.push_back(binding);
}

void add_forms(std::vector<Binding>& out, const std::string& name, const std::vector<Form>& rows) {
  const auto only = [&](uint32_t flag) {
    return std::all_of(rows.begin(), rows.end(), [&](auto& f) { return f.flags & flag; });
  };
  uint32_t where = 0;
  for (const uint32_t flag : {uint32_t(kMethodOnly), uint32_t(kFunctionOnly)}) where |= only(flag) ? flag : 0;
  Binding binding{name, flags_of(info(rows[0].op), where), call_op_binding};
  binding.forms = &rows;
  for (const Form& form : rows) binding.schemas.push_back(&form.args);
  out.push_back(binding);
  const bool inplace = std::all_of(rows.begin(), rows.end(), [](auto& form) { return info(form.op).has(kInplace); });
  if (!inplace || in_room(binding)) return;
  binding.name += "_", binding.inplace = true;
  out.push_back(binding);
}

void add_ops(std::vector<Binding>& out) {
  for (size_t i = 0; i < size_t(OpId::kCount); ++i) {
    const OpInfo& op = info(OpId(i));
    if (!op.has(kInternal) && !forms().contains(op.name)) add_op(out, op.name, op);
  }
  for (const auto& [name, rows] : forms()) add_forms(out, name, rows);
}

// -- functions that are not ops

using Schemas = std::vector<std::vector<ArgInfo>>;

// Returns the table of schemas: for the first row of a name, the schemas of all its rows.
std::unordered_map<const HostFunction*, Schemas>& host_schemas() {
  static std::unordered_map<const HostFunction*, Schemas> table;
  return table;
}

LuaResults call_host(const Binding& self, ArgReader& in) {
  const size_t i = choose_form(self.name, self.schemas, in, {});
  Args args = bind_schema(self.name, *self.schemas[i], in, {});
  try {
    return self.host[i].fn(args);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("requires_grad: ")) {
      throw Error(error.kind, self.name + ": " + error.what());
    }
    rethrow_named(error, self.name);
  }
}

void add_host(std::vector<Binding>& out, std::span<const HostFunction> rows) {
  for (size_t i = 0; i < rows.size();) {
    const HostFunction* first = &rows[i];
    Schemas& list = host_schemas()[first];
    for (; i < rows.size() && std::string_view(rows[i].name) == first->name; ++i) {
      list.push_back(parse_schema(rows[i].schema));
    }
    Binding binding{first->name, first->flags, call_host};
    binding.host = first;
    for (const auto& schema : list) binding.schemas.push_back(&schema);
    // It replaces an op of the same name, because its results differ.
    std::erase_if(out, [&](const Binding& b) { return b.name == binding.name; });
    out.push_back(binding);
  }
}

void add_specials(std::vector<Binding>& out, std::span<const Special> rows) {
  for (const Special& row : rows) {
    Binding binding{row.name, row.flags, row.fn};
    binding.raw = row.raw;
    out.push_back(binding);
  }
}

void add_other_names(std::vector<Binding>& out) {
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < out.size(); i++) places.emplace(out[i].name, i);
  for (const OtherName& row : other_names()) {
    bool found = false;
    for (const char* form : {"", "_"}) {
      const auto place = places.find(std::string(row.of) + form);
      if (place == places.end()) continue;
      found = true;
      Binding copy = out[place->second];
      copy.name = std::string(row.name) + form;
      copy.copies = row.copies;
      const bool function = in_room(copy) || row.copies;
      if (function && *form) continue;
      if (function) copy.flags = (copy.flags & ~uint32_t(kMethod)) | kFunctionOf;
      places.emplace(copy.name, out.size());
      out.push_back(std::move(copy));
    }
    LUTRA_CHECK(found, "another name of no binding");
  }
}

std::vector<Binding> build() {
  std::vector<Binding> out;
  add_ops(out);
  for (auto rows :
       {query_rows(), compare_rows(), tensor_rows(), index_rows(), autograd_rows(), pool_rows(), resize_rows()}) {
    add_host(out, rows);
  }
  for (auto rows : {creation_specials(), tensordot_specials(), histogram_specials(), tensor_specials(),
                    autograd_specials(), system_specials(), cuda_specials(), save_specials(), describe_specials(),
                    foreign_specials(), profile_specials(), repro_specials(), json_specials(), control_specials()}) {
    add_specials(out, rows);
  }
  add_other_names(out);
  return out;
}

using Index = std::unordered_map<std::string_view, const Binding*>;

const Index& by_name() {
  static const Index index = [] {
    Index out;
    for (const Binding& b : bindings()) {
      LUTRA_CHECK(out.emplace(b.name, &b).second, "two bindings of one name: " + b.name);
    }
    return out;
  }();
  return index;
}

const Binding* find_binding(std::string_view name) {
  auto it = by_name().find(name);
  return it == by_name().end() ? nullptr : it->second;
}

}  // namespace

const std::vector<Binding>& bindings() {
  static const std::vector<Binding> table = build();
  return table;
}

std::vector<std::vector<ArgInfo>> forms_of(const Binding& binding) {
  Schemas out;
  for (const auto* schema : binding.schemas) out.push_back(*schema);
  if (binding.host || out.empty()) return out;
  const OpInfo& op = first_op(binding);
  const bool one = op.results == 1 && !op.has(kList);
  for (std::vector<ArgInfo>& args : out) {
    if (op.has(kCreation) || op.has(kTakesRequiresGrad)) {
      args.push_back({"requires_grad", ArgType::kBool, false, true, true, false, false});
    }
    if (takes_out(binding, op)) {
      args.push_back({"out", one ? ArgType::kTensor : ArgType::kTensorList, true, true, true, false, {}});
    }
  }
  return out;
}

namespace {

// Bindings that have only some forms of another binding, stored together with these forms.
struct SomeForms {
  std::map<const Binding*, std::pair<std::vector<Form>, Binding>> of;
  explicit SomeForms(uint32_t without) {
    for (const Binding& b : bindings()) {
      if (!b.forms) continue;
      std::vector<Form> forms;
      for (const Form& form : *b.forms) {
        if (!(form.flags & without)) forms.push_back(form);
      }
      if (forms.empty() || forms.size() == b.forms->size()) continue;
      auto& [own, binding] = of.emplace(&b, std::pair(forms, b)).first->second;
      binding.forms = &own;
      binding.schemas.clear();
      for (const Form& form : own) binding.schemas.push_back(&form.args);
    }
  }
  const Binding& operator()(const Binding& b) const {
    const auto some = of.find(&b);
    return some == of.end() ? b : some->second.second;
  }
};

}  // namespace

const Binding& as_method(const Binding& binding) {
  static const SomeForms methods(kFunctionOnly);
  return methods(binding);
}
const Binding& as_function(const Binding& binding) {
  static const SomeForms functions(kMethodOnly);
  return functions(binding);
}

const Binding* find_method(std::string_view name) {
  const Binding* b = find_binding(name);
  return b && (b->flags & kMethod) ? &as_method(*b) : nullptr;
}

const Binding* find_metamethod(std::string_view name) {
  static const char* const kOps[][2] = {{"__add", "add"}, {"__sub", "sub"}, {"__mul", "mul"},      {"__div", "div"},
                                        {"__pow", "pow"}, {"__unm", "neg"}, {"__mod", "remainder"}};
  for (const auto& row : kOps) {
    if (name == row[0]) return find_binding(row[1]);
  }
  return name.substr(0, 2) == "__" ? find_binding(name) : nullptr;
}

}  // namespace lutra
