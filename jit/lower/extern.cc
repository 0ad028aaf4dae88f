// Lowers an op that is a library's launch. It reads the node's tensors in the order of the schema.
#include "jit/lower/lower.h"
#include "ops/defs/each_tensor.h"

namespace lutra {

Lowered lower_extern(const Node& node, SymFacts&) {
  Lowered l;
  l.kind = Lowered::kExtern;
  each_tensor(node.args, [&](const Tensor& t) { l.reads.push_back(t); });
  return l;
}

}  // namespace lutra
