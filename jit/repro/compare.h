// Tensors of two runs in; where their bits differ first, as text, out. Copies of a run's inputs, too.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// Copies of tensors: of one storage there is one copy, so what shared memory goes on sharing it.
class Copies {
 public:
  Tensor of(const Tensor& t);
  std::vector<Tensor> of(const std::vector<Tensor>& all);

 private:
  std::map<const Storage*, std::pair<Ref<Storage>, Ref<Storage>>> storages_;  // the original, held; its copy
};

// What a run has read, written and given.
struct RunResult {
  std::vector<Tensor> inputs;
  std::vector<Value> outputs;
};

// Names what differs first between compiled and eager: results in order, then inputs that were written. NaNs are all
// one.
std::optional<std::string> difference(const Graph& graph, const RunResult& compiled, const RunResult& eager);

// Fills memory that the next allocations of a run's outputs are likely to get, so that what a kernel fails to write
// does not hold the right numbers of an earlier run.
void spoil_free_memory(const std::vector<Value>& outputs);

}  // namespace lutra
