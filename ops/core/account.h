// The memory account of a Lua state: the bytes of its tensors and of Lua's own heap, and the limit on their sum.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lutra {

// The host's allocator for its state's tensors on the CPU. Any thread may call `free`, also after the state was closed.
struct HostMemory {
  void* (*allocate)(void* arg, size_t bytes, size_t alignment) = nullptr;  // null: the host has no allocator
  void (*free)(void* arg, void* block, size_t bytes) = nullptr;
  void* arg = nullptr;
};

// Invariants: tensors may outlive their state, so an account is never freed. A new state uses it again when its tensors
// hold no bytes. Allocations by threads of the pool and foreign memory are on no account.
struct MemoryAccount {
  static constexpr int64_t kAny = INT64_MAX;

  std::atomic<int64_t> tensors{0};
  std::atomic<int64_t> heap{0};  // only kept up to date while there is a limit
  std::atomic<int64_t> limit{kAny};
  std::atomic<bool> refused{false};  // set when `take` refuses; the reader sets it back to false
  HostMemory host;                   // set before the first tensor
  bool cleared = false;              // the state must not see what others left in memory, so `empty` gives zeros

  bool has_room(int64_t bytes) const {
    const int64_t held = tensors.load(std::memory_order_relaxed) + heap.load(std::memory_order_relaxed);
    return bytes <= limit.load(std::memory_order_relaxed) - held;
  }
  // Adds the bytes of a tensor that is about to be allocated. If there is no room, it collects garbage first. If there
  // is still no room, it throws Error(kMemory).
  void take(int64_t bytes);
  void give_back(int64_t bytes) { tensors.fetch_sub(bytes, std::memory_order_relaxed); }
  std::string refusal() const;  // "limits: N bytes are used up"
};

struct RetireAccount {
  void operator()(MemoryAccount* account) const;
};
using OwnAccount = std::unique_ptr<MemoryAccount, RetireAccount>;
OwnAccount new_account();

// The account of the state that this thread runs, or null.
extern constinit thread_local MemoryAccount* installed_account;

}  // namespace lutra
