// Allocates storages. Freed blocks are kept by size for reuse, so that loops do not fault in fresh pages each time.
// Invariants:
// 1. A block's bucket is a function of its size, so a cached block fits every request of its bucket.
// 2. The cache holds at most kCacheBytes. It is emptied before an allocation fails. The small blocks that threads keep
//    for themselves do not count: some hundred KB a thread.
#include "ops/core/storage.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/core/account.h"
#include "ops/core/block_memory.h"
#include "ops/core/error.h"
#include "ops/core/own_memory.h"

namespace lutra {

constinit thread_local bool own_memory_only = false;

namespace {

constexpr size_t kAlignment = kBlockAlignment;
constexpr size_t kCacheBytes = size_t(128) << 20;
constexpr size_t kLargestCached = size_t(32) << 20;

std::atomic<int64_t> live_bytes{0}, live_device_bytes{0}, smallest_device{0};

void count_bytes(const Storage& s, int64_t bytes) {
  (s.device.type == DeviceType::kCPU ? live_bytes : live_device_bytes).fetch_add(bytes, std::memory_order_relaxed);
}

std::atomic<bool (*)(size_t)> pressure_hook{nullptr};

// Rounds a size up to its bucket. There are eight buckets a power of two, so at most an eighth of a block is wasted.
size_t bucket_of(size_t n) {
  if (n <= 512) return (n + kAlignment - 1) / kAlignment * kAlignment;
  size_t step = std::bit_floor(n - 1) / 8;
  return (n + step - 1) / step * step;
}

// Returns the index of a bucket's list: multiples of the alignment up to 512, then eight lists a power of two.
constexpr size_t list_of(size_t bucket) {
  if (bucket <= 512) return bucket / kAlignment;
  size_t power = std::bit_floor(bucket - 1);
  return 8 + size_t(std::bit_width(power) - 10) * 8 + (bucket - power) / (power / 8);
}

constexpr size_t bucket_at(size_t list) {
  if (list <= 8) return list * kAlignment;
  const size_t power = size_t(512) << (list - 9) / 8;
  return power + ((list - 9) % 8 + 1) * (power / 8);
}

class BlockCache {
 public:
  void* take(size_t bucket) {
    if (bucket > kLargestCached) return nullptr;
    std::lock_guard lock(mutex_);
    std::vector<void*>& blocks = free_[list_of(bucket)];
    if (blocks.empty()) return nullptr;
    void* p = blocks.back();
    blocks.pop_back();
    bytes_ -= bucket;
    return p;
  }
  bool put(void* p, size_t bucket) {
    if (bucket > kLargestCached) return false;
    std::lock_guard lock(mutex_);
    if (bytes_ + bucket > kCacheBytes) return false;
    free_[list_of(bucket)].push_back(p);
    bytes_ += bucket;
    return true;
  }
  // Take or put several blocks of one small bucket at once. take_some returns how many it took.
  size_t take_some(void** to, size_t most, size_t bucket) {
    std::lock_guard lock(mutex_);
    std::vector<void*>& blocks = free_[list_of(bucket)];
    const size_t n = std::min(most, blocks.size());
    std::copy(blocks.end() - long(n), blocks.end(), to);
    blocks.resize(blocks.size() - n);
    bytes_ -= n * bucket;
    return n;
  }
  void put_some(void* const* from, size_t n, size_t bucket) {
    std::lock_guard lock(mutex_);
    for (; n > 0; n--, from++) {
      if (bytes_ + bucket > kCacheBytes) {
        free_block(*from, bucket);
        continue;
      }
      free_[list_of(bucket)].push_back(*from);
      bytes_ += bucket;
    }
  }
  void clear() {
    std::lock_guard lock(mutex_);
    for (std::vector<void*>& blocks : free_) {
      for (void* p : blocks) free_block(p, bucket_at(size_t(&blocks - free_.data())));
      blocks.clear();
    }
    bytes_ = 0;
  }

 private:
  std::mutex mutex_;
  std::array<std::vector<void*>, list_of(kLargestCached) + 1> free_;
  size_t bytes_ = 0;
};

// Never destroyed: storages may outlive the static destructors.
BlockCache& cache() {
  static BlockCache* c = new BlockCache;
  return *c;
}

// One thread's small blocks, in front of the cache that all threads share. Most of their allocations need no lock. A
// thread closes it when it ends, but may still give blocks back afterwards, so the class has no destructor.
class OwnBlocks {
 public:
  static constexpr size_t kLargest = 512;
  void close() {
    for (List& list : lists_) {
      cache().put_some(list.blocks, list.count, size_t(&list - lists_.data() + 1) * kAlignment);
      list.count = 0;
    }
    closed_ = true;
  }
  void* take(size_t bucket) {
    List& list = lists_[bucket / kAlignment - 1];
    if (closed_) return cache().take(bucket);
    if (list.count == 0) list.count = cache().take_some(list.blocks, kMost / 2, bucket);
    return list.count ? list.blocks[--list.count] : nullptr;
  }
  bool put(void* p, size_t bucket) {
    List& list = lists_[bucket / kAlignment - 1];
    if (closed_) return cache().put(p, bucket);
    if (list.count == kMost) {
      list.count = kMost / 2;
      cache().put_some(list.blocks + list.count, kMost - list.count, bucket);
    }
    list.blocks[list.count++] = p;
    return true;
  }

 private:
  static constexpr size_t kMost = 64;
  struct List {
    size_t count = 0;
    void* blocks[kMost] = {};
  };
  std::array<List, kLargest / kAlignment> lists_;
  bool closed_ = false;
};

static_assert(std::is_trivially_destructible_v<OwnBlocks>);

OwnBlocks& own_blocks() {
  static thread_local OwnBlocks own;
  struct Closer {
    ~Closer() { own.close(); }
  };
  static thread_local Closer closer;
  return own;
}

constexpr size_t kSurely = size_t(256) << 20;

void* take_kept(size_t bucket) {
  return bucket <= OwnBlocks::kLargest ? own_blocks().take(bucket) : cache().take(bucket);
}

bool keep_bytes(void* p, size_t bucket) {
  return bucket <= OwnBlocks::kLargest ? own_blocks().put(p, bucket) : cache().put(p, bucket);
}

void* take_bytes(size_t bucket) {
  if (void* p = take_kept(bucket)) return p;
  // A system that overcommits memory would kill the process at the first touch.
  if (bucket > kSurely && double(bucket) + double(live_bytes.load()) > double(memory_bytes())) return nullptr;
  return new_block(bucket);
}

void* allocate_bytes(size_t nbytes, size_t bucket) {
  if (nbytes > size_t(1) << 62)
    throw Error(ErrorKind::kMemory, str("out of memory: tried to allocate ", nbytes, " bytes"));
  if (void* p = take_bytes(bucket)) return p;
  cache().clear();
  if (void* p = take_bytes(bucket)) return p;
  if (relieve_memory_pressure(nbytes)) {
    cache().clear();
    if (void* p = take_bytes(bucket)) return p;
  }
  throw Error(ErrorKind::kMemory, str("out of memory: tried to allocate ", nbytes, " bytes"));
}

}  // namespace

size_t memory_bytes() {
  static const size_t bytes = [] {
    struct sysinfo about;
    if (sysinfo(&about) != 0) return SIZE_MAX;
    return (size_t(about.totalram) + size_t(about.totalswap)) * about.mem_unit;
  }();
  return bytes;
}

Storage::~Storage() { free(); }

void Storage::free() {
  if (freed || fake) return;
  freed = true;
  count_bytes(*this, -int64_t(nbytes));
  if (deleter) deleter(data);
  data = nullptr;
  watched.changed();
}

namespace {

const DeviceMemory* memories[kMaxDeviceTypes] = {};

const DeviceMemory& memory_of(Device device) {
  const DeviceMemory* memory = memories[size_t(device.type)];
  if (!memory) {
    fail("device '", to_string(device), "' is not available: this build of Lutra computes on the CPU only");
  }
  return *memory;
}

}  // namespace

void set_device_memory(DeviceType type, const DeviceMemory* memory) {
  LUTRA_CHECK(type != DeviceType::kCPU && size_t(type) < kMaxDeviceTypes);
  memories[size_t(type)] = memory;
}

void check_device(Device device) {
  if (device.type != DeviceType::kCPU) memory_of(device).check(device);
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes) {
  if (to_device.type == DeviceType::kCPU && from_device.type == DeviceType::kCPU) {
    if (nbytes) std::memmove(to, from, nbytes);
    return;
  }
  const Device device = to_device.type == DeviceType::kCPU ? from_device : to_device;
  memory_of(device).copy(to, to_device, from, from_device, nbytes);
}

namespace {

// Charges bytes to the account of the running state until a storage takes them over.
class Taken {
 public:
  explicit Taken(size_t bytes) : account_(installed_account), bytes_(int64_t(std::min(bytes, size_t(1) << 62))) {
    if (account_) account_->take(bytes_);
  }
  ~Taken() {
    if (account_) account_->give_back(bytes_);
  }
  Taken(const Taken&) = delete;
  MemoryAccount* pass() { return std::exchange(account_, nullptr); }

 private:
  MemoryAccount* account_;
  int64_t bytes_;
};

// Allocates a block by the host's allocator. Its account lives as long as it holds bytes, so the block goes back first.
Ref<Storage> allocate_of_host(size_t nbytes) {
  const size_t bytes = nbytes ? nbytes : 1;
  Taken taken(bytes);
  Ref<Storage> s = make_ref<Storage>();
  const HostMemory host = installed_account->host;
  void* block = bytes > size_t(1) << 62 ? nullptr : host.allocate(host.arg, bytes, kAlignment);
  if (!block && relieve_memory_pressure(nbytes)) block = host.allocate(host.arg, bytes, kAlignment);
  if (!block) {
    throw Error(ErrorKind::kMemory, str("out of memory: the host has no block of ", nbytes, " bytes"));
  }
  if (uintptr_t(block) % kAlignment != 0) {
    host.free(host.arg, block, bytes);
    fail("the host's allocator gave a block that is not aligned to ", kAlignment, " bytes");
  }
  s->data = block;
  s->nbytes = nbytes;
  s->deleter = [bytes, account = taken.pass()](void* p) {
    account->host.free(account->host.arg, p, bytes);
    account->give_back(int64_t(bytes));
  };
  count_bytes(*s, int64_t(nbytes));
  return s;
}

}  // namespace

Ref<Storage> allocate(size_t nbytes, Device device) {
  if (device.type != DeviceType::kCPU) {
    Ref<Storage> s = memory_of(device).allocate(nbytes, device);
    count_bytes(*s, int64_t(s->nbytes));
    return s;
  }
  if (installed_account && installed_account->host.allocate && !own_memory_only) return allocate_of_host(nbytes);
  // An empty tensor has an address too, because kernels may compute it.
  const size_t bucket = bucket_of(nbytes ? nbytes : 1);
  Taken taken(bucket);
  Ref<Storage> s = make_ref<Storage>();
  s->data = allocate_bytes(nbytes, bucket);
  s->nbytes = nbytes;
  s->device = device;
  // This capture is the largest that a std::function holds without allocating.
  s->deleter = [bucket, account = taken.pass()](void* p) {
    if (account) account->give_back(int64_t(bucket));
    if (!keep_bytes(p, bucket)) free_block(p, bucket);
  };
  count_bytes(*s, int64_t(nbytes));
  return s;
}

Ref<Storage> fake_storage(Device device) {
  Ref<Storage> s = make_ref<Storage>();
  s->device = device;
  s->fake = true;
  return s;
}

void count_storage(const Storage& storage) { count_bytes(storage, int64_t(storage.nbytes)); }
int64_t allocated_bytes() { return live_bytes.load(std::memory_order_relaxed); }
int64_t device_memory_bytes() { return smallest_device.load(std::memory_order_relaxed); }
void note_device_memory(int64_t bytes) {
  int64_t known = smallest_device.load();
  while ((known == 0 || bytes < known) && !smallest_device.compare_exchange_weak(known, bytes)) {
  }
}
int64_t allocated_device_bytes() { return live_device_bytes.load(std::memory_order_relaxed); }

void set_memory_pressure_hook(bool (*hook)(size_t nbytes)) { pressure_hook.store(hook); }

bool relieve_memory_pressure(size_t nbytes) {
  auto hook = pressure_hook.load();
  return hook && hook(nbytes);
}

}  // namespace lutra
