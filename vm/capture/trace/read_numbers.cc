// Turns calls and instructions on numbers that were read from tensors into float64 ops, which compute like Lua.
#include "vm/capture/trace/read_numbers.h"

#include <algorithm>
#include <string_view>

#include "ops/decompose/emit.h"
#include "ops/decompose/numbers.h"
#include "ops/defs/control.h"
#include "ops/defs/forms.h"
#include "vm/bind/binding.h"
#include "vm/bind/compare.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/reader.h"
#include "vm/capture/trace/trace.h"
#include "vm/capture/trace/unbacked_sizes.h"

namespace lutra {
namespace {

bool is_read(const Var* v) { return v->kind == VarKind::kNumber && v->tensor; }

Var* read_number(Trace& t, const Tensor& value, ReadNumber made = {}) {
  t.effect = true;
  t.read_numbers[value.get()] = std::move(made);
  Var* v = t.tensor(value);
  v->kind = VarKind::kNumber;
  v->guarded = false;
  return v;
}

Var* read_truth(Trace& t, const Tensor& value) {
  Var* v = read_number(t, value);
  v->kind = VarKind::kBool;
  return v;
}

Var* as_graph_number(Trace& t, Var* v) { return is_read(v) ? t.scalar(graph_number(t, v)) : v; }

// Runs a function that compares tensors.
Vars run_comparison(Trace& t, const std::string& name, const Vars& args) {
  if (ends_graph(t) || !t.regions.empty()) t.stop(Break::reads_elements, {name});
  t.recorder.set_location(t.file(), t.line());
  TrackerReader reader(t, args);
  try {
    const Tensor answer = answer_of(name, reader);
    return {answer ? read_truth(t, answer) : t.boolean(false)};
  } catch (const NeedsData& e) {
    t.stop(Break::reads_elements, {name, e.what(), true});
  } catch (const Error& e) {
    if (!is_users(e)) throw;
    t.stop(Break::raises, {name, e.what(), true});
  }
}

// Reads an int64 that may be beyond 2^53, where item() returns cdata. The run checks it.
Var* read_wide(Trace& t, const Tensor& x, const char* name) {
  const std::optional<Scalar> n = tell_element(t, number_of_element(x), true);
  if (!n) t.stop(Break::reads_elements, {name, "an int64 beyond 2^53 is no number: read it of x:double()", true});
  return t.scalar(*n);
}

// Returns whether a Lua number can hold any element of x exactly. For an int64 beyond 2^53 item() returns cdata.
bool fits_number(const Graph& graph, const Tensor& x) {
  if (is_float(x->dtype) || size_of(x->dtype) < sizeof(int64_t)) return true;
  const auto node = std::find_if(graph.nodes.rbegin(), graph.nodes.rend(),
                                 [&](const auto& n) { return !n->results.empty() && n->results[0].same(x); });
  return node != graph.nodes.rend() && counts_elements((*node)->op, (*node)->args);
}

// Returns whether Lua represents elements of this dtype as numbers or booleans.
bool is_readable(DType dtype) { return !is_stored(dtype) && !is_complex(dtype); }

// Reads the element of a one-element tensor.
Var* read_element(Trace& t, const Tensor& x, const char* name) {
  const bool number = is_float(x->dtype) || is_int(x->dtype);
  if (number && !fits_number(*t.graph, x)) return read_wide(t, x, name);
  if (!number) return read_truth(t, truth_of_element(x));
  return read_number(t, number_of_element(x), {.whole = is_int(x->dtype)});
}

// Reads the elements as nested lists.
Var* read_elements(Trace& t, const Tensor& x, const char* name) {
  if (x->sizes.empty()) return read_element(t, x, name);
  const int64_t n = x->sizes[0].hint;
  Var* list = t.fresh_table(int(n) + 1);
  for (int64_t i = 0; i < n; i++) {
    t.raw_set(list->table, t.number(double(i + 1)), read_elements(t, slice_of(x, 0, i), name));
  }
  return list;
}

struct Operands {
  GradModeScope without_history{false};
  Tensor a, b;
  Operands(Trace& t, Var* x, Var* y, Device device) {
    t.recorder.set_location(t.file(), t.line());
    a = on(t, x, device), b = on(t, y, device);
  }
  // At least one of x and y was read.
  Operands(Trace& t, Var* x, Var* y) : Operands(t, x, y, (is_read(x) ? x : y)->tensor->device()) {}

 private:
  static Tensor on(Trace& t, Var* v, Device device) {
    if (!is_read(v)) return full({}, as_number(t.symbolic(v)), DType::kFloat64, device);
    if (v->tensor->device() != device) t.stop(Break::needs_number, {.dirty = true});
    return v->tensor;
  }
};

}  // namespace

// Ending the graph at item() costs nothing before the first op. In a loop it lets all iterations run the same code,
// while a graph that continues would contain each of them.
bool ends_graph(const Trace& t) { return !t.options.fullgraph && (t.graph->nodes.empty() || is_in_loop(t)); }

bool is_in_loop(const Trace& t) {
  return std::any_of(t.frames.begin(), t.frames.end(), [](const Frame* f) {
    const auto& loops = f->code->loops();
    return std::any_of(loops.begin(), loops.end(), [f](const auto& l) { return l.head <= f->pc && f->pc <= l.end; });
  });
}

Vars run_item(Trace& t, Var*, const Vars& args) {
  const Var* v = args.size() == 1 ? t.force(args[0]) : nullptr;
  if (!v || v->kind != VarKind::kTensor || ends_graph(t) || !t.regions.empty()) t.stop(Break::reads_elements, {"item"});
  const Tensor& x = v->tensor;
  if (!is_readable(x->dtype)) t.stop(Break::reads_elements, {"item"});
  if (x->numel() != 1) t.stop(Break::raises, {"item"});
  t.recorder.set_location(t.file(), t.line());
  return {read_element(t, x, "item")};
}

namespace {

// Reads a few elements, each as a number. Eager code makes longer lists.
Vars read_lists(Trace& t, const char* name, const Vars& args) {
  constexpr int64_t kMost = 16;
  const Var* v = args.size() == 1 ? t.force(args[0]) : nullptr;
  if (!v || v->kind != VarKind::kTensor || ends_graph(t) || !t.regions.empty()) t.stop(Break::reads_elements, {name});
  const Tensor& x = v->tensor;
  const bool fixed = std::all_of(x->sizes.begin(), x->sizes.end(), [](SymInt n) { return n.is_constant(); });
  if (!is_readable(x->dtype) || !fixed) t.stop(Break::reads_elements, {name});
  if (x->sizes.empty() || x->numel().hint > kMost) t.stop(Break::reads_elements, {name});
  t.recorder.set_location(t.file(), t.line());
  const GradModeScope without_history(false);
  return {read_elements(t, x, name)};
}

}  // namespace

Vars run_tolist(Trace& t, Var*, const Vars& args) { return read_lists(t, "tolist", args); }
Vars run_totable(Trace& t, Var*, const Vars& args) { return read_lists(t, "totable", args); }
Vars run_equal(Trace& t, Var*, const Vars& args) { return run_comparison(t, "equal", args); }
Vars run_allclose(Trace& t, Var*, const Vars& args) { return run_comparison(t, "allclose", args); }

Var* read_not(Trace& t, Var* v) {
  t.recorder.set_location(t.file(), t.line());
  return read_truth(t, not_of(v->tensor));
}

Var* read_arithmetic(Trace& t, bc::Op op, Var* x, Var* y) {
  if (op == bc::Op::POW) return arithmetic(t, op, as_graph_number(t, x), as_graph_number(t, y));
  const Operands of(t, x, y);
  const ReadNumber made{.op = op, .from = {x, y}};
  switch (op) {
    case bc::Op::ADDVN:
    case bc::Op::ADDNV:
    case bc::Op::ADDVV: return read_number(t, add(of.a, of.b), made);
    case bc::Op::SUBVN:
    case bc::Op::SUBNV:
    case bc::Op::SUBVV: return read_number(t, sub(of.a, of.b), made);
    case bc::Op::MULVN:
    case bc::Op::MULNV:
    case bc::Op::MULVV: return read_number(t, mul(of.a, of.b), made);
    case bc::Op::DIVVN:
    case bc::Op::DIVNV:
    case bc::Op::DIVVV: return read_number(t, div(of.a, of.b), made);
    default: return read_number(t, number_remainder(of.a, of.b), made);
  }
}

// These functions round like the ops of the same names.
Var* read_rounded(Trace& t, std::string_view name, Var* v) {
  const std::string_view op = name.substr(name.find('.') + 1);
  if (op != "sqrt" && op != "floor" && op != "ceil" && op != "abs") return as_graph_number(t, v);
  const ReadNumber made{.function = find_builtin_row(std::string(name)), .from = {v}};
  return read_number(t, op1(find_op(std::string(op)), {Operands(t, v, v).a}), made);
}

Var* read_extreme(Trace& t, bool most, Var* x, Var* y, Device device) {
  const Operands of(t, x, y, device);
  const ReadNumber made{.function = find_builtin_row(most ? "math.max" : "math.min"), .from = {x, y}};
  return read_number(t, where(most ? gt(of.a, of.b) : lt(of.a, of.b), of.a, of.b), made);
}

Scalar graph_number(Trace& t, Var* v) {
  ReadNumber& n = t.read_numbers[v->tensor.get()];
  if (n.in_graph) return *n.in_graph;
  if (n.from.empty()) {
    n.in_graph = tell_element(t, v->tensor, n.whole);
    if (!n.in_graph) t.stop(Break::needs_number, {.dirty = true});
    return *n.in_graph;
  }
  Vars from;
  for (Var* part : n.from) from.push_back(as_graph_number(t, part));
  if (!n.function) return *(n.in_graph = t.symbolic(arithmetic(t, n.op, from[0], from[1])));
  Var function;
  function.builtin = n.function;
  n.in_graph = t.symbolic(n.function->run(t, &function, from)[0]);
  const std::string_view name = n.function->name;
  if (n.in_graph->kind != Scalar::kNumber || !n.in_graph->expr || (name != "math.floor" && name != "math.ceil"))
    return *n.in_graph;
  const int32_t whole = t.graph->env->ask_integer(n.in_graph->expr);
  if (whole) n.in_graph = Scalar::of_sym(SymInt::of_expr(*t.graph->env, whole));
  return *n.in_graph;
}

void pass_read_numbers(Trace& t, const Binding& b, Vars& args) {
  if (args.size() != 2 || is_read(args[0]) == is_read(args[1])) return;
  Var*& v = is_read(args[0]) ? args[0] : args[1];
  const Var* other = t.force(is_read(args[0]) ? args[1] : args[0]);
  const OpId op = b.forms ? b.forms->front().op : b.op;
  if (other->kind != VarKind::kTensor || op == OpId::kCount || !takes_tensor_for_number(op, other->tensor)) return;
  if (v->tensor->device() != other->tensor->device()) return;
  const GradModeScope without_history(false);
  v = t.tensor(to_dtype(v->tensor, other->tensor->dtype));
}

}  // namespace lutra
