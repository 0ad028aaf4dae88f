// Accounts of memory. See account.h.
#include "ops/core/account.h"

#include <deque>
#include <mutex>

#include "ops/core/error.h"
#include "ops/core/storage.h"

namespace lutra {

constinit thread_local MemoryAccount* installed_account = nullptr;

namespace {

// Never destroyed: tensors may outlive the static destructors.
struct Retired {
  std::mutex mutex;
  std::deque<MemoryAccount*> accounts;
};
Retired& retired() {
  static Retired* r = new Retired;
  return *r;
}

}  // namespace

void MemoryAccount::take(int64_t bytes) {
  if (limit.load(std::memory_order_relaxed) != kAny && !has_room(bytes)) {
    relieve_memory_pressure(size_t(bytes));
    if (!has_room(bytes)) {
      refused = true;
      throw Error(ErrorKind::kMemory, str(refusal(), "; tried to allocate ", bytes));
    }
  }
  tensors.fetch_add(bytes, std::memory_order_relaxed);
}

std::string MemoryAccount::refusal() const { return str("limits: ", limit.load(), " bytes are used up"); }

OwnAccount new_account() {
  Retired& r = retired();
  const std::lock_guard lock(r.mutex);
  if (!r.accounts.empty() && r.accounts.front()->tensors.load() == 0) {
    MemoryAccount* account = r.accounts.front();
    r.accounts.pop_front();
    account->heap = 0, account->limit = MemoryAccount::kAny, account->refused = false;
    return OwnAccount(account);
  }
  return OwnAccount(new MemoryAccount);
}

void RetireAccount::operator()(MemoryAccount* account) const {
  Retired& r = retired();
  const std::lock_guard lock(r.mutex);
  // Those that hold nothing come first.
  account->tensors.load() == 0 ? r.accounts.push_front(account) : r.accounts.push_back(account);
}

}  // namespace lutra
