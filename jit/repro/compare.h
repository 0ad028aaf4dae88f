// Finds the first difference in the bits of two runs' tensors, as text. Also copies the inputs of a run.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// Copies tensors. Each storage is copied once, so copies share memory as the originals do.
class Copies {
 public:
  Tensor of(const Tensor& t);
  std::vector<Tensor> of(const std::vector<Tensor>& all);

 private:
  std::map<const Storage*, std::pair<Ref<Storage>, Ref<Storage>>> storages_;  // the original, which is held, and its
                                                                              // copy
};

// The inputs of a run, after its writes, and its outputs.
struct RunResult {
  std::vector<Tensor> inputs;
  std::vector<Value> outputs;
};

// Names the first difference between compiled and eager: results in order, then inputs that were written. All NaNs
// count as equal.
std::optional<std::string> difference(const Graph& graph, const RunResult& compiled, const RunResult& eager);

// Fills memory that a run's outputs are likely to be allocated in. So an element that a kernel fails to write does not
// have the right value left over from an earlier run.
void spoil_free_memory(const std::vector<Value>& outputs);

}  // namespace lutra
