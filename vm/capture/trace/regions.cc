// Regions of a trace, and models of the functions that stdlib/control calls.
#include "vm/capture/trace/regions.h"

#include <algorithm>
#include <cmath>
#include <lua.hpp>

#include "ops/core/tensor_type.h"
#include "ops/decompose/emit.h"
#include "ops/defs/autocast.h"
#include "ops/defs/each_tensor.h"
#include "ops/grad/tape.h"
#include "vm/capture/trace/builtin_arguments.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/tensor_lists.h"
#include "vm/capture/trace/unbacked_sizes.h"

namespace lutra {
namespace {

Sizes pinned(const Sizes& sizes) {
  Sizes out;
  for (SymInt s : sizes) out.push_back(s.guard());
  return out;
}

bool is_control(const Frame& f) { return std::string_view(f.code->file).starts_with("lutra/control/"); }

// Returns the frame that called stdlib/control; null if the trace begins in there.
const Frame* caller_of(const Trace& t) {
  for (size_t i = t.frames.size(); i-- > 0;) {
    if (!is_control(*t.frames[i])) return t.frames[i];
  }
  return nullptr;
}

void set_location(const Trace& t, GraphRecorder& recorder) {
  const Frame* f = caller_of(t);
  recorder.set_location(f ? f->code->file : t.file(), f ? f->line() : t.line());
}

// Returns whether so many steps are unrolled.
bool is_few(double n) {
  constexpr double kMaxSteps = 128;
  return n == std::floor(n) && std::abs(n) <= kMaxSteps;
}

std::string name_of(const Tensor& t) { return t->node && t->node->is_input() ? "x" : "y"; }

}  // namespace

ControlPlace control_place(const Trace& t) {
  const Frame* f = caller_of(t);
  return {&(f ? f : t.frames[0])->code->proto(), f ? f->pc : 0};
}

bool is_for_eager(const Trace& t) { return t.frames[0]->code->file == std::string_view("lutra/control/traces.lua"); }

bool is_within_control(const Trace& t) {
  return std::any_of(t.frames.begin(), t.frames.end(), [](const auto& f) { return is_control(*f); });
}

bool is_in_control(const Trace& t) { return is_control(*t.frames.back()); }

void refuse_control(Trace& t, const ControlPlace& place, const std::string& why) {
  t.decisions.plain_control.emplace(place, why);
  throw Restart();
}

Region::Region(Trace& trace, const ControlPlace& place, std::string side, bool tests)
    : place(place),
      trace_(trace),
      side_(std::move(side)),
      tests_(tests),
      graph_(function_graph(trace.graph->env)),
      first_table_(trace.fresh_tables),
      first_cell_(trace.cells.size()),
      grad_mode_(grad_enabled()) {}

void Region::refuse(const std::string& why) const { refuse_control(trace_, place, reason(why)); }

std::string Region::reason(const std::string& why) const {
  const Frame* const f = caller_of(trace_);
  return str(why, " in ", side_, f ? str(", at ", f->code->file, ":", f->line()) : "");
}

Tensor Region::parameter(const Tensor& like, bool requires_grad) {
  pin_unknown(like->sizes), pin_unknown(like->strides);
  const Tensor t = graph_->add_input(name_of(like), like->sizes, like->strides, like->dtype, like->device());
  t->requires_grad = requires_grad;
  own_.insert(t.get());
  return t;
}

// Pins the sizes that launches of the graph tell: a function may run earlier.
void Region::pin_unknown(const Sizes& sizes) const {
  for (SymInt s : sizes) {
    if (!s.is_constant() && is_unbacked(trace_, s.expr)) s.guard();
  }
}

Tensor Region::inside(const Tensor& t) {
  if (!t || own_.count(t.get())) return t;
  Tensor& known = lifted_[t.get()];
  if (!known) known = bound(t);
  if (!known) {
    if (grad_mode_) refresh_view(t);
    known = parameter(t, t->requires_grad);
    reads_.push_back(t);
  }
  return known;
}

// Returns a constant that replaces a tensor of the caller which may bound the steps of a loop; null if it cannot.
Tensor Region::bound(const Tensor& t) {
  if (!tests_ || t->requires_grad || is_bool(t->dtype) || is_for_eager(trace_)) return {};
  const std::optional<double> element = trace_.steady_element(t, is_few);
  if (!element) return {};
  set_location(trace_, recorder_);
  const ModeScope here(&recorder_);
  const Tensor constant = full(pinned(t->sizes), Scalar(*element), t->dtype, t->device());
  own_.insert(constant.get());
  return constant;
}

// Returns the function's value for a number of the trace.
Tensor Region::number(const Scalar& s, DType type, Device device) {
  Tensor& known = numbers_[{s.expr, type, to_string(device)}];
  if (!known) {
    set_location(trace_, trace_.recorder);
    const ModeScope outside(&trace_.recorder);
    known = to_dtype(full({}, s, DType::kFloat64, device), type);
  }
  return inside(known);
}

bool Region::is_bound(const Scalar& s) const { return tests_ && is_few(s.to_double()) && trace_.may_be_pinned(s.expr); }

// Replaces the arguments of a call by values of the function, before the tape saves them: tensors, and numbers that are
// operands, become parameters.
void Region::enter(OpId op, Args& args) {
  for (size_t i = 0; i < 2 && args.size() >= 2; i++) {
    const Value& other = args[1 - i];
    if (!args[i].is<Scalar>() || !args[i].as<Scalar>().expr || !other.is<Tensor>()) continue;
    const Tensor& t = other.as<Tensor>();
    const Scalar& s = args[i].as<Scalar>();
    if (takes_tensor_for_number(op, t) && !is_bound(s)) args[i] = number(s, t->dtype, t->device());
  }
  each_argument_tensor(args, [this](size_t, Tensor& t) { t = inside(t); });
  for (Value& v : args) {
    if (v.is<Sizes>()) pin_unknown(v.as<Sizes>());
    if (!v.is<Scalar>() || !v.as<Scalar>().expr) continue;
    if (is_bound(v.as<Scalar>()) || is_unbacked(trace_, v.as<Scalar>().expr)) v = pin(v.as<Scalar>());
  }
}

Results Region::call(OpId op, Args& args) {
  const OpInfo& row = info(op);
  if (row.has(kRandom)) refuse(str(row.name, " draws random numbers"));
  if (row.has(kMutates)) refuse(str(row.name, " writes a tensor"));
  set_location(trace_, recorder_);
  const Results results = recorder_.call(op, args);
  for (const Tensor& t : results) own_.insert(t.get());
  return results;
}

Tensor Region::call_inplace(OpId op, Args&) { refuse(str(inplace_name(op), " writes a tensor")); }

// Returns whether t shares memory with an input of the function. A loop may pass on a carried value unchanged: eager
// code, too, copies it in the end.
bool Region::shares_memory(const Tensor& t) const {
  return std::any_of(graph_->inputs.begin(), graph_->inputs.end(), [&](const GraphInput& in) {
    return in.value->storage == t->storage && !(in.value.same(t) && !is_read(t));
  });
}

bool Region::is_read(const Tensor& t) const {
  return std::any_of(lifted_.begin(), lifted_.end(), [&](const auto& known) { return known.second.same(t); });
}

std::vector<bool> Region::with_gradients(const std::vector<Tensor>& results, size_t carried) {
  std::vector<bool> out;
  for (size_t k = 0; k < std::min(results.size(), carried); k++) out.push_back(inside(results[k])->requires_grad);
  return out;
}

// Results get memory of their own, with the layout of the value that they copy, as in eager code. Stacked results of a
// loop are contiguous.
RecordedFunction Region::finish(const std::vector<Tensor>& results, size_t carried, size_t parameters) {
  if (grad_enabled() != grad_mode_) refuse("it changes the grad mode");
  bool differentiable = false;
  std::unordered_set<const Storage*> seen;
  for (size_t k = 0; k < results.size(); k++) {
    const Tensor from = inside(results[k]);
    const bool stacked = parameters > carried && k >= carried;
    if (k < carried && shares_memory(from)) refuse("what it carries on has the memory of what is read");
    if (k < carried && !seen.insert(from->storage.get()).second) refuse("it carries on the same memory twice");
    const Tensor copy = stacked ? contiguous_copy(from) : own_copy(from);
    if (!stacked && !are_equal(copy->strides, from->strides)) refuse("a result is no dense tensor");
    graph_->outputs.push_back(copy);
    differentiable = differentiable || copy->requires_grad;
  }
  graph_->renumber();
  if (const std::string wrong = check_function(*graph_); !wrong.empty()) refuse(wrong);
  if (!differentiable) return {{make_function(std::move(graph_)), reads_}, nullptr};
  auto traced = std::make_shared<TracedFunction>(std::move(graph_), carried, parameters - carried);
  return {{traced->plain(), reads_}, traced};
}

namespace {

// Returns the innermost region's value for a value.
Tensor here(const Trace& t, const Tensor& value) { return t.regions.empty() ? value : t.regions.back()->inside(value); }

// Reads the tensors in an argument. With any other value the control flow becomes ordinary Lua.
std::vector<Tensor> tensors(Trace& t, const Vars& args, size_t i) {
  std::vector<Tensor> out;
  if (!read_tensors(t, arg(t, args, i), out)) refuse_control(t, control_place(t), "a value is no tensor");
  for (Tensor& value : out) value = here(t, value);
  return out;
}

RecordedFunction& function(Trace& t, const Vars& args, size_t i) {
  return t.functions.at(size_t(t.constant(arg(t, args, i))));
}

// Returns the results of call() as a list. If the op raises an error, the control flow becomes ordinary Lua. sides:
// appended to the error.
template <class F>
Vars results_of(Trace& t, const F& call, const std::string& sides) {
  set_location(t, t.recorder);
  t.effect = true;
  try {
    return {list_of(t, call())};
  } catch (const Error& e) {
    if (!is_users(e)) throw;
    refuse_control(t, control_place(t), e.what() + sides);
  }
}

// Returns a function that refuses the control flow at this place as long as the trace exists.
Refuse refusal(Trace& t) {
  return [trace = std::weak_ptr<Trace*>(t.alive), place = control_place(t)](const std::string& why) {
    if (const auto there = trace.lock()) refuse_control(**there, place, why);
  };
}

}  // namespace

// Models control_possible: returns whether control flow may be part of the graph. The argument is the number of steps
// of a loop; a loop with a small constant number is unrolled instead.
Vars run_control_possible(Trace& t, Var*, const Vars& args) {
  constexpr double kUnrolled = 16;
  const AutocastMode& mode = autocast_mode();
  const bool casts = mode.enabled[0] || mode.enabled[1];
  const Var* steps = args.empty() ? nullptr : arg(t, args, 0);
  const bool short_one = steps && steps->num.expr == 0 && steps->num.to_double() <= kUnrolled;
  return {t.boolean(!casts && !short_one && !t.decisions.plain_control.count(control_place(t)))};
}

// Models control_peels: returns whether the first step of a scan is a part of the graph around it. It is if the carry
// that the body gives has another layout than the first one. Then the body takes the layout that it gives. The
// arguments are both carries; without them it only tells.
Vars run_control_peels(Trace& t, Var*, const Vars& args) {
  const ControlPlace place = control_place(t);
  std::vector<Tensor> given, taken;
  const bool asks = args.size() == 2 && read_tensors(t, args[0], given) && read_tensors(t, args[1], taken);
  bool differs = false;
  for (size_t i = 0; asks && i < std::min(given.size(), taken.size()); i++) {
    const TensorImpl &a = *given[i].get(), &b = *taken[i].get();
    differs = differs || (are_equal(a.sizes, b.sizes) && !are_equal(a.strides, b.strides));
  }
  if (differs && t.decisions.peeled.insert(place).second) throw Restart();
  return {t.boolean(t.decisions.peeled.count(place) > 0)};
}

// Models control_open: begins a function and returns parameters for values like those in the list. The second argument
// is its name; the third one is true for the test of a loop.
Vars run_control_open(Trace& t, Var*, const Vars& args) {
  const std::vector<Tensor> likes = tensors(t, args, 0);
  const std::vector<bool> known = std::exchange(t.carries_gradients, {});
  t.regions.push_back(
      std::make_unique<Region>(t, control_place(t), t.text(arg(t, args, 1)), t.truthy(arg(t, args, 2))));
  std::vector<Tensor> parameters;
  for (size_t i = 0; i < likes.size(); i++) {
    const bool requires_grad = likes[i]->requires_grad || (i < known.size() && known[i]);
    parameters.push_back(t.regions.back()->parameter(likes[i], requires_grad));
  }
  return {list_of(t, parameters)};
}

// Models control_close: ends a function whose results are the list's tensors, and returns its index. The first
// `carried` results are passed on to the first parameters. If such a result requires grad but its parameter does not,
// it returns nil: the function must be recorded again with parameters that require grad, as they do from the loop's
// second step on.
Vars run_control_close(Trace& t, Var*, const Vars& args) {
  const std::vector<Tensor> results = tensors(t, args, 0), parameters = tensors(t, args, 1);
  const auto carried = size_t(t.constant(arg(t, args, 2)));
  Region& region = *t.regions.back();
  if (results.empty()) region.refuse("it gives nothing");
  const std::vector<bool> on = region.with_gradients(results, carried);
  for (size_t k = 0; k < on.size(); k++) {
    if (!on[k] || parameters[k]->requires_grad) continue;
    t.carries_gradients = on;
    for (size_t i = 0; i < on.size(); i++) t.carries_gradients[i] = on[i] || parameters[i]->requires_grad;
    t.regions.pop_back();
    return {t.nil()};
  }
  RecordedFunction f = region.finish(results, carried, parameters.size());
  t.regions.pop_back();
  for (Tensor& read : f.plain.reads) read = here(t, read);
  t.functions.push_back(std::move(f));
  return {t.number(double(t.functions.size() - 1))};
}

Vars run_control_refuse(Trace& t, Var*, const Vars& args) {
  refuse_control(t, control_place(t), t.text(arg(t, args, 0)));
}

// Models control_place_of: returns where a function is defined, such as "model.lua:12".
Vars run_control_place_of(Trace& t, Var*, const Vars& args) {
  Var* f = arg(t, args, 0);
  const LuaCode* code = nullptr;
  if (f->kind == VarKind::kClosure) code = f->closure->code;
  if (f->kind == VarKind::kFunction) {
    t.push_pin(f->pin);
    code = code_of(t.state, t.L, -1);
    lua_pop(t.L, 1);
  }
  return {t.string(code ? str(code->file, ":", code->proto().first_line) : "no function of Lua's")};
}

Vars run_control_cond(Trace& t, Var*, const Vars& args) {
  const Tensor pred = here(t, arg(t, args, 0)->tensor);
  const RecordedFunction &f = function(t, args, 1), &g = function(t, args, 2);
  const std::string sides = str("; ", t.text(arg(t, args, 3)), ", ", t.text(arg(t, args, 4)));
  return results_of(
      t, [&] { return call_cond(pred, f, g, refusal(t)); }, sides);
}

Vars run_control_while(Trace& t, Var*, const Vars& args) {
  const RecordedFunction &test = function(t, args, 0), &body = function(t, args, 1);
  const std::vector<Tensor> carried = tensors(t, args, 2);
  return results_of(
      t, [&] { return call_while_loop(test.plain, body, carried, refusal(t)); },
      str("; ", t.text(arg(t, args, 3)), ", ", t.text(arg(t, args, 4))));
}

namespace {

void check_same_types(Trace& t, const std::vector<TensorType>& a, const std::vector<TensorType>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); i++) same = are_equal(a[i], b[i]);
  if (!same) refuse_control(t, control_place(t), "values differ in shape, dtype or strides");
}

}  // namespace

// Models control_branch_reads, for eager code: for each result of a branch returns the tensors that its gradient flows
// to; false if it takes no gradient.
Vars run_control_branch_reads(Trace& t, Var*, const Vars& args) {
  const RecordedFunction &f = function(t, args, 0), &other = function(t, args, 1);
  const std::vector<TensorType> results = f.plain.function->results();
  check_same_types(t, results, other.plain.function->results());
  Var* list = t.fresh_table(int(results.size()) + 1);
  for (size_t k = 0; k < results.size(); k++) {
    std::vector<Tensor> reads;
    const bool gives = f.traced && f.traced->gives_gradient(k);
    for (size_t i : gives ? f.traced->reach({k}) : std::vector<size_t>()) reads.push_back(f.plain.reads[i]);
    t.raw_set(list->table, t.number(double(k + 1)), gives ? list_of(t, reads) : t.boolean(false));
  }
  return {list};
}

// Models control_loop_reads, for eager code: returns which carried values of a loop take gradients, and the tensors
// that its body reads.
Vars run_control_loop_reads(Trace& t, Var*, const Vars& args) {
  const RecordedFunction& body = function(t, args, 0);
  const std::vector<TensorType> results = body.plain.function->results();
  std::vector<TensorType> carried = body.plain.function->parameters();
  carried.resize(std::min(carried.size(), results.size()));
  check_same_types(t, carried, results);
  check_steps_alike(body, refusal(t));
  Var* takes = t.fresh_table(int(results.size()) + 1);
  for (size_t k = 0; k < results.size(); k++) {
    t.raw_set(takes->table, t.number(double(k + 1)), t.boolean(body.traced && body.traced->gives_gradient(k)));
  }
  return {takes, list_of(t, reached_by_loop(body))};
}

Vars run_control_scan(Trace& t, Var*, const Vars& args) {
  const RecordedFunction& body = function(t, args, 0);
  const std::vector<Tensor> carried = tensors(t, args, 1), xs = tensors(t, args, 2);
  const auto dim = int64_t(t.constant(arg(t, args, 3)));
  const bool reverse = t.truthy(arg(t, args, 4));
  Sizes dims;
  for (const Tensor& x : xs) dims.push_back(SymInt(dim < 0 ? dim + x->dim() : dim));
  return results_of(
      t, [&] { return call_scan(body, carried, xs, dims, reverse, refusal(t)); }, "; " + t.text(arg(t, args, 5)));
}

}  // namespace lutra
