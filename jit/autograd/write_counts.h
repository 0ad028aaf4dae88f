// Versions of storages count writes as eager's do, however many writes compiled code has made one.
#pragma once
#include <utility>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

struct WriteCounts {
  std::vector<std::pair<size_t, uint32_t>> inputs, outputs;  // place, writes; those that were written, inputs first
  bool empty() const { return inputs.empty() && outputs.empty(); }
  // Of a traced graph; inputs are counted without constants.
  static WriteCounts of(const Graph& traced);
  // To be called before a run; its answer is for after().
  std::vector<uint32_t> before(const std::vector<Tensor>& run_inputs) const;
  void after(const std::vector<uint32_t>& before, const std::vector<Tensor>& run_inputs,
             const std::vector<Value>& run_outputs) const;
};

}  // namespace lutra
