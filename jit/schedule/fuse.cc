// Greedy fusion. First it goes along every edge in program order: two groups become one if no third one is between them
// and their common kernel is a good one. Then it tries groups over the same loops that read the same memory.
#include "jit/schedule/fuse.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <set>
#include <utility>

#include "jit/schedule/compile_limits.h"
#include "ops/core/interrupt.h"

namespace lutra {
namespace {

using Bits = std::vector<uint64_t>;
void set(Bits& b, int32_t i) { b[size_t(i) / 64] |= uint64_t(1) << (i % 64); }
void clear(Bits& b, int32_t i) { b[size_t(i) / 64] &= ~(uint64_t(1) << (i % 64)); }
void join(Bits& b, const Bits& o) {
  for (size_t i = 0; i < b.size(); i++) b[i] |= o[i];
}
// Returns the first set bit from `from` on, or -1.
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
  // Fuses the units from first to last with each other only. trusted: units whose elementwise merges along edges need
  // not be tried.
  Fuser(ComputeUnits& units, const std::vector<bool>& trusted, int32_t first, int32_t last, Decisions& decisions)
      : units_(units), trusted_(trusted), first_(first), last_(last), decisions_(decisions) {
    const auto n = size_t(units.size());
    readers_.resize(n);
    input_readers_.resize(units.graph.inputs.size());
    before_.assign(size_t(last - first), Bits(size_t(last - first + 63) / 64, 0));
    after_ = before_;
    versions_.assign(n, 0);
    untried_.assign(n, false);
    seen_.assign(n, 0);
    for (int32_t u = 0; u < units.size(); u++) {
      group_of_.push_back(u);
      groups_.push_back({u});
      instructions_.push_back(units[u].instructions);
      hoisted_.push_back(units[u].hoisted);
      work_.push_back(units[u].work);
      if (units[u].inlined) continue;
      for (int32_t r : units[u].reads) readers_[size_t(r)].push_back(u);
      for (int32_t i : units[u].inputs) input_readers_[size_t(i)].push_back(u);
      if (is_here(u)) for_each_earlier(u, [&](int32_t r) { add(before_, u, r); });
    }
    for (int32_t u = last; u-- > first;) {
      if (!units[u].inlined) for_each_earlier(u, [&](int32_t r) { add(after_, r, u); });
    }
  }

  void along_edges() {
    for (int32_t u = first_; u < last_; u++) {
      if (units_[u].inlined) continue;
      for (int32_t r : units_[u].reads) {
        if (is_here(r)) try_merge(group_of_[size_t(r)], group_of_[size_t(u)], true);
      }
    }
  }

  // Tries the merges that were deferred because they would compute much twice.
  void try_deferred() {
    for (const auto& [r, u] : std::exchange(deferred_, {})) {
      refused_.erase(key_of(group_of_[size_t(r)], group_of_[size_t(u)]));
      try_merge(group_of_[size_t(r)], group_of_[size_t(u)], false);
    }
  }

  // Builds the kernels of groups that were merged untried. If one is not valid or takes longer, its units lose their
  // trust. Returns true if there were any.
  bool distrust(std::vector<bool>& trusted) {
    bool any = false;
    for (int32_t g = first_; g < last_; g++) {
      const std::vector<int32_t>& members = groups_[size_t(g)];
      if (!untried_[size_t(g)]) continue;
      std::string why = build(members, work_[size_t(g)]);
      if (why.empty() && !gains(members, work_[size_t(g)])) why = "it takes longer than its parts";
      if (why.empty()) continue;
      decisions_.add(str("again step by step: ", text_of(g), ": ", why));
      for (int32_t u : members) trusted[size_t(u)] = false;
      any = true;
    }
    return any;
  }

  void side_by_side() {
    int pairs = 0;
    for (int32_t a = first_; a < last_; a++) {
      if (groups_[size_t(a)].empty() || is_single(a)) continue;
      Bits others(before_[0].size(), 0);
      add_sharing(groups_[size_t(a)], others);
      for (int32_t b = next(others, a - first_ + 1); b >= 0; b = next(others, b + 1)) {
        if (is_single(b + first_)) continue;
        if (pairs++ == compile_limits::kPairs)
          return decisions_.add(str("no more than ", compile_limits::kPairs, " pairs are tried"));
        const std::vector<int32_t> added = groups_[size_t(b + first_)];
        if (try_merge(a, b + first_, false)) add_sharing(added, others);
      }
    }
  }

  // Takes over the groups of another range of units.
  void adopt(const Fuser& part) {
    for (auto u = size_t(part.first_); u < size_t(part.last_); u++) {
      group_of_[u] = part.group_of_[u], groups_[u] = part.groups_[u];
    }
  }

  std::vector<int32_t> roots(const std::vector<int32_t>& members) const {
    std::vector<int32_t> out;
    for (int32_t u : members) {
      // A unit that nothing reads is computed all the same, since it may fail.
      bool root = units_[u].needs_memory || units_[u].is_copy() || readers_[size_t(u)].empty();
      for (int32_t r : readers_[size_t(u)]) root |= !std::binary_search(members.begin(), members.end(), r);
      if (root || units_[u].alone()) out.push_back(u);
    }
    return out;
  }

  std::vector<Group> ordered() const {
    std::vector<Group> out;
    using Item = std::pair<int32_t, int32_t>;  // due time, group
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
  bool is_here(int32_t unit) const { return first_ <= unit && unit < last_; }
  Bits& of(std::vector<Bits>& closure, int32_t unit) const { return closure[size_t(unit - first_)]; }
  const Bits& of(const std::vector<Bits>& closure, int32_t unit) const { return closure[size_t(unit - first_)]; }

  // Adds `to`, and all units in its own set, to the set of u.
  void add(std::vector<Bits>& closure, int32_t u, int32_t to) {
    if (!is_here(u) || !is_here(to)) return;
    set(of(closure, u), to - first_);
    join(of(closure, u), of(closure, to));
  }

  // Returns true if the group merges with no other.
  bool is_single(int32_t group) const {
    const ComputeUnit& u = units_[groups_[size_t(group)][0]];
    return u.alone() || u.inlined;
  }

  // Adds the groups that read a value that one of the units reads.
  void add_sharing(const std::vector<int32_t>& units, Bits& groups) const {
    const auto mark = [&](const std::vector<int32_t>& readers) {
      for (int32_t v : readers) {
        if (is_here(v)) set(groups, group_of_[size_t(v)] - first_);
      }
    };
    for (int32_t u : units) {
      for (int32_t r : units_[u].reads) mark(readers_[size_t(r)]);
      for (int32_t i : units_[u].inputs) mark(input_readers_[size_t(i)]);
    }
  }

  // Returns true if another group runs after a and before b.
  bool between(int32_t a, int32_t b) const {
    const Bits &after = of(after_, a), &before = of(before_, b);
    for (size_t i = 0; i < after.size(); i++) {
      if (after[i] & before[i]) return true;
    }
    return false;
  }

  // Returns when a group that can run is due: with its last unit. A group that writes inputs is due with its first
  // unit, since writes are the last units of all. So memory that it reads is not held until the end.
  int32_t due(int32_t g) const {
    const auto& units = groups_[size_t(g)];
    bool writes = std::any_of(units.begin(), units.end(), [&](int32_t u) { return units_[u].is_copy(); });
    return writes ? units.front() : units.back();
  }

  // Builds a kernel of the members. Returns "" and sets `work` to the kernel's work; otherwise returns why there is
  // none.
  std::string build(const std::vector<int32_t>& members, Work& work) {
    const std::vector<int32_t> stored = roots(members);
    GroupKernel kernel(units_, members, stored);
    const std::string& why = kernel.build();
    if (why.empty()) work = kernel.work();
    return why;
  }

  bool gains(const std::vector<int32_t>& members, const Work& together) const {
    double apart = 0;
    for (int32_t u : members) apart += seconds(units_.machine, units_[u].work);
    return seconds(units_.machine, together) <= apart;
  }

  // Estimates the work of a merged with b, which goes_along with a: b no longer reads a's values from memory, and
  // values that only the two read are not stored.
  Work estimate(int32_t a, int32_t b) const {
    Work w = work_[size_t(a)];
    w.add(work_[size_t(b)]);
    std::vector<int32_t> seen;
    const auto is_inside = [&](int32_t u) { return group_of_[size_t(u)] == a || group_of_[size_t(u)] == b; };
    for (int32_t u : groups_[size_t(b)]) {
      for (int32_t r : units_[u].reads) {
        if (group_of_[size_t(r)] != a || std::count(seen.begin(), seen.end(), r)) continue;
        seen.push_back(r);
        const std::vector<int32_t>& readers = readers_[size_t(r)];
        const bool stays = units_[r].needs_memory || !std::all_of(readers.begin(), readers.end(), is_inside);
        const double bytes = likely_bytes(units_[r].value);
        w.move(units_.machine, (stays ? -1 : -2) * bytes, bytes);
      }
    }
    return w;
  }

  // Returns true if b is elementwise over all of a's values, or, if a reduces, over the results of its rows.
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

  std::pair<int64_t, int64_t> key_of(int32_t a, int32_t b) const {
    return {int64_t(a) << 32 | versions_[size_t(a)], int64_t(b) << 32 | versions_[size_t(b)]};
  }

  bool try_merge(int32_t a, int32_t b, bool trust) {
    check_stop();
    if (a == b || is_single(a) || is_single(b)) return false;
    if (!refused_.insert(key_of(a, b)).second || between(a, b) || between(b, a)) return false;
    std::vector<int32_t> both;
    std::merge(groups_[size_t(a)].begin(), groups_[size_t(a)].end(), groups_[size_t(b)].begin(),
               groups_[size_t(b)].end(), std::back_inserter(both));
    std::vector<uint64_t> hoisted;
    std::set_union(hoisted_[size_t(a)].begin(), hoisted_[size_t(a)].end(), hoisted_[size_t(b)].begin(),
                   hoisted_[size_t(b)].end(), std::back_inserter(hoisted));
    const int instructions = instructions_[size_t(a)] + instructions_[size_t(b)];
    const int all = instructions + int(hoisted.size());
    const bool untried = trust && all <= compile_limits::kInstructions && goes_along(a, b);
    Work work;
    if (!is_better(a, b, both, all, trust, untried, work)) return false;
    untried_[size_t(a)] = untried, untried_[size_t(b)] = false;
    work_[size_t(a)] = work;
    for (int32_t u : groups_[size_t(b)]) group_of_[size_t(u)] = a;
    groups_[size_t(a)] = std::move(both);
    groups_[size_t(b)].clear();
    instructions_[size_t(a)] = instructions;
    hoisted_[size_t(a)] = std::move(hoisted);
    versions_[size_t(a)]++;
    const Bits before[] = {of(before_, a), of(before_, b)}, after[] = {of(after_, a), of(after_, b)};
    merge_order(before_, after, a, b);
    merge_order(after_, before, a, b);
    return true;
  }

  // Returns true if one kernel for a and b is valid and takes less time than two.
  bool is_better(int32_t a, int32_t b, const std::vector<int32_t>& both, int instructions, bool trust, bool untried,
                 Work& work) {
    const auto log_decision = [&](const std::string& why) {
      if (decisions_.wanted()) decisions_.add(str("fuse ", text_of(a), " + ", text_of(b), ": ", why));
    };
    if (instructions > compile_limits::kHopeless * compile_limits::kInstructions) {
      log_decision(str("refused: ", instructions, " instructions"));
      return false;
    }
    if (untried) {
      work = estimate(a, b);
    } else if (const std::string why = build(both, work); !why.empty()) {
      log_decision("refused: " + why);
      return false;
    }
    const Score score(units_.machine, work_[size_t(a)], work_[size_t(b)], work);
    // A kernel that runs in parallel may save the launch as well.
    const bool later = trust && score.gains() && score.again() > score.a.additions + score.b.additions;
    if (later) deferred_.push_back({groups_[size_t(a)][0], groups_[size_t(b)][0]});
    if (decisions_.wanted()) {
      log_decision(str(score.text(), later           ? ": put off: it computes twice as much"
                                     : score.gains() ? ": taken"
                                                     : ": refused: it takes longer"));
    }
    return score.gains() && !later;
  }

  std::string text_of(int32_t group) const {
    const std::vector<int32_t>& units = groups_[size_t(group)];
    std::string text = str(name(units_[units[0]].node->op), ".", units[0]);
    if (units.size() > 1) text += str(" .. ", name(units_[units.back()].node->op), ".", units.back());
    return units.size() > 2 ? str(text, " (", units.size(), ")") : text;
  }

  // Makes a the merge of both groups. A set in `order` that contained only one of them now contains the other, too.
  // opposite: the sets of a and of b in the other direction. Bits are units: a group is in a set if one of its units
  // is.
  void merge_order(std::vector<Bits>& order, const Bits (&opposite)[2], int32_t a, int32_t b) {
    merges_++;
    Bits& merged = of(order, a);
    join(merged, of(order, b));
    for (int32_t u : groups_[size_t(a)]) clear(merged, u - first_);
    Bits one = opposite[0];
    for (size_t i = 0; i < one.size(); i++) one[i] ^= opposite[1][i];
    for (int32_t k = next(one, 0); k >= 0; k = next(one, k + 1)) {
      const int32_t group = group_of_[size_t(k + first_)];
      if (group == a || std::exchange(seen_[size_t(group)], merges_) == merges_) continue;
      join(of(order, group), merged);
      for (int32_t u : groups_[size_t(a)]) set(of(order, group), u - first_);
    }
  }

  ComputeUnits& units_;
  const std::vector<bool>& trusted_;
  const int32_t first_, last_;
  Decisions& decisions_;
  std::vector<bool> untried_;                                  // by group
  std::vector<int> instructions_;                              // by group, except those before the loops
  std::vector<std::vector<uint64_t>> hoisted_;                 // by group: the instructions before the loops
  std::vector<std::vector<int32_t>> readers_, input_readers_;  // by unit or input: the units that read it
  std::vector<Work> work_;                                     // by group
  std::vector<int32_t> group_of_;
  std::vector<std::vector<int32_t>> groups_;
  std::vector<int32_t> versions_;
  std::vector<Bits> before_, after_;  // by group: all units that run before it, and after it
  std::set<std::pair<int64_t, int64_t>> refused_;
  std::vector<std::pair<int32_t, int32_t>> deferred_;  // units that identify pairs of groups
  std::vector<int32_t> seen_;                          // by group: the last merge that visited it
  int32_t merges_ = 0;
};

// Handles units that cannot be kernels by themselves: a reduction whose order needs its operand in memory, or a copy
// over memory that it also reads elsewhere.
void settle(ComputeUnits& units) {
  for (int32_t u = 0; u < units.size(); u++) {
    if (units[u].inlined || units[u].alone()) continue;
    std::vector<int32_t> self{u};
    GroupKernel kernel(units, self, self);
    const bool is_kernel = kernel.build().empty();
    kernel.measure(units[u]);
    if (is_kernel) continue;
    if (units[u].is_copy()) {
      units.buffer_copy(u);
      units.link();
      u++;
      continue;
    }
    for (const Tensor& t : std::vector<Tensor>(units[u].low.reads)) {
      const ViewSource& s = units.resolve(t);
      if (!units.is_input(s.id)) units.materialise(units.unit_of(s.id));
    }
    std::string why = GroupKernel(units, self, self).build();
    LUTRA_CHECK(why.empty(), name(units[u].node->op), ": ", why);
  }
}

}  // namespace

// Elementwise units nearly always fuse with the units that make their operands. So such groups are merged untried and
// built once, as a whole. They are merged step by step only if the whole is refused.
std::vector<Group> fuse(ComputeUnits& units, bool fuse, Decisions& decisions) {
  settle(units);
  std::vector<bool> trusted;
  for (int32_t u = 0; u < units.size(); u++) {
    const Lowered::Kind kind = units[u].low.kind;
    trusted.push_back(kind == Lowered::kPointwise || kind == Lowered::kCopy || kind == Lowered::kReduce);
  }
  Fuser all(units, trusted, 0, 0, decisions);
  if (!fuse) return all.ordered();
  for (int32_t first = 0; first < units.size(); first += compile_limits::kUnits) {
    const int32_t last = std::min(units.size(), first + compile_limits::kUnits);
    for (int attempt = 1;; attempt++) {
      Fuser f(units, trusted, first, last, decisions);
      f.along_edges();
      if (f.distrust(trusted)) {
        if (attempt == compile_limits::kAttempts) trusted.assign(trusted.size(), false);
        continue;
      }
      f.side_by_side();
      f.try_deferred();
      all.adopt(f);
      break;
    }
  }
  return all.ordered();
}

}  // namespace lutra
