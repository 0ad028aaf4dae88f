// A node whose op is a library's launch in; the tensors that it reads out, in the order of the schema.
#include "jit/lower/lower.h"

namespace lutra {

Lowered lower_extern(const Node& node, SymFacts&) {
  Lowered l;
  l.kind = Lowered::kExtern;
  for (const Value& v : node.args) {
    if (v.is<Tensor>() && v.tensor()) l.reads.push_back(v.tensor());
    if (v.is<std::vector<Tensor>>()) {
      for (const Tensor& t : v.as<std::vector<Tensor>>()) l.reads.push_back(t);
    }
  }
  return l;
}

}  // namespace lutra
