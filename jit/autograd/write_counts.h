// Makes storage versions count writes as eager's do, although compiled code may merge several writes into one.
#pragma once
#include <utility>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

struct WriteCounts {
  std::vector<std::pair<size_t, uint32_t>> inputs, outputs;  // place and number of writes, of those that were written;
                                                             // inputs first
  bool empty() const { return inputs.empty() && outputs.empty(); }
  // Counts the writes of a traced graph. Places of inputs do not count constants.
  static WriteCounts of(const Graph& traced);
  // Call it before a run, and pass its result to after().
  std::vector<uint32_t> before(const std::vector<Tensor>& run_inputs) const;
  void after(const std::vector<uint32_t>& before, const std::vector<Tensor>& run_inputs,
             const std::vector<Value>& run_outputs) const;
};

}  // namespace lutra
