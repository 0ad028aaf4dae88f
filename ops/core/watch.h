// What guards have found of a tensor holds until the tensor changes, and need not be looked at before. In: changes of
// watched tensors and storages, by whoever makes them. Out: a number that every such change moves on.
//
// Watched are: sizes, strides, offset, dtype and memory of a tensor, whether it requires grad, its history and a leaf's
// hooks, that it has a userdata; of a storage, where its bytes are.
// Invariants:
// 1. Who changes one of these, of a tensor that others may have, calls changed() behind it. requires_grad does so
//    itself.
// 2. A tensor or a storage that was watched once is so until it dies: whoever looks reads the number first, then
//    watches, then looks.
#pragma once
#include <atomic>
#include <cstdint>

namespace lutra {

// Of all threads. One thread sees another's changes where it sees what they have written.
alignas(64) inline constinit std::atomic<uint64_t> watched_changes{1};

class Watched {
 public:
  void watch() const {
    if (!watched_.load(std::memory_order_relaxed)) watched_.store(true, std::memory_order_relaxed);
  }
  void changed() const {
    if (watched_.load(std::memory_order_relaxed)) watched_changes.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  mutable std::atomic<bool> watched_{false};
};

class WatchedFlag {
 public:
  WatchedFlag() = default;
  WatchedFlag(const WatchedFlag& o) : on_(o.on_) {}  // which nobody watches
  operator bool() const { return on_; }              // NOLINT
  WatchedFlag& operator=(bool on) {
    if (on != on_) on_ = on, watched.changed();
    return *this;
  }
  WatchedFlag& operator=(const WatchedFlag& o) { return *this = bool(o); }

 private:
  bool on_ = false;

 public:
  Watched watched;
};

}  // namespace lutra
