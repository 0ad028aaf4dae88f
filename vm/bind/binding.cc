// The table of all bindings: one for each op and its in-place form, then the composites and specials.
#include "vm/bind/binding.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "vm/bind/composite.h"

namespace lutra {
namespace {

// -- ops

// out= is the result copied into a given tensor; an empty one takes the result's shape.
void write_out(const std::string& fn, const Tensor& out, const Tensor& result) {
  if (grad_enabled() && (out->requires_grad || result->requires_grad)) {
    fail(fn, ": out= does not support automatic differentiation, but an argument requires grad");
  }
  if (is_float(result->dtype) && !is_float(out->dtype)) {
    fail(fn, ": the result of dtype ", name(result->dtype), " cannot be written to out= of dtype ", name(out->dtype));
  }
  if (out->device() != result->device()) {
    fail(fn, ": expected all tensors to be on the same device, but found at least two devices, ",
         to_string(result->device()), " and ", to_string(out->device()), " (out=)!");
  }
  const bool empty = out->numel() == 0 && result->numel() != 0;
  if (empty && out->is_fake()) throw NeedsData(fn + ": out= is empty and gets memory of its own");
  if (empty) {
    Tensor fresh = make_tensor(result->sizes, out->dtype, out->device());
    out->storage = fresh->storage;
    out->sizes = fresh->sizes, out->strides = fresh->strides, out->offset = 0;
  } else if (to_string(out->sizes) != to_string(result->sizes)) {
    fail(fn, ": out= has shape ", to_string(out->sizes), ", the result ", to_string(result->sizes));
  }
  call_inplace(OpId::copy_, {out, result});
}

// The list of out= for ops of several results, or the one tensor.
std::vector<Tensor> read_out(const std::string& fn, ArgReader& in, ArgReader::H h, int results) {
  std::vector<Tensor> out;
  if (results == 1 && in.kind(h) == LuaKind::kTensor) return {in.tensor(h)};
  if (in.kind(h) != LuaKind::kTable || in.length(h) != results) {
    fail(fn, ": argument 'out' must be ", results == 1 ? "a Tensor" : str("a list of ", results, " Tensors"), ", got ",
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

bool takes_out(const Binding& self, const OpInfo& op) { return !self.inplace && !op.has(kView) && !op.has(kMutates); }

template <class F>
auto drawn(const std::string& fn, ArgReader& in, const ExtraKeyword& generator, const F& draw) -> decltype(draw()) {
  GeneratorScope scope(fn, in, generator);
  auto results = draw();
  scope.keep();
  return results;
}

LuaResults run_op(const Binding& self, ArgReader& in) {
  const OpInfo& op = info(self.op);
  ExtraKeyword extras[4];
  size_t count = 0;
  ExtraKeyword *out = nullptr, *requires_grad = nullptr, *inplace = nullptr, *generator = nullptr;
  if (takes_out(self, op)) *(out = &extras[count++]) = {"out"};
  if (op.has(kCreation)) *(requires_grad = &extras[count++]) = {"requires_grad"};
  // What nn.functional's activations take.
  if (!self.inplace && op.has(kInplace)) *(inplace = &extras[count++]) = {"inplace"};
  if (self.flags & kDraws) *(generator = &extras[count++]) = {"generator"};
  Args args = bind_schema(self.name, op.args, in, {extras, count});
  check_operands(self.name, op, args);
  // Every argument has a default there, all of them together have none.
  if (self.op == OpId::arange && args[1].is_none() && in.kind(0) == LuaKind::kNil) {
    fail("arange: argument 'end' is missing");
  }
  if (op.has(kCreation) && args.back().is_none()) args.back() = default_device_value();
  if (self.inplace || (inplace && is_true(self.name, in, *inplace))) {
    if (!args[0].is<Tensor>()) {
      fail(self.name, ": argument '", op.args[0].name, "' must be a Tensor, got ", in.describe(0));
    }
    return {call_inplace(self.op, std::move(args))};
  }
  Results results = generator ? drawn(self.name, in, *generator, [&] { return call_op(self.op, std::move(args)); })
                              : call_op(self.op, std::move(args));
  if (requires_grad && requires_grad->value >= 0) {
    if (in.kind(requires_grad->value) != LuaKind::kBoolean) {
      fail(self.name, ": argument 'requires_grad' must be a boolean, got ", in.describe(requires_grad->value));
    }
    if (in.boolean(requires_grad->value)) set_requires_grad(results[0], true);
  }
  if (out && out->value >= 0) {
    const std::vector<Tensor> given = read_out(self.name, in, out->value, int(results.size()));
    for (size_t i = 0; i < given.size(); ++i) write_out(self.name, given[i], results[i]);
    results = given;
  }
  return LuaResults(results.begin(), results.end());
}

// Errors of the parts are told under the name that was called; those of elements under the op's, as compiled code has
// it.
LuaResults call_op_binding(const Binding& self, ArgReader& in) {
  try {
    return run_op(self, in);
  } catch (const Error& error) {
    if (error.kind == ErrorKind::kData) throw;
    rethrow_named(error, self.name);
  }
}

void add_ops(std::vector<Binding>& out) {
  for (size_t i = 0; i < size_t(OpId::kCount); ++i) {
    const OpInfo& op = info(OpId(i));
    if (op.has(kInternal)) continue;
    const bool of_text = !op.args.empty() && op.args[0].type == ArgType::kStr;  // einsum: no tensor comes first
    uint32_t flags = op.has(kCreation) || of_text ? uint32_t(kFunctionOf) : kBoth;
    if (op.has(kRandom) || op.id == OpId::bernoulli || op.id == OpId::multinomial) flags |= kDraws;
    out.push_back({op.name, flags, call_op_binding, op.id});
    if (op.has(kInplace)) out.push_back({std::string(op.name) + "_", kBoth, call_op_binding, op.id, true});
  }
}

// -- composites

struct Overload {
  const Composite* row;
  std::vector<ArgInfo> schema;
};
using Overloads = std::vector<Overload>;

std::unordered_map<const Composite*, Overloads>& overloads() {
  static std::unordered_map<const Composite*, Overloads> table;
  return table;
}

LuaResults call_row(const std::string& fn, const Overload& overload, ArgReader& in) {
  ExtraKeyword generator[] = {{"generator"}};
  const bool draws = overload.row->flags & kDraws;
  Args args = bind_schema(fn, overload.schema, in, {generator, size_t(draws)});
  try {
    if (!draws) return overload.row->fn(args);
    return drawn(fn, in, generator[0], [&] { return overload.row->fn(args); });
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("requires_grad: "))
      throw Error(error.kind, fn + ": " + error.what());
    rethrow_named(error, fn);
  }
}

LuaResults call_composite(const Binding& self, ArgReader& in) {
  const Overloads& rows = overloads().at(self.composite);
  if (rows.size() == 1) return call_row(self.name, rows[0], in);
  const char* extra = rows[0].row->flags & kDraws ? "generator" : "";
  for (const Overload& overload : rows) {
    if (fits_schema(overload.schema, in, extra)) return call_row(self.name, overload, in);
  }
  check_keywords(self.name, forms_of(self), in, extra);
  // None fits: the error of the form with as many arguments as were given tells what is wrong.
  const int given = in.count();
  const Overload* best = &rows[0];
  for (const Overload& overload : rows) {
    if (int(best->schema.size()) < given) best = &overload;
  }
  ExtraKeyword generator[] = {{"generator"}};
  bind_schema(self.name, best->schema, in, {generator, size_t(best->row->flags & kDraws ? 1 : 0)});
  std::string forms;
  for (const Overload& overload : rows) forms += str(forms.empty() ? "" : " or ", "(", overload.row->schema, ")");
  fail(self.name, ": the arguments fit none of ", forms);
}

void add_composites(std::vector<Binding>& out, std::span<const Composite> rows) {
  for (size_t i = 0; i < rows.size();) {
    Overloads list;
    const Composite* first = &rows[i];
    for (; i < rows.size() && std::string_view(rows[i].name) == first->name; ++i) {
      list.push_back({&rows[i], parse_schema(rows[i].schema)});
    }
    overloads()[first] = std::move(list);
    Binding binding{first->name, first->flags, call_composite};
    binding.composite = first;
    // A composite stands in for an op of its name where it has more overloads.
    std::erase_if(out, [&](const Binding& b) { return b.name == binding.name && b.op != OpId::kCount; });
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

std::vector<Binding> build() {
  std::vector<Binding> out;
  add_ops(out);
  for (auto rows : {creation_rows(), shape_rows(), split_rows(), reduction_rows(), random_rows(), math_rows(),
                    tensor_rows(), index_rows(), autograd_rows(), network_rows(), resample_rows()}) {
    add_composites(out, rows);
  }
  for (auto rows :
       {creation_specials(), reduction_specials(), tensor_specials(), autograd_specials(), system_specials(),
        cuda_specials(), save_specials(), describe_specials(), profile_specials(), json_specials()}) {
    add_specials(out, rows);
  }
  // Other names of ops, and of their in-place forms.
  static const char* const kAliases[][2] = {
      {"concat", "cat"},         {"concatenate", "cat"},  {"row_stack", "vstack"}, {"ger", "outer"},
      {"trapz", "trapezoid"},    {"moveaxis", "movedim"}, {"multiply", "mul"},     {"subtract", "sub"},
      {"divide", "div"},         {"true_divide", "div"},  {"negative", "neg"},     {"absolute", "abs"},
      {"swapdims", "transpose"}, {"greater", "gt"},       {"less", "lt"},          {"greater_equal", "ge"},
      {"less_equal", "le"},      {"not_equal", "ne"},     {"clip", "clamp"},       {"fix", "trunc"},
      {"arccos", "acos"},        {"arccosh", "acosh"},    {"arcsin", "asin"},      {"arcsinh", "asinh"},
      {"arctan", "atan"},        {"arctanh", "atanh"},    {"arctan2", "atan2"}};
  for (const auto& alias : kAliases) {
    bool found = false;
    for (const char* form : {"", "_"}) {
      auto it = std::find_if(out.begin(), out.end(), [&](auto& b) { return b.name == std::string(alias[1]) + form; });
      if (it == out.end()) continue;
      found = true;
      Binding copy = *it;
      copy.name = std::string(alias[0]) + form;
      out.push_back(copy);
    }
    LUTRA_CHECK(found, "alias of no binding");
  }
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
  if (binding.op != OpId::kCount) {
    const OpInfo& op = info(binding.op);
    std::vector<ArgInfo> args = op.args;
    if (op.has(kCreation)) args.push_back({"requires_grad", ArgType::kBool, false, true, true, false, false});
    if (takes_out(binding, op)) {
      const bool one = op.results == 1;
      args.push_back({"out", one ? ArgType::kTensor : ArgType::kTensorList, true, true, true, false, {}});
    }
    return {args};
  }
  std::vector<std::vector<ArgInfo>> forms;
  if (!binding.composite) return forms;
  for (const Overload& overload : overloads().at(binding.composite)) forms.push_back(overload.schema);
  return forms;
}

const Binding* find_method(std::string_view name) {
  const Binding* b = find_binding(name);
  return b && (b->flags & kMethod) ? b : nullptr;
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
