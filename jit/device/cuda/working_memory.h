// The GPU memory that a run needs until it is in the stream: the arena, and temporary memory of libraries.
#pragma once
#include <memory>

#include "ops/core/storage.h"
#include "ops/extern/cuda/recording.h"

namespace lutra {

// A lease of such memory.
// Invariants:
// 1. All work of a device is on one stream, so a run may overwrite what an earlier one left behind. Runs of all
//    executables use the same memory one after another. Its address stays the same as long as nobody needs more.
// 2. It belongs to one run until it is given back. Runs on several threads at the same time have memory of their own.
// 3. Idle memory returns to the allocator if a request finds none, and on empty_cache.
class WorkingMemory {
 public:
  struct Bundle {
    Ref<Storage> arena;
    cuda::ScratchPool scratch;
  };
  WorkingMemory() = default;
  ~WorkingMemory() { give_back(); }
  WorkingMemory(const WorkingMemory&) = delete;

  void take(Device device);
  void give_back();
  explicit operator bool() const { return bool(bundle_); }
  // Returns at least so many bytes.
  void* arena(size_t bytes);
  cuda::ScratchPool& scratch() { return bundle_->scratch; }

 private:
  Device device_;
  std::unique_ptr<Bundle> bundle_;
};

}  // namespace lutra
