// Answers about overlap from sizes and strides.
#include "ops/core/overlap.h"

#include <numeric>

namespace lutra {
namespace {

// Returns the number of elements from the first to the last that t reaches. All strides are at least zero.
SymInt span(const Tensor& t) {
  SymInt last = 0;
  for (size_t d = 0; d < t->sizes.size(); d++) {
    if (t->sizes[d] == 0) return 0;
    last = last + (t->sizes[d] - 1) * t->strides[d];
  }
  return last + 1;
}

bool same_layout(const Tensor& a, const Tensor& b) {
  if (a->sizes.size() != b->sizes.size() || a->offset != b->offset || a->dtype != b->dtype) return false;
  for (size_t d = 0; d < a->sizes.size(); d++) {
    if (a->sizes[d] != b->sizes[d]) return false;
    if (a->sizes[d] > 1 && a->strides[d] != b->strides[d]) return false;
  }
  return true;
}

// Returns the dimensions, sorted by the hints of their strides. The order itself asks nothing: the caller's comparisons
// of these strides record the guards. The callers ask only in the last place whether a size is 0 or 1, where the stride
// does not matter: the answer would bind the size.
SmallVec<uint32_t, 8> by_strides(const Sizes& sizes, const Sizes& strides) {
  SmallVec<uint32_t, 8> order;
  for (uint32_t d = 0; d < sizes.size(); d++) {
    if (!sizes[d].is_constant() || sizes[d].hint != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return strides[a].hint < strides[b].hint; });
  return order;
}

}  // namespace

bool overlaps_itself(const Tensor& t) {
  bool repeats = false;
  for (size_t d = 0; d < t->sizes.size(); d++) {
    repeats = repeats || (t->strides[d].is_constant() && t->strides[d].hint == 0 && t->sizes[d] > 1);
  }
  // The strides of an empty tensor may be products with its size of 0.
  return repeats && std::none_of(t->sizes.begin(), t->sizes.end(), [](SymInt size) { return size == 0; });
}

bool reaches_each_once(const Tensor& t) {
  SymInt reach = 0;
  for (uint32_t d : by_strides(t->sizes, t->strides)) {
    if (t->strides[d] <= reach) {
      if (t->sizes[d] == 1) continue;
      return std::any_of(t->sizes.begin(), t->sizes.end(), [](SymInt size) { return size == 0; });
    }
    reach = reach + (t->sizes[d] - 1) * t->strides[d];
  }
  return true;
}

bool is_dense(const Sizes& sizes, const Sizes& strides) {
  SymInt expected = 1;
  for (uint32_t d : by_strides(sizes, strides)) {
    if (!same_expr(strides[d], expected) && sizes[d] != 1 && strides[d] != expected) return false;
    expected = expected * sizes[d];
  }
  return true;
}

Overlap overlap(const Tensor& a, const Tensor& b) {
  if (!(a->storage == b->storage)) return Overlap::kNone;
  if (a.same(b) || same_layout(a, b)) return Overlap::kSame;
  const SymInt na = span(a), nb = span(b);
  if (na == 0 || nb == 0) return Overlap::kNone;
  // In bytes, because views of another dtype share storages too.
  const auto bytes = [](DType t, SymInt n) { return is_packed(t) ? floor_div(n, 2) : n * SymInt(int64_t(size_of(t))); };
  const SymInt a0 = bytes(a->dtype, a->offset), a1 = a0 + bytes(a->dtype, na);
  const SymInt b0 = bytes(b->dtype, b->offset), b1 = b0 + bytes(b->dtype, nb);
  if (a1 <= b0 || b1 <= a0) return Overlap::kNone;
  const bool dense = is_dense(a->sizes, a->strides) && is_dense(b->sizes, b->strides);
  return dense ? Overlap::kPartial : Overlap::kUnknown;
}

}  // namespace lutra
