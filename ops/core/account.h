// What a Lua state holds: bytes of its tensors and of Lua's own heap, and how many it may hold.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lutra {

// Where a host wants its state's tensors on the CPU to lie. free may be called from any thread, also after the state
// was closed.
struct HostMemory {
  void* (*allocate)(void* arg, size_t bytes, size_t alignment) = nullptr;  // null: there is none
  void (*free)(void* arg, void* block, size_t bytes) = nullptr;
  void* arg = nullptr;
};

// Invariants: tensors may outlive their state, so an account is never freed, but used again once it holds nothing. What
// threads of the pool allocate, and memory of others, is on no account.
struct MemoryAccount {
  static constexpr int64_t kAny = INT64_MAX;

  std::atomic<int64_t> tensors{0};
  std::atomic<int64_t> heap{0};  // known while there is a limit
  std::atomic<int64_t> limit{kAny};
  std::atomic<bool> refused{false};  // since somebody set it to false
  HostMemory host;                   // set before the first tensor
  bool cleared = false;              // nothing that others have left in memory may be seen: `empty` gives zeros

  bool has_room(int64_t bytes) const {
    const int64_t held = tensors.load(std::memory_order_relaxed) + heap.load(std::memory_order_relaxed);
    return bytes <= limit.load(std::memory_order_relaxed) - held;
  }
  // Bytes of a tensor that is about to be made. Where there is no room garbage is collected, then it throws
  // Error(kMemory).
  void take(int64_t bytes);
  void give_back(int64_t bytes) { tensors.fetch_sub(bytes, std::memory_order_relaxed); }
  std::string refusal() const;  // "limits: N bytes are used up"
};

struct RetireAccount {
  void operator()(MemoryAccount* account) const;
};
using OwnAccount = std::unique_ptr<MemoryAccount, RetireAccount>;
OwnAccount new_account();

// Of the state that this thread runs; null: none.
extern constinit thread_local MemoryAccount* installed_account;

}  // namespace lutra
