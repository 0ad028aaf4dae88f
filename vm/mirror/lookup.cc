// Raw table reads by any key: LuaJIT's hash functions (lj_tab.c, lj_tab.h) over the mirrored structs. The start-up
// check compares them with rawget.
#include <cmath>
#include <cstdint>

#include "vm/mirror/mirror.h"

namespace lutra::mirror {
namespace {

uint32_t rotate(uint32_t v, int n) { return v << n | v >> (32 - n); }

uint32_t hash_words(uint32_t lo, uint32_t hi) {
  lo ^= hi;
  hi = rotate(hi, 14);
  lo -= hi;
  hi = rotate(hi, 5);
  hi ^= lo;
  hi -= rotate(lo, 13);
  return hi;
}

uint32_t hash_key(TValue key) {
  const uint32_t lo = uint32_t(key.u64), hi = uint32_t(key.u64 >> 32);
  if (is_number(key)) return hash_words(lo, hi << 1);
  if (tag(key) == kStr) return static_cast<const Str*>(gc_pointer(key))->sid;
  if (tag(key) == kFalse || tag(key) == kTrue) return tag(key) == kTrue;
  return hash_words(lo, hi);
}

}  // namespace

bool raw_equal(TValue a, TValue b) {
  if (!is_number(a) || !is_number(b)) return a.u64 == b.u64;
  return number(a) == number(b);
}

TValue raw_get(const Tab* t, TValue key) {
  if (is_number(key)) {
    const double d = number(key);
    key = make_number(d);
    if (d >= 0 && d < t->asize && d == std::floor(d)) return t->array[uint32_t(d)];
  }
  for (const Node* n = &t->node[hash_key(key) & t->hmask]; n; n = n->next) {
    if (raw_equal(n->key, key)) return n->val;
  }
  return {kNilValue};
}

int64_t length(const Tab* t) {
  const auto absent = [t](int64_t i) { return raw_get(t, make_number(double(i))).u64 == kNilValue; };
  int64_t lo = 0, hi = t->asize ? int64_t(t->asize) - 1 : 0;
  if (hi == 0 || !absent(hi)) {
    if (t->hmask == 0) return hi;
    for (lo = hi++; !absent(hi);) {
      lo = hi, hi *= 2;
      if (hi <= INT32_MAX - 2) continue;
      for (lo = 1; !absent(lo);) lo++;
      return lo - 1;
    }
  }
  while (hi - lo > 1) {
    const int64_t mid = (lo + hi) / 2;
    (absent(mid) ? hi : lo) = mid;
  }
  return lo;
}

}  // namespace lutra::mirror
