// Counts the writes to FakeTensors, and sets the versions of real storages.
#include "jit/autograd/write_counts.h"

#include <unordered_set>

namespace lutra {

WriteCounts WriteCounts::of(const Graph& traced) {
  WriteCounts counts;
  std::unordered_set<const Storage*> known;
  size_t place = 0;
  for (const GraphInput& in : traced.inputs) {
    if (in.constant) continue;
    const Storage* s = in.value->storage.get();
    if (s->version && known.insert(s).second) counts.inputs.emplace_back(place, s->version);
    place++;
  }
  for (size_t i = 0; i < traced.outputs.size(); i++) {
    if (!traced.outputs[i].is<Tensor>() || !traced.outputs[i].tensor()) continue;
    const Storage* s = traced.outputs[i].tensor()->storage.get();
    if (s->version && known.insert(s).second) counts.outputs.emplace_back(i, s->version);
  }
  return counts;
}

std::vector<uint32_t> WriteCounts::before(const std::vector<Tensor>& run_inputs) const {
  std::vector<uint32_t> versions;
  for (auto& [place, writes] : inputs) versions.push_back(run_inputs[place]->storage->version);
  return versions;
}

void WriteCounts::after(const std::vector<uint32_t>& before, const std::vector<Tensor>& run_inputs,
                        const std::vector<Value>& run_outputs) const {
  for (size_t i = 0; i < inputs.size(); i++) run_inputs[inputs[i].first]->storage->version = before[i];
  for (auto& [place, writes] : inputs) run_inputs[place]->storage->version += writes;  // two may share one storage
  for (auto& [place, writes] : outputs) run_outputs[place].tensor()->storage->version = writes;
}

}  // namespace lutra
