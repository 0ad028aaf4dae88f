// What misses have shown about numbers, strings and sizes: which of them change, and where the trace stops because of
// that.
#include "vm/capture/trace/regions.h"
#include "vm/capture/trace/trace.h"
#include "vm/capture/trace/unbacked_sizes.h"

namespace lutra {

namespace {
constexpr int kUnsteady = 3;         // number of other values in misses
constexpr int kUnsteadySizes = 5;    // the same for sizes that ops make constants: each value may have its graph
constexpr int kUnsteadyLengths = 2;  // the same for lengths: stopping because of one leaves out only one op
}  // namespace

bool Trace::is_dynamic_number(const Source& s) const {
  const bool argument = s.kind == SourceKind::kArg || s.kind == SourceKind::kVararg;
  return (options.dynamic == 1 && argument) || values_of(s.text) > 0;
}

template <class F>
void Trace::each_leaf(int32_t expr, F f) const {
  std::vector<int32_t> stack{expr};
  std::set<int32_t> seen;
  while (!stack.empty()) {
    const SymExpr& e = (*graph->env)[stack.back()];
    stack.pop_back();
    if (e.op == SymOp::kScalarInput) f(program.scalar_sources[size_t(e.a)], -1);
    if (e.op == SymOp::kSize) f(inputs[size_t(e.a)].source, int(e.b));
    if (arity(e.op) > 0 && seen.insert(e.a).second) stack.push_back(e.a);
    if (arity(e.op) > 1 && seen.insert(e.b).second) stack.push_back(e.b);
  }
}

int Trace::values_of(const std::string& source) const {
  const auto found = options.changing_values.find(source);
  return found == options.changing_values.end() || options.dynamic == 0 ? 0 : found->second;
}

bool Trace::is_learnt(const Source& tensor, int dim) const {
  const auto has = [&](const std::string& name) {
    const auto dims = options.dynamic_dims.find(name);
    return dims != options.dynamic_dims.end() && dims->second.count(dim) > 0;
  };
  return options.dynamic != 0 && (has(tensor.text) || has(elements_text(tensor.text)));
}

bool Trace::has_varied(Var* v, int values) {
  if (v->tensor || (v->guarded && !v->num.expr)) return false;
  // A variable of a loop around the segment has another value the next time.
  const auto have = [&](const std::string& s) { return values_of(s) + int(options.loop_variables.count(s)); };
  if (v->source) return have(v->source->text) >= values;
  if (v->kind != VarKind::kNumber) return false;
  bool found = false;
  // A size became a symbol at its first miss, which is not counted.
  each_leaf(v->num.expr, [&](const Source* s, int dim) {
    if (s) found = found || (dim < 0 ? have(s->text) >= values : values_of(size_name(s->text, dim)) >= values - 1);
  });
  return found;
}

double Trace::constant(Var* v) {
  if (v->tensor) stop(Break::needs_number, {.dirty = true});
  if (v->source && (!v->guarded || v->num.expr)) stop_if_unsteady(*v->source);
  if (v->num.expr != 0) {
    if (v->source) {
      check(GuardOp::kValueCheck, v->source, constant_slot(number(v->num.to_double())), str(v->num.to_double()));
    } else {
      each_leaf(v->num.expr, [&](const Source* s, int dim) {
        if (s && dim >= 0) stop_if_unsteady(*s, dim, kUnsteady);
      });
      graph->env->pin(v->num.expr);
    }
    v->num = Scalar(v->num.to_double());
    v->guarded = true;
  } else if (!v->guarded) {
    v->guarded = true;
    check(GuardOp::kValueCheck, v->source, constant_slot(v), str(v->num.d));
  }
  return v->num.to_double();
}

bool Trace::has_come_out_otherwise(const Var* v) const {
  if (v->kind != VarKind::kNumber || v->tensor || !v->num.expr) return false;
  if (options.changing_values.empty() && options.dynamic_dims.empty()) return false;
  bool has = false;
  each_leaf(v->num.expr, [&](const Source* s, int dim) {
    if (!s) return;
    const std::string name = dim < 0 ? s->text : size_name(s->text, dim);
    has = has || values_of(name) > 0 || values_of(compared_name(name)) > 0 || (dim >= 0 && is_learnt(*s, dim));
  });
  return has;
}

bool Trace::may_be_pinned(int32_t expr) const {
  bool may = true;
  each_leaf(expr, [&](const Source* s, int dim) { may = may && s && dim < 0 && !is_dynamic_number(*s); });
  return may;
}

void Trace::stop_if_unsteady(const Source& s) {
  const int most = s.kind == SourceKind::kLength ? kUnsteadyLengths : kUnsteady;
  if (ended || options.fullgraph || values_of(s.text) < most) return;
  stop(Break::changing_value, {.dirty = true});
}

// A size became a symbol at its first miss, which is not counted.
void Trace::stop_if_unsteady(const Source& tensor, int dim, int most) {
  if (ended || options.fullgraph || values_of(size_name(tensor.text, dim)) < most - 1) return;
  stop(Break::changing_value, {.dirty = true});
}

void Trace::stop_at_pin(int32_t expr) {
  const SymRange range = is_number((*graph->env)[expr].op) ? SymRange() : graph->env->range(expr);
  if (!ended && range.low != range.high && is_unbacked(*this, expr)) stop_at_size(*this, expr);
  if (options.changing_values.empty()) return;
  // A count that sizes determine has fewer values than they. A region cannot end here, so it takes the constant.
  const bool is_size = (*graph->env)[expr].op == SymOp::kSize && !is_within_control(*this);
  each_leaf(expr, [&](const Source* s, int dim) {
    if (s && dim < 0) stop_if_unsteady(*s);
    if (s && is_size) stop_if_unsteady(*s, dim, kUnsteadySizes);
  });
}

}  // namespace lutra
