// Finds entries by key. Invariants: used_ is at most half of the slots. A chain of entries with one key has at most
// kChain entries (the oldest is dropped), so sizes whose guards fail at every call do not grow the table.
#include "jit/eager/table.h"

namespace lutra {
namespace {

constexpr int kChain = 16;

uint64_t hash_of(const EagerKey& key) {
  uint64_t h = key.size();
  for (uint64_t w : key) {
    const auto product = static_cast<unsigned __int128>(h ^ w ^ 0x9e3779b97f4a7c15u) * 0xe7037ed1a0b428dbu;
    h = uint64_t(product) ^ uint64_t(product >> 64);
  }
  return h;
}

bool same(const EagerKey& a, const EagerKey& b) {
  return a.size() == b.size() && std::memcmp(a.begin(), b.begin(), a.size() * sizeof(uint64_t)) == 0;
}

}  // namespace

bool EagerEntry::holds(const InputView* inputs, const double* scalars) {
  if (guards.guard_count() == 0) return true;
  guards.run(values.data(), inputs, scalars);
  return guards.guards_hold(values.data());
}

size_t EagerTable::slot(const EagerKey& key, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i] && !(slots_[i]->hash == hash && same(slots_[i]->key, key))) i = (i + 1) & mask;
  return i;
}

EagerEntry* EagerTable::find(const EagerKey& key, const InputView* inputs, const double* scalars) {
  for (EagerEntry* e = slots_[slot(key, hash_of(key))].get(); e; e = e->next.get()) {
    if (e->holds(inputs, scalars)) return e;
  }
  return nullptr;
}

EagerEntry* EagerTable::insert(std::unique_ptr<EagerEntry> entry) {
  if (used_ * 2 >= slots_.size()) {
    std::vector<std::unique_ptr<EagerEntry>> old(slots_.size() * 2);
    old.swap(slots_);
    for (auto& e : old) {
      if (e) slots_[slot(e->key, e->hash)] = std::move(e);
    }
  }
  entry->hash = hash_of(entry->key);
  std::unique_ptr<EagerEntry>& head = slots_[slot(entry->key, entry->hash)];
  if (!head) used_++;
  entry->next = std::move(head);
  head = std::move(entry);
  count_++;
  EagerEntry* last = head.get();
  for (int i = 1; i < kChain && last->next; i++) last = last->next.get();
  if (last->next) last->next = nullptr, count_--;
  return head.get();
}

void EagerTable::clear() { *this = EagerTable(); }

}  // namespace lutra
