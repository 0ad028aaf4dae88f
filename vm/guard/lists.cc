// Predicts the lengths of growing lists by the rules of LuaJIT's lj_tab_len. See lists.h.
#include "vm/guard/lists.h"

namespace lutra {
namespace {

// Returns the border that LuaJIT finds once the positions after `end` up to `last` hold values; -1 if it searches the
// hash part.
int64_t border(const mirror::Tab* t, int64_t end, int64_t last) {
  const auto absent = [&](int64_t i) { return (i <= end || i > last) && t->array[size_t(i)].u64 == mirror::kNilValue; };
  int64_t lo = 0, hi = int64_t(t->asize) - 1;
  if (!absent(hi)) return t->hmask == 0 ? hi : -1;
  while (hi - lo > 1) {
    const int64_t mid = (lo + hi) / 2;
    (absent(mid) ? hi : lo) = mid;
  }
  return lo;
}

}  // namespace

bool grows_in_place(const mirror::Tab* t, int64_t n) {
  const int64_t end = mirror::length(t);
  if (end + n >= int64_t(t->asize)) return false;
  for (int64_t i = 1; i <= n; i++) {
    if (border(t, end, end + i) != end + i) return false;
  }
  return true;
}

}  // namespace lutra
