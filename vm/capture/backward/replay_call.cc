// Replays a captured call in the graph that is being recorded.
#include "jit/graph/replay.h"

#include "ops/core/error.h"
#include "vm/capture/backward/calls.h"

namespace lutra {

CallReplay::CallReplay(const CapturedCall& call, std::vector<Tensor> inputs, std::vector<Scalar> numbers, Graph& into,
                       int first_draw)
    : call_(call),
      env_(*SymEnv::current()),
      inputs_(std::move(inputs)),
      numbers_(std::move(numbers)),
      into_(into),
      first_draw_(first_draw) {
  begin();
  for (const auto& n : call.graph->nodes) run(*n);
}

int32_t CallReplay::expr_of(const SymExpr& e) {
  switch (e.op) {
    case SymOp::kConstInt: return env_.constant(e.i);
    case SymOp::kConstNum: return env_.number(e.d);
    case SymOp::kSize: return inputs_[size_t(e.a)]->sizes[size_t(e.b)].to_expr();
    case SymOp::kStride: return inputs_[size_t(e.a)]->strides[size_t(e.b)].to_expr();
    case SymOp::kScalarInput: return number_expr(env_, numbers_[size_t(e.a)]);
    default: break;
  }
  const int32_t b = arity(e.op) > 1 ? exprs_[size_t(e.b)] : 0;
  return env_.make(e.op, exprs_[size_t(e.a)], b);
}

// Adds the trace's guards on symbols again, since sizes may differ here.
void CallReplay::begin() {
  const Graph& graph = *call_.graph;
  bool hold = true;
  for (const SymExpr& e : graph.env->exprs()) {
    exprs_.push_back(expr_of(e));
    if (e.op == SymOp::kSize) hold = hold && env_.ask(SymCmp::kLe, exprs_.back(), env_.constant(kSymbolicSizes.high));
  }
  for (const SymGuard& g : graph.env->guards()) {
    hold = hold && env_.ask(g.cmp, exprs_[size_t(g.a)], arity(g.cmp) > 1 ? exprs_[size_t(g.b)] : 0) == g.outcome;
  }
  for (size_t i = 0; i < inputs_.size(); i++) {
    const Tensor& then = graph.inputs[i].value;
    values_[then.get()] = inputs_[i];
    for (size_t d = 0; d < then->sizes.size(); d++) {
      hold = hold && size(then->sizes[d]) == inputs_[i]->sizes[d] && size(then->strides[d]) == inputs_[i]->strides[d];
    }
  }
  LUTRA_CHECK(hold, "a call's graph is replayed on other sizes than it was captured for");
}

SymInt CallReplay::size(SymInt s) const { return s.expr ? SymInt::of_expr(env_, exprs_[size_t(s.expr)]) : s; }

Scalar CallReplay::scalar(Scalar s) const {
  if (!s.expr) return s;
  const int32_t e = exprs_[size_t(s.expr)];
  if (s.kind != Scalar::kNumber) return Scalar::of_sym(SymInt::of_expr(env_, e));
  const bool constant = env_[e].op == SymOp::kConstNum;
  s.d = env_[e].d, s.expr = constant ? 0 : e;
  return s;
}

Tensor CallReplay::value(const Tensor& t) const {
  if (!t) return t;
  const auto it = values_.find(t.get());
  LUTRA_CHECK(it != values_.end(), "a value of a call's graph without its node");
  return it->second;
}

void CallReplay::run(const Node& n) {
  Args args;
  for (const Value& v : n.args) {
    const bool is_function = v.is<FunctionRef>();
    args.push_back(is_function ? Value(translated(graph_of(v.as<FunctionRef>()), into_.env, *this)) : mapped(v, *this));
  }
  if (n.rng >= 0) into_.rng_calls = first_draw_ + n.rng;
  if (n.inplace) return void(call_inplace(n.op, std::move(args)));
  const Results results = call_op(n.op, std::move(args));
  for (size_t i = 0; i < n.results.size(); i++) values_[n.results[i].get()] = results[i];
}

Tensor CallReplay::result(size_t i) const {
  const std::vector<Recipe>& results = call_.entry->effects.results;
  if (i >= results.size() || results[i].kind == Recipe::kNil) return Tensor();
  const size_t at = size_t(results[i].index);
  return results[i].kind == Recipe::kTensorIn ? inputs_[at] : value(call_.graph->outputs[at].tensor());
}

}  // namespace lutra
