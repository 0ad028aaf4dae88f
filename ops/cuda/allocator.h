// Allocates a GPU's memory: blocks are cut from large segments of the driver, and kept when they are freed.
#pragma once
#include <string>
#include <vector>

#include "ops/core/storage.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {

// Bytes, now and at most, and numbers of calls.
struct MemoryStats {
  int64_t allocated = 0, max_allocated = 0;  // in live storages; requested bytes, rounded up
  int64_t reserved = 0, max_reserved = 0;    // held from the driver
  int64_t allocations = 0, segments = 0, retries = 0, out_of_memory = 0;
};

// Invariants:
// 1. All work on a device is on one stream, so a freed block may be reused at once.
// 2. Blocks are multiples of 512 bytes and 512-byte aligned. Free neighbours are one block.
// 3. If memory runs out, garbage is collected (the hook of ops/core/storage.h), free segments go back to the driver,
//    and the allocation is tried again. If it still fails, an Error(kMemory) names the request, the memory held, and
//    the largest holders.
// 4. Freeing does not call the driver and never throws, from any thread, also after the context is lost.
Ref<Storage> allocate(size_t nbytes, Device device);
// A scope in which this thread's allocations stay allocated: each is added to the list too.
class KeepAllocations {
 public:
  explicit KeepAllocations(std::vector<Ref<Storage>>& list);
  ~KeepAllocations();
  KeepAllocations(const KeepAllocations&) = delete;

 private:
  std::vector<Ref<Storage>>* before_;
};
// Sets a function that frees memory which is kept for reuse. It is called before a request fails, and by empty_cache.
void set_idle_memory(void (*release)());
// Returns whether the bytes are a block of this allocator, not foreign memory.
bool is_block(const Storage& storage);
// Gives segments without a used block back to the driver. Does nothing if the GPU was not used yet.
void empty_cache(Device device);
// Returns zeros if the GPU was not used yet.
MemoryStats memory_stats(Device device);
void reset_peak_stats(Device device);
// Format memory for people: "1.50 GB", and a table of the memory held.
std::string bytes_text(size_t bytes);
std::string memory_summary(Device device);

}  // namespace lutra::cuda
