// Greedy fusion: along every edge in program order two groups become one where no third lies between them and the
// kernel of both is a good one; then groups over the same loops that read the same memory.
#include "jit/schedule/fuse.h"

#include <algorithm>
#include <queue>
#include <set>

namespace lutra {
namespace {

// Beyond this many pairs of unconnected groups are not tried.
constexpr int kMaxPairs = 400;

using Bits = std::vector<uint64_t>;
bool test(const Bits& b, int32_t i) { return b[size_t(i) / 64] >> (i % 64) & 1; }
void set(Bits& b, int32_t i) { b[size_t(i) / 64] |= uint64_t(1) << (i % 64); }
void clear(Bits& b, int32_t i) { b[size_t(i) / 64] &= ~(uint64_t(1) << (i % 64)); }
void join(Bits& b, const Bits& o) {
  for (size_t i = 0; i < b.size(); i++) b[i] |= o[i];
}

class Fuser {
 public:
  explicit Fuser(Units& units) : units_(units) {
    int32_t n = units.size();
    readers_.resize(size_t(n));
    for (int32_t u = 0; u < n; u++) {
      group_of_.push_back(u);
      groups_.push_back({u});
      versions_.push_back(0);
      before_.emplace_back(size_t(n + 63) / 64, 0);
      if (units[u].inlined) continue;
      for (int32_t r : units[u].reads) readers_[size_t(r)].push_back(u), depend(u, r);
      for (int32_t r : units[u].after) depend(u, r);
    }
  }

  void along_edges() {
    for (int32_t u = 0; u < units_.size(); u++) {
      if (units_[u].inlined) continue;
      for (int32_t r : units_[u].reads) try_merge(group_of_[size_t(r)], group_of_[size_t(u)]);
    }
  }

  void side_by_side() {
    int pairs = 0;
    for (int32_t a = 0; a < units_.size(); a++) {
      for (int32_t b = a + 1; b < units_.size() && pairs < kMaxPairs; b++) {
        if (groups_[size_t(a)].empty() || groups_[size_t(b)].empty() || !share(a, b)) continue;
        pairs++;
        try_merge(a, b);
      }
    }
  }

  std::vector<int32_t> roots(const std::vector<int32_t>& members) const {
    std::vector<int32_t> out;
    for (int32_t u : members) {
      // What nothing reads is made all the same: it may fail.
      bool root = units_[u].needs_memory || units_[u].is_copy() || readers_[size_t(u)].empty();
      for (int32_t r : readers_[size_t(u)]) root |= !std::binary_search(members.begin(), members.end(), r);
      if (root || units_[u].alone()) out.push_back(u);
    }
    return out;
  }

  std::vector<Group> ordered() const {
    std::vector<Group> out;
    using Item = std::pair<int32_t, int32_t>;  // when it is due, group
    std::priority_queue<Item, std::vector<Item>, std::greater<Item>> ready;
    std::vector<int> waits(groups_.size(), 0);
    std::vector<std::set<int32_t>> next(groups_.size());
    auto edge = [&](int32_t from, int32_t to) {
      int32_t a = group_of_[size_t(from)], b = group_of_[size_t(to)];
      if (a != b && next[size_t(a)].insert(b).second) waits[size_t(b)]++;
    };
    for (int32_t u = 0; u < units_.size(); u++) {
      if (units_[u].inlined) continue;
      for (int32_t r : units_[u].reads) edge(r, u);
      for (int32_t r : units_[u].after) edge(r, u);
    }
    size_t live = 0;
    for (int32_t g = 0; g < int32_t(groups_.size()); g++) {
      if (groups_[size_t(g)].empty() || units_[groups_[size_t(g)][0]].inlined) continue;
      live++;
      if (!waits[size_t(g)]) ready.push({due(g), g});
    }
    while (!ready.empty()) {
      int32_t g = ready.top().second;
      ready.pop();
      out.push_back({groups_[size_t(g)], roots(groups_[size_t(g)])});
      for (int32_t n : next[size_t(g)]) {
        if (--waits[size_t(n)] == 0) ready.push({due(n), n});
      }
    }
    LUTRA_CHECK(out.size() == live, "groups form a cycle");
    return out;
  }

 private:
  void depend(int32_t u, int32_t on) {
    set(before_[size_t(u)], on);
    join(before_[size_t(u)], before_[size_t(on)]);
  }

  bool share(int32_t a, int32_t b) const {
    for (int32_t u : groups_[size_t(a)]) {
      for (int32_t v : groups_[size_t(b)]) {
        if (units_[u].alone() || units_[v].alone() || units_[u].inlined || units_[v].inlined) return false;
        for (int32_t r : units_[u].reads) {
          if (std::count(units_[v].reads.begin(), units_[v].reads.end(), r)) return true;
        }
        for (int32_t i : units_[u].inputs) {
          if (std::count(units_[v].inputs.begin(), units_[v].inputs.end(), i)) return true;
        }
      }
    }
    return false;
  }

  // Whether a group other than a and b runs after a and before b.
  bool between(int32_t a, int32_t b) const {
    if (!test(before_[size_t(b)], a)) return false;
    for (int32_t k = 0; k < int32_t(groups_.size()); k++) {
      if (k != a && k != b && test(before_[size_t(b)], k) && test(before_[size_t(k)], a)) return true;
    }
    return false;
  }

  // When a group runs among those that can: when its last unit is due, but one that ends in writes to inputs, which are
  // the last units of all, with its first: what it reads is then not held until the end.
  int32_t due(int32_t g) const {
    const auto& units = groups_[size_t(g)];
    bool writes = std::any_of(units.begin(), units.end(), [&](int32_t u) { return units_[u].is_copy(); });
    return writes ? units.front() : units.back();
  }

  void try_merge(int32_t a, int32_t b) {
    check_interrupt();
    if (a == b || units_[groups_[size_t(a)][0]].alone() || units_[groups_[size_t(b)][0]].alone()) return;
    std::pair<int64_t, int64_t> key(int64_t(a) << 32 | versions_[size_t(a)], int64_t(b) << 32 | versions_[size_t(b)]);
    if (!refused_.insert(key).second || between(a, b) || between(b, a)) return;
    std::vector<int32_t> both;
    std::merge(groups_[size_t(a)].begin(), groups_[size_t(a)].end(), groups_[size_t(b)].begin(),
               groups_[size_t(b)].end(), std::back_inserter(both));
    if (!GroupKernel(units_, both, roots(both)).build().empty()) return;
    for (int32_t u : groups_[size_t(b)]) group_of_[size_t(u)] = a;
    groups_[size_t(a)] = std::move(both);
    groups_[size_t(b)].clear();
    versions_[size_t(a)]++;
    Bits& merged = before_[size_t(a)];
    join(merged, before_[size_t(b)]);
    clear(merged, a), clear(merged, b);
    for (int32_t k = 0; k < int32_t(groups_.size()); k++) {
      Bits& other = before_[size_t(k)];
      if (k == a || !(test(other, a) || test(other, b))) continue;
      clear(other, b);
      set(other, a);
      join(other, merged);
    }
  }

  Units& units_;
  std::vector<std::vector<int32_t>> readers_;
  std::vector<int32_t> group_of_;
  std::vector<std::vector<int32_t>> groups_;
  std::vector<int32_t> versions_;
  std::vector<Bits> before_;  // by group: all that run before it
  std::set<std::pair<int64_t, int64_t>> refused_;
};

// A unit that cannot be a kernel by itself: a reduction whose order needs its operand in memory, a copy over what it
// reads elsewhere.
void settle(Units& units) {
  for (int32_t u = 0; u < units.size(); u++) {
    if (units[u].inlined || units[u].alone()) continue;
    std::vector<int32_t> self{u};
    if (GroupKernel(units, self, self).build().empty()) continue;
    if (units[u].is_copy()) {
      units.buffer_copy(u);
      units.link();
      u++;
      continue;
    }
    for (const Tensor& t : Lowered(units[u].low).reads) {
      const ViewSource& s = units.resolve(t);
      if (!units.is_input(s.id)) units.materialise(units.unit_of(s.id));
    }
    std::string why = GroupKernel(units, self, self).build();
    LUTRA_CHECK(why.empty(), name(units[u].node->op), ": ", why);
  }
}

}  // namespace

std::vector<Group> fuse(Units& units, bool fuse) {
  settle(units);
  Fuser f(units);
  if (fuse) {
    f.along_edges();
    f.side_by_side();
  }
  return f.ordered();
}

}  // namespace lutra
