// Copies the elements of a view into another.
#include "ops/extern/cpu/strided.h"

#include <cstring>

#include "ops/extern/cpu/elements.h"

namespace lutra {
namespace {

constexpr int64_t kCopyGrain = 1 << 18;  // bytes worth a thread

// Returns whether both views have the strides of one dense layout, so that bytes can be copied in memory order.
bool same_dense(const ExternView& a, const ExternView& b) {
  int order[kExternDims], n = 0;
  for (int d = 0; d < a.dim; d++) {
    if (a.sizes[d] == 1) continue;
    if (a.strides[d] != b.strides[d]) return false;
    int at = n++;  // ascending by stride
    for (; at > 0 && a.strides[order[at - 1]] > a.strides[d]; at--) order[at] = order[at - 1];
    order[at] = d;
  }
  int64_t want = 1;
  for (int i = 0; i < n; i++) {
    if (a.strides[order[i]] != want) return false;
    want *= a.sizes[order[i]];
  }
  return true;
}

}  // namespace

void copy_elements(const ExternView& from, const ExternView& to, ParallelFor parallel) {
  const int64_t n = to.numel();
  if (n == 0) return;
  if (same_dense(from, to)) {
    const size_t size = size_of(to.dtype);
    const auto copy = [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(to.data) + size_t(begin) * size,
                  static_cast<const char*>(from.data) + size_t(begin) * size, size_t(end - begin) * size);
    };
    return parallel ? parallel(n, kCopyGrain / int64_t(size), copy) : copy(0, n);
  }
  with_element_type(to.dtype, [&]<class T>() {
    T* out = static_cast<T*>(to.data);
    const T* in = static_cast<const T*>(from.data);
    each_pair(to, from, [&](int64_t a, int64_t b) { out[a] = in[b]; });
  });
}

void touch(void* memory, size_t bytes, ParallelFor parallel) {
  constexpr size_t kPage = 4096, kLargePage = size_t(2) << 20;
  const auto body = [&](int64_t begin, int64_t end) {
    const size_t last = std::min(bytes, size_t(end) * kLargePage);
    for (size_t at = size_t(begin) * kLargePage; at < last; at += kPage) static_cast<volatile char*>(memory)[at] = 0;
  };
  const auto pages = int64_t((bytes + kLargePage - 1) / kLargePage);
  parallel ? parallel(pages, 1, body) : in_stretches(pages, body, 2);
}

}  // namespace lutra
