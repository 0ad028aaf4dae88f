// Copies between addresses on the devices' streams.
// Invariants:
// 1. A device's two pinned buffers are used in turn. An event tells when the device is done with each. Its mutex is
//    held while they are used.
// 2. A copy between GPUs runs after all earlier work of both, and before all later work of either.
#include "ops/cuda/copy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include "ops/cuda/event.h"
#include "ops/cuda/faults.h"

namespace lutra::cuda {
namespace {

constexpr unsigned kPortable = 1;
constexpr Result kPeerAccessAlready = 704, kTooManyPeers = 711;

struct Piece {
  void* bytes = nullptr;
  EventHandle done = nullptr;
  bool busy = false;  // done was recorded, and nobody has waited for it
};

struct Staging {
  std::mutex mutex;
  std::array<Piece, 2> pieces;
  size_t next = 0;
};

struct Stagings {
  std::mutex mutex;
  std::array<Staging*, 128> of{};
};

Stagings& stagings() {
  static Stagings* s = new Stagings;
  return *s;
}

void forget_staging() {
  Stagings& s = stagings();
  std::lock_guard lock(s.mutex);
  for (Staging*& staging : s.of) {
    if (!staging) continue;
    for (Piece& p : staging->pieces) {
      if (p.bytes) driver()->host_free(p.bytes);
      if (p.done) driver()->event_destroy(p.done);
    }
    delete staging;
    staging = nullptr;
  }
}
[[maybe_unused]] const bool staging_is_forgotten = (on_set_driver(forget_staging), true);

Staging& staging_of(const Context& c) {
  Stagings& s = stagings();
  std::lock_guard lock(s.mutex);
  Staging*& staging = s.of[size_t(c.index)];
  if (!staging) staging = new Staging;
  return *staging;
}

// Returns the buffer whose turn it is, free to be written.
Piece& take(Staging& s) {
  Piece& p = s.pieces[s.next];
  s.next = 1 - s.next;
  if (!p.bytes) LUTRA_CUDA(host_allocate(&p.bytes, kStagingBytes, kPortable));
  if (!p.done) LUTRA_CUDA(event_create(&p.done, kNoTiming));
  if (p.busy) LUTRA_CUDA(event_synchronize(p.done));
  p.busy = false;
  return p;
}

void mark(Context& c, Piece& p) {
  LUTRA_CUDA(event_record(p.done, c.stream));
  p.busy = true;
}

// -- pinned storages: used ones by address, free ones by size, which is a power of two

struct Pinned {
  std::mutex mutex;
  std::map<uintptr_t, size_t> used;
  std::multimap<size_t, void*> free;
};

Pinned& pinned() {
  static Pinned* p = new Pinned;
  return *p;
}

void forget_pinned() {
  Pinned& p = pinned();
  std::lock_guard lock(p.mutex);
  for (auto [bytes, at] : p.free) driver()->host_free(at);
  p.free.clear();
}
[[maybe_unused]] const bool registered_pinned = (on_set_driver(forget_pinned), true);

DevicePtr address(const void* p, size_t offset = 0) { return DevicePtr(reinterpret_cast<uintptr_t>(p)) + offset; }

void to_device(Context& c, void* to, const char* from, size_t nbytes) {
  Staging& s = staging_of(c);
  std::lock_guard lock(s.mutex);
  for (size_t at = 0; at < nbytes; at += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, nbytes - at);
    Piece& p = take(s);
    std::memcpy(p.bytes, from + at, n);
    LUTRA_CUDA(copy_to_device(address(to, at), p.bytes, n, c.stream));
    mark(c, p);
  }
}

// Copies pinned memory directly. The host waits.
void directly(Context& c, void* to, const void* from, size_t nbytes, bool into) {
  Staging& s = staging_of(c);
  std::lock_guard lock(s.mutex);
  Piece& p = take(s);
  if (into) {
    LUTRA_CUDA(copy_to_device(address(to), from, nbytes, c.stream));
  } else {
    LUTRA_CUDA(copy_to_host(to, address(from), nbytes, c.stream));
  }
  mark(c, p);
  wait_for_loops(c);
  LUTRA_CUDA(event_synchronize(p.done));
  p.busy = false;
  if (!into) raise_fault(c);
}

// Empties one buffer while the device fills the other.
void to_host(Context& c, char* to, const void* from, size_t nbytes) {
  Staging& s = staging_of(c);
  std::lock_guard lock(s.mutex);
  const size_t removed = removed_fault_sites();
  struct Filled {
    Piece* piece = nullptr;
    size_t at = 0, n = 0;
  } before;
  const auto empty = [&] {
    if (!before.piece) return;
    wait_for_loops(c);
    LUTRA_CUDA(event_synchronize(before.piece->done));
    before.piece->busy = false;
    std::memcpy(to + before.at, before.piece->bytes, before.n);
  };
  for (size_t at = 0; at < nbytes; at += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, nbytes - at);
    Piece& p = take(s);
    LUTRA_CUDA(copy_to_host(p.bytes, address(from, at), n, c.stream));
    mark(c, p);
    empty();
    before = {&p, at, n};
  }
  empty();
  raise_fault(c);
  forget_fault_sites(c, removed);
}

// Owns an event during a copy.
struct Mark {
  EventHandle handle = nullptr;
  explicit Mark(Context& c) {
    LUTRA_CUDA(event_create(&handle, kNoTiming));
    record(c);
  }
  ~Mark() { driver()->event_destroy(handle); }
  Mark(const Mark&) = delete;

 private:
  void record(Context& c) {
    const Result result = driver()->event_record(handle, c.stream);
    if (result == kSuccess) return;
    driver()->event_destroy(handle);
    check(result, "event_record()");
  }
};

// Lets the target, which is current, read the source's memory directly, if the machine can. Otherwise the driver copies
// through the host. The mutex is not held during driver calls, because their failures lock it.
void reach(Context& target, const Context& source) {
  {
    const std::lock_guard lock(target.mutex);
    if (std::count(target.peers.begin(), target.peers.end(), source.index)) return;
  }
  int can = 0;
  LUTRA_CUDA(can_access_peer(&can, target.driver_index, source.driver_index));
  const Result result = can ? driver()->enable_peer_access(source.handle, 0) : kSuccess;
  if (result != kPeerAccessAlready && result != kTooManyPeers) check(result, "enable_peer_access()");
  const std::lock_guard lock(target.mutex);
  target.peers.push_back(source.index);
}

void between(void* to, Device to_device, const void* from, Device from_device, size_t nbytes) {
  Context& source = context(from_device);
  const Mark written(source);
  Context& target = context(to_device);
  reach(target, source);
  LUTRA_CUDA(stream_wait_event(target.stream, written.handle, 0));
  LUTRA_CUDA(copy_async(address(to), address(from), nbytes, target.stream));
  const Mark read(target);
  context(from_device);
  LUTRA_CUDA(stream_wait_event(source.stream, read.handle, 0));
}

}  // namespace

Ref<Storage> allocate_pinned(size_t nbytes) {
  context({DeviceType::kCUDA, int8_t(current_cuda_index())});
  const size_t bytes = std::bit_ceil(std::max(nbytes, size_t(4096)));
  Ref<Storage> s = make_ref<Storage>();
  Pinned& p = pinned();
  std::unique_lock lock(p.mutex);
  if (auto it = p.free.find(bytes); it != p.free.end()) {
    s->data = it->second;
    p.free.erase(it);
  } else {
    lock.unlock();
    LUTRA_CUDA(host_allocate(&s->data, bytes, kPortable));
    lock.lock();
  }
  p.used[uintptr_t(s->data)] = bytes;
  lock.unlock();
  s->nbytes = nbytes;
  s->deleter = [bytes](void* at) {
    Pinned& p = pinned();
    std::lock_guard lock(p.mutex);
    p.used.erase(uintptr_t(at));
    p.free.emplace(bytes, at);
  };
  count_storage(*s);
  return s;
}

bool is_pinned(const void* data) {
  Pinned& p = pinned();
  std::lock_guard lock(p.mutex);
  auto it = p.used.upper_bound(uintptr_t(data));
  if (it == p.used.begin()) return false;
  --it;
  return uintptr_t(data) < it->first + it->second;
}

void copy(void* to, Device to_device, const void* from, Device from_device, size_t nbytes) {
  const bool into = to_device.type == DeviceType::kCUDA, out_of = from_device.type == DeviceType::kCUDA;
  LUTRA_CHECK(into || out_of);
  if (nbytes == 0) return;
  if (into && out_of && to_device.index != from_device.index) {
    return between(to, to_device, from, from_device, nbytes);
  }
  Context& c = context(into ? to_device : from_device);
  if (into && out_of) {
    LUTRA_CUDA(copy_device(address(to), address(from), nbytes, c.stream));
  } else if (is_pinned(into ? from : to)) {
    directly(c, to, from, nbytes, into);
  } else if (into) {
    cuda::to_device(c, to, static_cast<const char*>(from), nbytes);
  } else {
    to_host(c, static_cast<char*>(to), from, nbytes);
  }
}

}  // namespace lutra::cuda
