// Which launches of a run that is recorded wait for which: those that touch memory that an earlier one wrote, or write
// memory that an earlier one touched. All others may run side by side, so what a step does beside its longest chain
// (weight gradients, sums, updates) is hidden behind it.
#pragma once
#include <map>
#include <span>
#include <vector>

#include "jit/runtime/arena.h"
#include "jit/schedule/plan.h"
#include "ops/cuda/driver.h"
#include "ops/extern/cuda/recording.h"

namespace lutra {

// Invariants:
// 1. Memory is told apart by what it is in the plan (storage of inputs, result), never by address, and in the arena by
//    where it lies there: the order holds for every replay with the arena's layout, which is part of what a recording
//    must find equal.
// 2. Temporary memory of libraries is a block of a ScratchPool, or lies in the arena: who takes it waits for who had
// it.
class LaunchOrder : cuda::ScratchWatch {
 public:
  // Of a stream that is being captured from now on.
  LaunchOrder(const Plan& plan, const ArenaLayout& layout, const char* arena, cuda::StreamHandle stream,
              cuda::ScratchPool& scratch);
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;

  // Around what the launches (positions in the plan) together put into the stream.
  void begin(std::span<const int32_t> launches);
  void end();

 private:
  struct Memory {
    int32_t writer = -1;
    std::vector<int32_t> readers;  // since
    size_t from = 0, to = 0;       // in the arena
  };
  struct Done {
    std::vector<cuda::GraphNode> leaves;
    std::vector<bool> before;  // by position: that it waits for, however indirectly
  };
  void touch(int64_t memory, bool written);
  void find_range(int64_t memory, Memory& m) const;
  void take_over(int64_t memory);
  void wait_for(int32_t done);
  void taken(size_t block) override;
  void taken_lent(const void* p, size_t nbytes) override;
  void wait_in_the_middle(size_t asked_before);
  int64_t memory_of(int32_t buffer) const;
  std::vector<cuda::GraphNode> current() const;

  const Plan& plan_;
  const ArenaLayout& layout_;
  const char* const arena_;
  const cuda::StreamHandle stream_;
  cuda::ScratchPool& scratch_;
  std::map<int64_t, Memory> memories_;
  std::vector<Done> done_;
  std::vector<bool> before_;    // of what is being put into the stream
  std::vector<int32_t> asked_;  // that it waits for, some of them through others
  std::vector<std::pair<int64_t, bool>> touched_;
  std::vector<std::pair<size_t, size_t>> lent_;  // pieces of the arena, from and to
};

}  // namespace lutra
