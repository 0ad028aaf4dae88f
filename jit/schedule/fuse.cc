// Greedy fusion: along every edge in program order two groups become one where no third lies between them and the
// kernel of both is a good one; then groups over the same loops that read the same memory.
#include "jit/schedule/fuse.h"

#include "ops/core/interrupt.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <set>

namespace lutra {
namespace {

// Beyond this many pairs of unconnected groups are not tried.
constexpr int kMaxPairs = 400;
// After as many every merge is tried.
constexpr int kMaxAttempts = 2;

using Bits = std::vector<uint64_t>;
bool test(const Bits& b, int32_t i) { return b[size_t(i) / 64] >> (i % 64) & 1; }
void set(Bits& b, int32_t i) { b[size_t(i) / 64] |= uint64_t(1) << (i % 64); }
void clear(Bits& b, int32_t i) { b[size_t(i) / 64] &= ~(uint64_t(1) << (i % 64)); }
void join(Bits& b, const Bits& o) {
  for (size_t i = 0; i < b.size(); i++) b[i] |= o[i];
}
// The first one that is set from `from` on, or -1.
int32_t next(const Bits& b, int32_t from) {
  for (size_t i = size_t(from) / 64; i < b.size(); i++) {
    uint64_t word = b[i];
    if (i == size_t(from) / 64) word &= ~uint64_t(0) << (from % 64);
    if (word) return int32_t(i) * 64 + std::countr_zero(word);
  }
  return -1;
}

class Fuser {
 public:
  // trusted: units whose elementwise merges along edges need not be tried.
  Fuser(Units& units, const std::vector<bool>& trusted) : units_(units), trusted_(trusted) {
    const int32_t n = units.size();
    readers_.resize(size_t(n));
    input_readers_.resize(units.graph.inputs.size());
    before_.assign(size_t(n), Bits(size_t(n + 63) / 64, 0));
    after_ = before_;
    for (int32_t u = 0; u < n; u++) {
      group_of_.push_back(u);
      groups_.push_back({u});
      versions_.push_back(0);
      untried_.push_back(false);
      if (units[u].inlined) continue;
      for (int32_t r : units[u].reads) readers_[size_t(r)].push_back(u);
      for (int32_t i : units[u].inputs) input_readers_[size_t(i)].push_back(u);
      for_each_earlier(u, [&](int32_t r) { add(before_, u, r); });
    }
    for (int32_t u = n; u-- > 0;) {
      if (!units[u].inlined) for_each_earlier(u, [&](int32_t r) { add(after_, r, u); });
    }
  }

  void along_edges() {
    for (int32_t u = 0; u < units_.size(); u++) {
      if (units_[u].inlined) continue;
      for (int32_t r : units_[u].reads) try_merge(group_of_[size_t(r)], group_of_[size_t(u)], true);
    }
  }

  // Units of groups that were merged untried and are no kernel lose their trust: whether there were any.
  bool distrust(std::vector<bool>& trusted) {
    bool any = false;
    for (int32_t g = 0; g < units_.size(); g++) {
      const std::vector<int32_t>& members = groups_[size_t(g)];
      if (!untried_[size_t(g)] || makes_kernel(members)) continue;
      for (int32_t u : members) trusted[size_t(u)] = false;
      any = true;
    }
    return any;
  }

  void side_by_side() {
    int pairs = 0;
    for (int32_t a = 0; a < units_.size(); a++) {
      if (groups_[size_t(a)].empty() || is_single(a)) continue;
      Bits others(before_[size_t(a)].size(), 0);
      add_sharing(groups_[size_t(a)], others);
      for (int32_t b = next(others, a + 1); b >= 0; b = next(others, b + 1)) {
        if (is_single(b)) continue;
        if (pairs++ == kMaxPairs) return;
        const std::vector<int32_t> added = groups_[size_t(b)];
        if (try_merge(a, b, false)) add_sharing(added, others);
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
      for_each_earlier(u, [&](int32_t r) { edge(r, u); });
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
  template <class F>
  void for_each_earlier(int32_t u, F f) const {
    for (int32_t r : units_[u].reads) f(r);
    for (int32_t r : units_[u].after) f(r);
  }
  // `to` and all that stands at it belong to u.
  static void add(std::vector<Bits>& closure, int32_t u, int32_t to) {
    set(closure[size_t(u)], to);
    join(closure[size_t(u)], closure[size_t(to)]);
  }

  // Whether a group is one that takes no other in.
  bool is_single(int32_t group) const {
    const ComputeUnit& u = units_[groups_[size_t(group)][0]];
    return u.alone() || u.inlined;
  }

  // Groups that read what one of the units reads.
  void add_sharing(const std::vector<int32_t>& units, Bits& groups) const {
    for (int32_t u : units) {
      for (int32_t r : units_[u].reads) {
        for (int32_t v : readers_[size_t(r)]) set(groups, group_of_[size_t(v)]);
      }
      for (int32_t i : units_[u].inputs) {
        for (int32_t v : input_readers_[size_t(i)]) set(groups, group_of_[size_t(v)]);
      }
    }
  }

  // Whether a group other than a and b runs after a and before b.
  bool between(int32_t a, int32_t b) const {
    const Bits &after = after_[size_t(a)], &before = before_[size_t(b)];
    for (size_t i = 0; i < after.size(); i++) {
      if (after[i] & before[i]) return true;
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

  bool makes_kernel(const std::vector<int32_t>& members) {
    return GroupKernel(units_, members, roots(members)).build().empty();
  }

  // Whether b is elementwise over what a makes: over all of it, or, where a reduces, over its rows' results.
  bool goes_along(int32_t a, int32_t b) const {
    const SymInt n = units_[groups_[size_t(b)][0]].value->numel();
    auto is_pointwise = [&](int32_t u) { return units_[u].low.kind != Lowered::kReduce; };
    auto fits = [&](int32_t u) { return identical(units_[u].value->numel(), n); };
    auto is_trusted = [&](int32_t u) { return bool(trusted_[size_t(u)]); };
    const std::vector<int32_t>&as = groups_[size_t(a)], &bs = groups_[size_t(b)];
    const bool reduces = !std::all_of(as.begin(), as.end(), is_pointwise);
    return std::all_of(as.begin(), as.end(), is_trusted) && std::all_of(bs.begin(), bs.end(), is_trusted) &&
           std::all_of(bs.begin(), bs.end(), [&](int32_t u) { return is_pointwise(u) && fits(u); }) &&
           std::all_of(as.begin(), as.end(), [&](int32_t u) { return (reduces && is_pointwise(u)) || fits(u); });
  }

  bool try_merge(int32_t a, int32_t b, bool trust) {
    check_stop();
    if (a == b || is_single(a) || is_single(b)) return false;
    std::pair<int64_t, int64_t> key(int64_t(a) << 32 | versions_[size_t(a)], int64_t(b) << 32 | versions_[size_t(b)]);
    if (!refused_.insert(key).second || between(a, b) || between(b, a)) return false;
    std::vector<int32_t> both;
    std::merge(groups_[size_t(a)].begin(), groups_[size_t(a)].end(), groups_[size_t(b)].begin(),
               groups_[size_t(b)].end(), std::back_inserter(both));
    const bool untried = trust && goes_along(a, b);
    if (!untried && !makes_kernel(both)) return false;
    untried_[size_t(a)] = untried, untried_[size_t(b)] = false;
    for (int32_t u : groups_[size_t(b)]) group_of_[size_t(u)] = a;
    groups_[size_t(a)] = std::move(both);
    groups_[size_t(b)].clear();
    versions_[size_t(a)]++;
    const Bits before[] = {before_[size_t(a)], before_[size_t(b)]}, after[] = {after_[size_t(a)], after_[size_t(b)]};
    merge_order(before_, after, a, b);
    merge_order(after_, before, a, b);
    return true;
  }

  // a stands for both. What stood at one of them only (opposite: at a, at b) now stands where the other does, too.
  static void merge_order(std::vector<Bits>& order, const Bits (&opposite)[2], int32_t a, int32_t b) {
    Bits& merged = order[size_t(a)];
    join(merged, order[size_t(b)]);
    clear(merged, a), clear(merged, b);
    Bits others = opposite[0];
    join(others, opposite[1]);
    for (int32_t k = next(others, 0); k >= 0; k = next(others, k + 1)) {
      if (k == a || k == b) continue;
      clear(order[size_t(k)], b), set(order[size_t(k)], a);
      if (!test(opposite[0], k) || !test(opposite[1], k)) join(order[size_t(k)], merged);
    }
  }

  Units& units_;
  const std::vector<bool>& trusted_;
  std::vector<bool> untried_;                                  // by group
  std::vector<std::vector<int32_t>> readers_, input_readers_;  // units, by the unit or input that they read
  std::vector<int32_t> group_of_;
  std::vector<std::vector<int32_t>> groups_;
  std::vector<int32_t> versions_;
  std::vector<Bits> before_, after_;  // by group: all that run before and after it
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

// Elementwise units nearly always fuse with what makes their operands: such groups are built once, as a whole, and step
// by step only where that is refused.
std::vector<Group> fuse(Units& units, bool fuse) {
  settle(units);
  std::vector<bool> trusted;
  for (int32_t u = 0; u < units.size(); u++) {
    const Lowered::Kind kind = units[u].low.kind;
    trusted.push_back(kind == Lowered::kPointwise || kind == Lowered::kCopy || kind == Lowered::kReduce);
  }
  if (!fuse) return Fuser(units, trusted).ordered();
  for (int attempt = 1;; attempt++) {
    Fuser f(units, trusted);
    f.along_edges();
    if (f.distrust(trusted)) {
      if (attempt == kMaxAttempts) trusted.assign(trusted.size(), false);
      continue;
    }
    f.side_by_side();
    return f.ordered();
  }
}

}  // namespace lutra
