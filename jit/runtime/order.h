// Which launches of a run that is recorded wait for which: those that touch memory that an earlier one wrote, or write
// memory that an earlier one touched. All others may run side by side, so what a step does beside its longest chain
// (weight gradients, sums, updates) is hidden behind it.
#pragma once
#include <map>
#include <span>
#include <vector>

#include "jit/schedule/plan.h"
#include "ops/cuda/driver.h"
#include "ops/extern/cuda/recording.h"

namespace lutra {

// Invariants:
// 1. Memory is told apart by what it is in the plan (slot of the arena, storage of inputs, result), never by address:
// the
//    order holds for every replay.
// 2. Temporary memory of libraries is a block of the recording's ScratchPool; who takes one waits for who had it.
class LaunchOrder : cuda::ScratchWatch {
 public:
  // Of a stream that is being captured from now on.
  LaunchOrder(const Plan& plan, cuda::StreamHandle stream, cuda::ScratchPool& scratch);
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;

  // Around what the launches (positions in the plan) together put into the stream.
  void begin(std::span<const int32_t> launches);
  void end();

 private:
  struct Memory {
    int32_t writer = -1;
    std::vector<int32_t> readers;  // since
  };
  struct Done {
    std::vector<cuda::GraphNode> leaves;
    std::vector<bool> before;  // by position: that it waits for, however indirectly
  };
  void touch(int64_t memory, bool written);
  void wait_for(int32_t done);
  void taken(size_t block) override;
  int64_t memory_of(int32_t buffer) const;
  std::vector<cuda::GraphNode> current() const;

  const Plan& plan_;
  const cuda::StreamHandle stream_;
  cuda::ScratchPool& scratch_;
  std::map<int64_t, Memory> memories_;
  std::vector<Done> done_;
  std::vector<bool> before_;    // of what is being put into the stream
  std::vector<int32_t> asked_;  // that it waits for, some of them through others
  std::vector<std::pair<int64_t, bool>> touched_;
};

}  // namespace lutra
