// Allocates storages over blocks of a GPU's memory.
// Invariants (of a heap, under its mutex):
// 1. A segment is a list of blocks without gaps, by address. No two neighbours are both free.
// 2. Blocks of small segments (2 MB) serve requests up to 1 MB, those of large ones the rest. Free blocks are in `free`
//    of their kind, by size, then address.
// 3. The mutex is not held while the driver is called or Lua's garbage is collected.
// 4. Freeing a block needs no host memory: the block owns its node of the set of free blocks.
#include "ops/cuda/allocator.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <unordered_set>
#include <vector>

#include "ops/core/account.h"
#include "ops/cuda/copy.h"

namespace lutra::cuda {
namespace {

constexpr size_t kKB = 1024, kMB = kKB * kKB;
constexpr size_t kAlignment = 512;
constexpr size_t kMaxSmall = 1 * kMB, kSmallSegment = 2 * kMB;
constexpr size_t kMiddle = 10 * kMB, kMiddleSegment = 20 * kMB;
constexpr size_t kSegmentStep = 2 * kMB;

struct Heap;
struct Block;

struct BySize {
  bool operator()(const Block* a, const Block* b) const;
};
using FreeBlocks = std::set<Block*, BySize>;

struct Block {
  Heap* heap;
  DevicePtr at;
  size_t bytes;
  bool small, used;
  Block *before = nullptr, *after = nullptr;  // neighbours in its segment
  int64_t charged = 0;                        // while it is used: bytes charged to a state's account
  FreeBlocks::node_type place;                // its node of the set of free blocks, while it is not in there
};

bool BySize::operator()(const Block* a, const Block* b) const {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->at < b->at;
}

std::unique_ptr<Block> new_block(Heap& h, DevicePtr at, size_t bytes, bool small) {
  auto b = std::make_unique<Block>(Block{&h, at, bytes, small, false});
  FreeBlocks one = {b.get()};
  b->place = one.extract(one.begin());
  return b;
}

struct Heap {
  std::mutex mutex;
  FreeBlocks free[2];                   // large, small
  std::unordered_set<Block*> segments;  // the first block of each, which outlives its neighbours
  size_t used = 0;                      // number of used blocks
  MemoryStats stats;
};

struct Heaps {
  std::array<std::atomic<Heap*>, 128> of{};
  std::mutex mutex;
};

// Never destroyed: storages may outlive the static destructors.
Heaps& heaps() {
  static Heaps* h = new Heaps;
  return *h;
}

Heap* find_heap(Device device) {
  return device.index < 0 ? nullptr : heaps().of[size_t(device.index)].load(std::memory_order_acquire);
}

Heap& heap_of(const Context& c) {
  std::atomic<Heap*>& slot = heaps().of[size_t(c.index)];
  if (Heap* h = slot.load(std::memory_order_acquire)) return *h;
  std::lock_guard lock(heaps().mutex);
  if (!slot) slot = new Heap;
  return *slot;
}

size_t rounded(size_t n, size_t step) { return (n + step - 1) / step * step; }

// Takes the best fitting free block. The rest becomes a free block, unless it is too small for its kind.
Block* take_free(Heap& h, size_t bytes, bool small) {
  Block wanted{&h, 0, bytes, small, false};
  auto it = h.free[small].lower_bound(&wanted);
  if (it == h.free[small].end()) return nullptr;
  Block* b = *it;
  const size_t rest = b->bytes - bytes;
  std::unique_ptr<Block> left_over;
  if (small ? rest >= kAlignment : rest > kMaxSmall) left_over = new_block(h, b->at + bytes, rest, small);
  b->place = h.free[small].extract(it);
  if (Block* tail = left_over.release()) {
    tail->before = b, tail->after = b->after;
    if (b->after) b->after->before = tail;
    b->after = tail;
    b->bytes = bytes;
    h.free[small].insert(std::move(tail->place));
  }
  b->used = true;
  h.used++;
  h.stats.allocations++;
  h.stats.allocated += int64_t(b->bytes);
  h.stats.max_allocated = std::max(h.stats.max_allocated, h.stats.allocated);
  return b;
}

// Merges b with the free block after it, which it deletes.
void merge_after(Heap& h, Block* b) {
  Block* gone = b->after;
  h.free[gone->small].erase(gone);
  b->bytes += gone->bytes;
  b->after = gone->after;
  if (b->after) b->after->before = b;
  delete gone;
}

void give_back(Block* b) {
  Heap& h = *b->heap;
  std::lock_guard lock(h.mutex);
  h.stats.allocated -= int64_t(b->bytes);
  h.used--;
  b->used = false;
  if (b->after && !b->after->used) merge_after(h, b);
  if (b->before && !b->before->used) {
    Block* first = b->before;
    first->place = h.free[first->small].extract(first);
    // merge_after erases b from the free blocks. It is not among them yet, so that does nothing.
    merge_after(h, first);
    b = first;
  }
  h.free[b->small].insert(std::move(b->place));
}

// Adds a segment of the driver as one free block. Returns false if the GPU has no such memory.
bool grow(Heap& h, size_t bytes, bool small) {
  const size_t whole = small ? kSmallSegment : bytes < kMiddle ? kMiddleSegment : rounded(bytes, kSegmentStep);
  std::unique_ptr<Block> made = new_block(h, 0, whole, small);
  {
    std::lock_guard lock(h.mutex);
    h.segments.insert(made.get());
  }
  const Result result = driver()->memory_allocate(&made->at, whole);
  std::lock_guard lock(h.mutex);
  if (result != kSuccess) h.segments.erase(made.get());
  if (result == kOutOfMemory) return false;
  check(result, "memory_allocate()");
  h.free[small].insert(std::move(made->place));
  made.release();
  h.stats.segments++;
  h.stats.reserved += int64_t(whole);
  h.stats.max_reserved = std::max(h.stats.max_reserved, h.stats.reserved);
  return true;
}

// Gives whole free segments back to the driver. A lost context's memory is gone already.
void release_segments(Heap& h) {
  std::vector<DevicePtr> whole;
  {
    std::lock_guard lock(h.mutex);
    whole.reserve(h.segments.size());
    for (auto& blocks : h.free) {
      for (auto it = blocks.begin(); it != blocks.end();) {
        Block* b = *it;
        if (b->before || b->after) {
          ++it;
          continue;
        }
        it = blocks.erase(it);
        h.segments.erase(b);
        whole.push_back(b->at);
        h.stats.segments--;
        h.stats.reserved -= int64_t(b->bytes);
        delete b;
      }
    }
  }
  Result failed = kSuccess;
  for (DevicePtr at : whole) {
    const Result result = driver()->memory_free(at);
    if (result != kSuccess) failed = result;
  }
  check(failed, "memory_free()");
}

void (*release_idle)() = nullptr;

struct GiveBack {
  Block* block;
  MemoryAccount* account;  // of the state that has the block; null: none
  void operator()(void*) const {
    if (account) account->give_back(block->charged);
    give_back(block);
  }
};

void forget_heaps() {
  if (release_idle) release_idle();
  for (auto& slot : heaps().of) {
    Heap* h = slot.exchange(nullptr);
    if (!h) continue;
    for (auto& blocks : h->free) {
      for (Block* b : blocks) {
        if (!b->before && !b->after) driver()->memory_free(b->at), delete b;
      }
    }
    // A heap with used blocks stays, because they refer to it.
    if (!h->used) delete h;
  }
}
[[maybe_unused]] const bool registered_forget = (on_set_driver(forget_heaps), true);

// Returns "  3 of 10.00 MB", with the sizes that hold the most memory first.
std::string largest_text(Heap& h) {
  std::map<size_t, size_t> count;
  {
    std::lock_guard lock(h.mutex);
    for (const Block* b : h.segments) {
      for (; b; b = b->after) {
        if (b->used) count[b->bytes]++;
      }
    }
  }
  std::vector<std::pair<size_t, size_t>> rows(count.begin(), count.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.first * a.second != b.first * b.second ? a.first * a.second > b.first * b.second : a.first > b.first;
  });
  std::string text;
  for (size_t i = 0; i < rows.size() && i < 5; i++) {
    text += (i ? ", " : "") + str(rows[i].second, " of ", bytes_text(rows[i].first));
  }
  return text.empty() ? "none" : text;
}

[[noreturn]] void raise_out_of_memory(Context& c, Heap& h, size_t nbytes) {
  MemoryStats stats;
  {
    std::lock_guard lock(h.mutex);
    h.stats.out_of_memory++;
    stats = h.stats;
  }
  size_t free_bytes = 0, total = c.total_bytes;
  if (driver()->memory_info(&free_bytes, &total) != kSuccess) free_bytes = 0;
  throw Error(ErrorKind::kMemory,
              str("out of memory on cuda:", c.index, ": tried to allocate ", bytes_text(nbytes),                //
                  "\n  in tensors    ", bytes_text(size_t(stats.allocated)),                                    //
                  "\n  held          ", bytes_text(size_t(stats.reserved)), " (in tensors or kept for reuse)",  //
                  "\n  free          ", bytes_text(free_bytes), " of the GPU's ", bytes_text(total),            //
                  "\n  largest       ", largest_text(h)));
}

Block* take(Heap& h, size_t bytes, bool small) {
  std::lock_guard lock(h.mutex);
  return take_free(h, bytes, small);
}

// Tries again if another thread takes the memory that was just freed.
Block* take_or_grow(Heap& h, size_t bytes, bool small) {
  for (;;) {
    if (Block* b = take(h, bytes, small)) return b;
    if (!grow(h, bytes, small)) return nullptr;
  }
}

Block* find_block(Context& c, Heap& h, size_t nbytes) {
  if (nbytes > size_t(1) << 62) raise_out_of_memory(c, h, nbytes);
  const size_t bytes = rounded(std::max(nbytes, size_t(1)), kAlignment);
  const bool small = bytes <= kMaxSmall;
  if (Block* b = take_or_grow(h, bytes, small)) return b;
  {
    std::lock_guard lock(h.mutex);
    h.stats.retries++;
  }
  relieve_memory_pressure(nbytes);
  if (release_idle) release_idle();
  if (Block* b = take(h, bytes, small)) return b;
  release_segments(h);
  if (Block* b = take_or_grow(h, bytes, small)) return b;
  raise_out_of_memory(c, h, nbytes);
}

const DeviceMemory kMemory = {allocate, copy, [](Device device) { context(device); }};
[[maybe_unused]] const bool memory_is_known = (set_device_memory(DeviceType::kCUDA, &kMemory), true);

}  // namespace

namespace {
thread_local std::vector<Ref<Storage>>* kept = nullptr;
}

KeepAllocations::KeepAllocations(std::vector<Ref<Storage>>& list) : before_(kept) { kept = &list; }
KeepAllocations::~KeepAllocations() { kept = before_; }

Ref<Storage> allocate(size_t nbytes, Device device) {
  Context& c = context(device);
  Ref<Storage> s = make_ref<Storage>();
  s->device = device;
  MemoryAccount* account = installed_account;
  const int64_t charged = int64_t(std::min(nbytes, size_t(1) << 62));
  if (account) account->take(charged);
  Block* b = nullptr;
  try {
    b = find_block(c, heap_of(c), nbytes);
  } catch (...) {
    if (account) account->give_back(charged);
    throw;
  }
  b->charged = charged;
  s->data = reinterpret_cast<void*>(uintptr_t(b->at));
  s->nbytes = nbytes;
  s->deleter = GiveBack{b, account};
  if (kept) kept->push_back(s);
  return s;
}

void set_idle_memory(void (*release)()) { release_idle = release; }

bool is_block(const Storage& storage) { return storage.deleter.target<GiveBack>() != nullptr; }

void empty_cache(Device device) {
  Heap* h = find_heap(device);
  if (!h) return;
  if (release_idle) release_idle();
  context(device);
  release_segments(*h);
}

MemoryStats memory_stats(Device device) {
  Heap* h = find_heap(device);
  if (!h) return {};
  std::lock_guard lock(h->mutex);
  return h->stats;
}

void reset_peak_stats(Device device) {
  Heap* h = find_heap(device);
  if (!h) return;
  std::lock_guard lock(h->mutex);
  h->stats.max_allocated = h->stats.allocated;
  h->stats.max_reserved = h->stats.reserved;
}

std::string bytes_text(size_t bytes) {
  constexpr const char* kUnits[] = {"KB", "MB", "GB", "TB"};
  if (bytes < kKB) return str(bytes, " bytes");
  double value = double(bytes) / kKB;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, unit++;
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f %s", value, kUnits[unit]);
  return text;
}

std::string memory_summary(Device device) {
  const MemoryStats s = memory_stats(device);
  Heap* h = find_heap(device);
  const auto row = [](const char* what, int64_t now, int64_t most) {
    return str("\n  ", what, bytes_text(size_t(now)), ", at most ", bytes_text(size_t(most)));
  };
  return to_string(device) + row("in tensors    ", s.allocated, s.max_allocated) +
         row("held          ", s.reserved, s.max_reserved) +
         str("\n  segments      ", s.segments, "\n  allocations   ", s.allocations, " (", s.retries, " after a retry, ",
             s.out_of_memory, " failed)\n  largest       ", h ? largest_text(*h) : "none");
}

}  // namespace lutra::cuda
