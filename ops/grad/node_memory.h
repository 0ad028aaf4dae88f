// What nodes of the tape take, and how they die.
#pragma once
#include <new>
#include <utility>
#include <vector>

#include "ops/core/account.h"
#include "ops/grad/tape.h"

namespace lutra {

// Lets go of the node. Where one holder is left, that may be the result itself, whose hooks' keepers are told.
inline void leave(Ref<GradNode> node) {
  if (node->hooks.empty() || node->refs.load(std::memory_order_acquire) != 2) return;
  for (const auto& [result, hook] : node->hooks) {
    if (hook.keeper) hook.keeper->graph_leads_here(false);
  }
}

// Nodes die one by one, not recursively: a chain of a million is no deep stack. Destructors come here: where there is
// no memory for the list a node dies at once.
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

// Bytes of a node on the account of the state that made it, as long as the node lives.
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
