// Lowers mm and bmm to a library's kernel if one supports the type, otherwise to a reduction over k in order.
#include "jit/lower/lower.h"
#include "ops/core/half.h"
#include "ops/extern/extern.h"

namespace lutra {

Lowered lower_extern_mm(const Node& node, SymFacts& facts) {
  Lowered l;
  Tensor a = node.args[0].tensor(), b = node.args[1].tensor();
  l.reads = {a, b};
  DType type = node.results[0]->dtype;
  if (extern_supports(node.op, type, node.results[0]->device().type)) {
    l.kind = Lowered::kExtern;
    return l;
  }
  // Domain (batch,) m, n, k.
  l.kind = Lowered::kReduce;
  Reduction& r = l.reduction;
  size_t batch = size_t(a->dim()) - 2;
  r.sizes = node.results[0]->sizes;
  r.sizes.push_back(a->sizes[batch + 1]);
  r.reduced.assign(batch + 3, false);
  r.reduced[batch + 2] = true;
  for (size_t d = 0; d < batch + 2; d++) r.kept.push_back(int(d));
  r.nest = {{int(batch + 2)}};
  r.type = opmath_type(type);
  if (is_bool(type)) r.op = loop::RedOp::kAny;
  l.element = element_function(l, facts, batch + 3, [&, t = r.type](RuleContext& e, const Index& index) {
    Index ia(index.begin(), index.begin() + long(batch) + 1), ib(index.begin(), index.begin() + long(batch));
    ia.push_back(index[batch + 2]);
    ib.push_back(index[batch + 2]), ib.push_back(index[batch + 1]);
    int32_t x = e.body.cast(e.operand(a, ia), t), y = e.body.cast(e.operand(b, ib), t);
    return e.body.op(is_bool(t) ? loop::Op::kAnd : loop::Op::kMul, t, x, y);
  });
  return l;
}

}  // namespace lutra
