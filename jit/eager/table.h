// Compiled one-op executables by key. A key has everything that a call's code depends on by construction. Everything
// else is a guard, which is checked at each look-up.
#pragma once
#include <memory>
#include <vector>

#include "jit/runtime/executable.h"
#include "jit/runtime/host_program.h"
#include "ops/core/small_vec.h"

namespace lutra {

using EagerKey = SmallVec<uint64_t, 32>;

struct EagerEntry {
  EagerKey key;
  uint64_t hash = 0;
  std::shared_ptr<Executable> executable;
  HostProgram guards;
  bool guards_sizes = false;         // some guard depends on more than numbers
  std::vector<HostValue> values;     // of the guards' program
  std::unique_ptr<EagerEntry> next;  // same key, other guards
  bool holds(const InputView* inputs, const double* scalars);
};

// A hash table with open addressing. Each thread has one, so no look-up waits (the process shares the kernels).
class EagerTable {
 public:
  EagerEntry* find(const EagerKey& key, const InputView* inputs, const double* scalars);
  EagerEntry* insert(std::unique_ptr<EagerEntry> entry);
  void clear();
  size_t size() const { return count_; }

 private:
  size_t slot(const EagerKey& key, uint64_t hash) const;
  std::vector<std::unique_ptr<EagerEntry>> slots_ = std::vector<std::unique_ptr<EagerEntry>>(256);
  size_t used_ = 0, count_ = 0;
};

}  // namespace lutra
