// Rebuilds the env with other hints, then the graph's nodes. Their meta rules compute with the new hints.
#include "jit/autograd/resized.h"

#include <algorithm>

#include "jit/graph/env_copy.h"
#include "jit/graph/replay.h"
#include "jit/passes/passes.h"

namespace lutra {
namespace {

struct Hints {
  const SymEnv& env;
  Tensor tensor(const Tensor& t) const { return t; }
  SymInt size(SymInt s) const { return s.expr ? SymInt::of_expr(env, s.expr) : s; }
  Scalar scalar(Scalar s) const {
    if (!s.expr) return s;
    s.kind == Scalar::kNumber ? void(s.d = env[s.expr].d) : void(s.i = env[s.expr].i);
    return s;
  }
  void take(Sizes& sizes) const {
    for (SymInt& s : sizes) s = size(s);
  }
};

bool is_dynamic(const std::unique_ptr<Node>& n) { return info(n->op).dynamic; }

}  // namespace

std::unique_ptr<Graph> resized(Graph& pattern, const SymEnv& traced, const std::vector<Tensor>& inputs,
                               const std::vector<double>& scalars) {
  if (std::any_of(pattern.nodes.begin(), pattern.nodes.end(), is_dynamic)) return nullptr;
  std::vector<const TensorImpl*> by_input;
  size_t next = 0;
  for (const GraphInput& in : pattern.inputs) by_input.push_back(in.constant ? nullptr : inputs[next++].get());
  const auto env = copy_for(traced, [&](SymExpr e) {
    if (e.op == SymOp::kScalarInput) e.d = scalars[size_t(e.a)];
    if (e.op != SymOp::kSize && e.op != SymOp::kStride) return e;
    const TensorImpl& t = *by_input.at(size_t(e.a));
    e.i = (e.op == SymOp::kSize ? t.sizes : t.strides)[size_t(e.b)].hint;
    return e;
  });
  if (!env) return nullptr;
  const Hints hints{*env};
  pattern.env = env;
  for (size_t i = 0; i < pattern.scalars.size() && i < scalars.size(); i++) pattern.scalars[i].hint = scalars[i];
  for (GraphInput& in : pattern.inputs) hints.take(in.value->sizes), hints.take(in.value->strides);
  for (const auto& n : pattern.nodes) {
    for (Value& v : n->args) v = mapped(v, hints);
  }
  translate_functions(pattern, env, hints);
  return copy_of(pattern);
}

}  // namespace lutra
