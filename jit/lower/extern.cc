// A node whose op is a library's launch in; the tensors that it reads out, in the order of the schema.
#include "jit/lower/lower.h"
#include "ops/defs/each_tensor.h"

namespace lutra {
namespace {

// Kernels that no data make fail, only want of memory: writes to inputs need not wait for them. (What embedding's
// gradient is given as index, embedding has checked.)
bool always_works(OpId op) {
  switch (op) {
    case OpId::flash_attention:
    case OpId::flash_attention_backward:
    case OpId::convolution:
    case OpId::convolution_input:
    case OpId::convolution_weight:
    case OpId::embedding_dense_backward: return true;
    default: return false;
  }
}

}  // namespace

Lowered lower_extern(const Node& node, SymFacts&) {
  Lowered l;
  l.kind = Lowered::kExtern;
  l.checks = !always_works(node.op);
  each_tensor(node.args, [&](const Tensor& t) { l.reads.push_back(t); });
  return l;
}

}  // namespace lutra
