// Changes of tensors that guards watch. A fact that guards have found about a tensor holds until the tensor changes,
// and need not be checked again before. In: changes of watched tensors and storages, reported by the code that makes
// them. Out: a number that every such change increments.
//
// Watched facts of a tensor: its sizes, strides, offset, dtype and memory, whether it requires grad, its history, a
// leaf's hooks, and that it has a userdata. Of a storage: where its bytes are.
// Invariants:
// 1. Code that changes one of these, of a tensor that others may hold, calls changed() afterwards. requires_grad does
//    so itself.
// 2. A tensor or storage that was watched once is watched until it dies. A watcher reads the number first, then
//    watches, then reads the facts.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lutra {

// Shared by all threads. A thread sees another thread's increments when it sees that thread's other writes.
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

// A flag that is a watched fact.
class WatchedFlag {
 public:
  WatchedFlag() = default;
  WatchedFlag(const WatchedFlag& o) : on_(o.on_) {}  // a copy is not watched
  operator bool() const { return on_; }              // NOLINT
  WatchedFlag& operator=(bool on) {
    if (on != on_) on_ = on, watched_.changed();
    return *this;
  }
  WatchedFlag& operator=(const WatchedFlag& o) { return *this = bool(o); }

  // Watch and report the whole object that the flag belongs to.
  void watch() const { watched_.watch(); }
  void changed() const { watched_.changed(); }

  // Returns the flag's place in this object, for guards that are machine code.
  static constexpr size_t offset() { return offsetof(WatchedFlag, on_); }

 private:
  bool on_ = false;
  Watched watched_;
};

}  // namespace lutra
