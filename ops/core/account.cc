// Accounts of memory. See account.h.
#include "ops/core/account.h"

#include <mutex>

#include "ops/core/error.h"
#include "ops/core/storage.h"

namespace lutra {

constinit thread_local MemoryAccount* installed_account = nullptr;

namespace {

// The type that new_account allocates. It links itself into the list of retired accounts, because a destructor retires
// an account and must not need memory.
struct Listed : MemoryAccount {
  Listed* next = nullptr;
};

// Never destroyed: tensors may outlive the static destructors.
struct Retired {
  std::mutex mutex;
  Listed* first = nullptr;
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
  for (Listed** at = &r.first; *at; at = &(*at)->next) {
    Listed* account = *at;
    if (account->tensors.load() != 0) continue;
    *at = account->next;
    account->heap = 0, account->limit = MemoryAccount::kAny, account->refused = false, account->host = {};
    account->cleared = false;
    return OwnAccount(account);
  }
  return OwnAccount(new Listed);
}

void RetireAccount::operator()(MemoryAccount* account) const {
  Retired& r = retired();
  const std::lock_guard lock(r.mutex);
  auto* listed = static_cast<Listed*>(account);
  listed->next = r.first;
  r.first = listed;
}

}  // namespace lutra
