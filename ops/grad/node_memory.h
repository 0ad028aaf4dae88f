// Counts the memory of the tape's nodes and destroys nodes without recursion.
#pragma once
#include <new>
#include <utility>
#include <vector>

#include "ops/core/account.h"
#include "ops/grad/tape.h"

namespace lutra {

// Drops a reference to the node. If one other holder is left, it may be the node's own result, so the keepers of the
// hooks are told that no graph leads there.
inline void leave(Ref<GradNode> node) {
  if (node->hooks.empty() || node->refs.load(std::memory_order_acquire) != 2) return;
  for (const auto& [result, hook] : node->hooks) {
    if (hook.keeper) hook.keeper->graph_leads_here(false);
  }
}

// Destroys nodes one by one, not recursively, so that a chain of a million nodes needs no deep stack. Destructors call
// it. If there is no memory for the list, the node dies at once.
inline void bury(Ref<GradNode> node) {
  static thread_local std::vector<Ref<GradNode>>* graves = nullptr;
  if (!node) return;
  if (graves) {
    try {
      graves->push_back(std::move(node));
    } catch (const std::bad_alloc&) {
    }
    return;
  }
  std::vector<Ref<GradNode>> list;
  graves = &list;
  leave(std::move(node));
  while (!list.empty()) {
    Ref<GradNode> last = std::move(list.back());
    list.pop_back();
    leave(std::move(last));
  }
  graves = nullptr;
}

// Charges the bytes of a node to the account of the state that made it, while the node lives.
class NodeBytes {
 public:
  NodeBytes() = default;
  NodeBytes(const NodeBytes& o) { add(o.bytes_); }
  NodeBytes& operator=(const NodeBytes&) = delete;
  ~NodeBytes() {
    if (account_) account_->give_back(bytes_);
  }
  void add(int64_t bytes) {
    if (!account_) account_ = installed_account;
    if (!account_) return;
    account_->take(bytes);
    bytes_ += bytes;
  }

 private:
  MemoryAccount* account_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace lutra
