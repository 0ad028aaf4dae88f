// dce: drops the nodes that no output, write or check needs, random nodes included. The graph still consumes the call
// indices of dropped random nodes, so later ones do not shift.
#include <unordered_set>

#include "jit/passes/passes.h"
#include "ops/defs/each_tensor.h"

namespace lutra {

GraphPtr dce(const Graph& g) {
  std::unordered_set<const Node*> live;
  const auto mark = [&](const Tensor& t) { live.insert(t->node); };
  each_tensor(g.outputs, mark);
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = *g.nodes[i];
    if (n.inplace || may_fail(n)) live.insert(&n);
    if (!live.count(&n)) continue;
    each_tensor(n.args, mark);
  }
  Rebuilder b(g);
  for (const auto& n : g.nodes) {
    if (live.count(n.get())) b.set(*n, b.copy(*n, b.map(n->args)));
  }
  return b.finish();
}

}  // namespace lutra
