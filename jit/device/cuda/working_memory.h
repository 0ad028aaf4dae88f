// What a run needs of a GPU's memory until it is in the stream: the arena, and temporary memory of libraries.
#pragma once
#include <memory>

#include "ops/core/storage.h"
#include "ops/extern/cuda/recording.h"

namespace lutra {

// A lease of such memory.
// Invariants:
// 1. All work of a device is on one stream: what a run leaves behind the next may overwrite, so runs of all executables
//    take the same memory one after another, and find it at the same address as long as nobody needs more.
// 2. It is one run's until it is given back: runs at the same time on several threads have memory each.
// 3. Idle memory goes back to the allocator where a request finds none, and by empty_cache.
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
  // At least so many bytes.
  void* arena(size_t bytes);
  cuda::ScratchPool& scratch() { return bundle_->scratch; }

 private:
  Device device_;
  std::unique_ptr<Bundle> bundle_;
};

}  // namespace lutra
