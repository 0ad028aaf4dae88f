// Bytes of a GPU: blocks cut from large segments of the driver's, kept when freed.
#pragma once
#include <string>
#include <vector>

#include "ops/core/storage.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {

// Bytes now and at most; numbers of calls.
struct MemoryStats {
  int64_t allocated = 0, max_allocated = 0;  // in live storages, as asked for and rounded up
  int64_t reserved = 0, max_reserved = 0;    // held from the driver
  int64_t allocations = 0, segments = 0, retries = 0, out_of_memory = 0;
};

// Invariants:
// 1. All work is on one stream a device, so a freed block may be given out at once.
// 2. Blocks are multiples of 512 bytes and 512-byte aligned; neighbours that are free are one block.
// 3. Out of memory: garbage is collected (the hook of ops/core/storage.h), free segments go back to the driver, then it
//    is tried again, then an Error(kMemory) says what was asked, what is held, and the largest holders.
// 4. Freeing calls no driver and never throws, from any thread, also where the context is lost.
Ref<Storage> allocate(size_t nbytes, Device device);
// While one lives, what this thread allocates stays taken: it is added to the list too.
class KeepAllocations {
 public:
  explicit KeepAllocations(std::vector<Ref<Storage>>& list);
  ~KeepAllocations();
  KeepAllocations(const KeepAllocations&) = delete;

 private:
  std::vector<Ref<Storage>>* before_;
};
// Whoever keeps memory to use it again gives it up in `release`: called before a request fails, and by empty_cache.
void set_idle_memory(void (*release)());
// Whether the bytes are a block of ours, which nobody outside has lent us.
bool is_block(const Storage& storage);
// Segments without a block in use go back to the driver. Nothing where the GPU was not used yet.
void empty_cache(Device device);
// Zeros where the GPU was not used yet.
MemoryStats memory_stats(Device device);
void reset_peak_stats(Device device);
// "1.50 GB", and what is held as a table for people.
std::string bytes_text(size_t bytes);
std::string memory_summary(Device device);

}  // namespace lutra::cuda
