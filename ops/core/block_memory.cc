// Fresh memory for blocks. Small blocks come from malloc. Large blocks are mapped one by one. Blocks between these
// sizes lie side by side in chunks. The system then gives large pages, and fresh memory costs one fault for each 2 MB.
// A model touches its parameters, its gradients and its optimiser's state for the first time in its first step.
// Invariants:
// 1. A block lies in a chunk exactly if `live_` has the chunk of the block's address.
// 2. Pages of a freed block go back to the system at once. Its addresses go back when the whole chunk is free.
// 3. A program that has few such blocks takes no chunk.
#include "ops/core/block_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

namespace lutra {
namespace {

constexpr size_t kPage = 4096, kLargePage = size_t(2) << 20;
constexpr size_t kChunk = size_t(16) << 20, kSmallestInChunk = size_t(16) << 10;
// Bytes of blocks from malloc before the first chunk.
constexpr size_t kFew = size_t(1) << 20;

char* aligned(const void* p, size_t to) {
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(p) + to - 1) / to * to);
}

// Maps `bytes` of fresh pages at a multiple of `alignment`.
char* map_pages(size_t bytes, size_t alignment) {
  const size_t reserved = bytes + alignment;
  void* p = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char *at = static_cast<char*>(p), *first = aligned(p, alignment);
  if (first != at) munmap(at, size_t(first - at));
  if (char* end = first + bytes; end != at + reserved) munmap(end, size_t(at + reserved - end));
  madvise(first, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
  return first;
}

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

class Chunks {
 public:
  // Returns null if malloc is to allocate the block.
  void* take(size_t bytes) {
    std::lock_guard lock(mutex_);
    if (few_ < kFew) {
      few_ += bytes;
      return nullptr;
    }
    if (!newest_ || used_ + bytes > kChunk) {
      char* chunk = map_pages(kChunk, kChunk);
      if (!chunk) return nullptr;
      newest_ = chunk, used_ = 0;
      live_[chunk] = 0;
    }
    char* p = newest_ + used_;
    used_ += bytes;
    live_[newest_]++;
    return p;
  }
  // Returns whether p lay in a chunk.
  bool give_back(void* p, size_t bytes) {
    std::lock_guard lock(mutex_);
    char* chunk = static_cast<char*>(p) - reinterpret_cast<uintptr_t>(p) % kChunk;
    const auto found = live_.find(chunk);
    if (found == live_.end()) return false;
    if (--found->second == 0) {
      live_.erase(found);
      if (chunk == newest_) newest_ = nullptr;
      munmap(chunk, kChunk);
    } else {
      char *first = aligned(p, kPage), *end = static_cast<char*>(p) + bytes;
      end -= reinterpret_cast<uintptr_t>(end) % kPage;
      if (first < end) madvise(first, size_t(end - first), MADV_DONTNEED);
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<char*, int> live_;  // blocks of each chunk
  char* newest_ = nullptr;
  size_t used_ = 0, few_ = 0;
};

// Never destroyed: storages may outlive the static destructors.
Chunks& chunks() {
  static Chunks* c = new Chunks;
  return *c;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kUsesChunks = false;  // the sanitizer watches blocks of malloc
#else
constexpr bool kUsesChunks = true;
#endif

bool fits_chunk(size_t bytes) { return kUsesChunks && bytes >= kSmallestInChunk; }

}  // namespace

void* new_block(size_t bytes) {
  if (bytes >= kLargePage) return map_pages(whole_pages(bytes), kLargePage);
  if (void* p = fits_chunk(bytes) ? chunks().take(bytes) : nullptr) return p;
  return std::aligned_alloc(kBlockAlignment, bytes);
}

void free_block(void* p, size_t bytes) {
  if (bytes >= kLargePage) {
    munmap(p, whole_pages(bytes));
  } else if (!fits_chunk(bytes) || !chunks().give_back(p, bytes)) {
    std::free(p);
  }
}

}  // namespace lutra
