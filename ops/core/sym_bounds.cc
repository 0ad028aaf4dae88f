// A guard that compares an expression with a constant narrows its range. Any other guard implies only itself.
#include "ops/core/sym_bounds.h"

#include <algorithm>
#include <cmath>

namespace lutra {
namespace {

// Packs a guard into a key. There are fewer than 2^28 expressions.
uint64_t key_of(const SymGuard& g) {
  return uint64_t(uint32_t(g.a)) << 36 | uint64_t(uint32_t(g.b)) << 8 | uint64_t(g.cmp) << 1 | uint64_t(g.outcome);
}

int64_t above(int64_t v) { return v == INT64_MAX ? v : v + 1; }
int64_t below(int64_t v) { return v == INT64_MIN ? v : v - 1; }

}  // namespace

bool SymBounds::Limit::gives(const Limit& wanted, bool upper) const {
  if (!is_set) return false;
  if (value == wanted.value) return strict || !wanted.strict;
  return upper ? value < wanted.value : value > wanted.value;
}

bool SymBounds::is_number_guard(const SymGuard& g) const {
  return is_number(env_[g.a].op) || (arity(g.cmp) == 2 && is_number(env_[g.b].op));
}

SymRange SymBounds::range(int32_t id) const {
  SymRange r = env_.made_range(id);
  auto it = ranges_.find(id);
  if (it != ranges_.end()) r.low = std::max(r.low, it->second.low), r.high = std::min(r.high, it->second.high);
  return r;
}

// Returns the part of `now` where the guard holds. *id is 0 for a guard that does not bound a single expression.
SymRange SymBounds::meant(const SymGuard& g, SymRange now, int32_t* id) const {
  *id = 0;
  if (g.cmp == SymCmp::kExact) {
    *id = g.a;
    if (g.outcome) now.low = std::max(now.low, -kMaxExact), now.high = std::min(now.high, kMaxExact);
    return now;
  }
  const bool left = !is_constant(env_[g.a]), right = !is_constant(env_[g.b]);
  if (left == right) return now;
  *id = left ? g.a : g.b;
  const int64_t c = left ? env_[g.b].i : env_[g.a].i;
  if (g.cmp == SymCmp::kEq) {
    if (g.outcome) return {std::max(now.low, c), std::min(now.high, c)};
    if (now.low == c) now.low = above(c);
    if (now.high == c) now.high = below(c);
    return now;
  }
  const bool or_equal = g.cmp == SymCmp::kLe;
  if (left == g.outcome) {  // x < c, or not c < x
    now.high = std::min(now.high, or_equal == g.outcome ? c : below(c));
  } else {
    now.low = std::max(now.low, or_equal == g.outcome ? c : above(c));
  }
  return now;
}

bool SymBounds::implies_integer(const SymGuard& g) const {
  int32_t id = 0;
  meant(g, {}, &id);
  if (!id || (g.cmp == SymCmp::kExact && !g.outcome)) return false;
  const SymRange now = range(id);
  if (g.cmp == SymCmp::kEq && !g.outcome) {
    const int64_t c = is_constant(env_[g.b]) ? env_[g.b].i : env_[g.a].i;
    return !now.contains(c);
  }
  const SymRange left = meant(g, now, &id);
  return left.low == now.low && left.high == now.high;
}

bool SymBounds::implies_number(const SymGuard& g) const {
  const bool one_sided = arity(g.cmp) == 1;
  const bool left = !is_constant(env_[g.a]), right = !one_sided && !is_constant(env_[g.b]);
  const auto it = numbers_.find(left ? g.a : g.b);
  if (it == numbers_.end() || left == right) return false;
  const Number& n = it->second;
  if (n.pinned) return true;
  if (one_sided || g.cmp == SymCmp::kSame) return false;
  const double c = as_number(env_[left ? g.b : g.a]);
  if (g.cmp == SymCmp::kEq) {
    const Limit beyond{c, true};
    const auto excludes = [&](const Limit& upper, const Limit& lower) {
      return upper.gives(beyond, true) || lower.gives(beyond, false);
    };
    return !g.outcome && (excludes(n.upper[0], n.lower[0]) || excludes(n.upper[1], n.lower[1]));
  }
  const bool upper = left == g.outcome, or_nan = !g.outcome;
  const Limit wanted{c, (g.cmp == SymCmp::kLt) == g.outcome};
  const Limit* limits = upper ? n.upper : n.lower;
  return limits[0].gives(wanted, upper) || (or_nan && limits[1].gives(wanted, upper));
}

bool SymBounds::implies(const SymGuard& g) const {
  if (known_.count(key_of(g))) return true;
  return is_number_guard(g) ? implies_number(g) : implies_integer(g);
}

void SymBounds::learn_number(const SymGuard& g) {
  if (arity(g.cmp) == 1) return;
  const bool left = !is_constant(env_[g.a]), right = !is_constant(env_[g.b]);
  if (left == right) return;
  Number& n = numbers_[left ? g.a : g.b];
  const double c = as_number(env_[left ? g.b : g.a]);
  const auto narrow = [&](bool upper, bool or_nan, bool strict) {
    Limit& limit = (upper ? n.upper : n.lower)[or_nan];
    const Limit now{c, strict, true};
    if (!limit.is_set || now.gives(limit, upper)) limit = now;
  };
  if (g.cmp == SymCmp::kSame) {
    n.pinned = n.pinned || g.outcome;
  } else if (g.cmp == SymCmp::kEq) {
    if (g.outcome) narrow(true, false, false), narrow(false, false, false);
  } else {
    narrow(left == g.outcome, !g.outcome, (g.cmp == SymCmp::kLt) == g.outcome);
  }
}

void SymBounds::learn(const SymGuard& g) {
  known_.insert(key_of(g));
  if (is_number_guard(g)) return learn_number(g);
  int32_t id = 0;
  meant(g, {}, &id);
  if (!id) return;
  const SymRange now = meant(g, range(id), &id);
  ranges_[id] = now;
}

}  // namespace lutra
