// Sums and largest elements of rows for AVX2.
#pragma GCC target("avx2")

#include "ops/extern/cpu/bag_rows.h"

namespace lutra {
namespace {

template <class A>
void add(const A* const* rows, const A* scales, int64_t count, int64_t n, A* to) {
  add_bag_rows(rows, scales, count, n, to);
}
template <class A>
void exceed(const A* const* rows, int64_t count, int64_t n, A* most, typename BagRows<A>::Place* at) {
  exceed_bag_rows(rows, count, n, most, at);
}
template <class A>
[[gnu::optimize("O3")]] void add_part(const A* part, int64_t n, A* sum, A* lost) {
  add_bag_part(part, n, sum, lost);
}
template <class A>
[[gnu::optimize("O3")]] void end_sums(const A* lost, int64_t n, A* sum) {
  end_bag_sums(lost, n, sum);
}
template <class A>
[[gnu::optimize("O3")]] void divide(A* to, int64_t n, A by) {
  for (int64_t k = 0; k < n; k++) to[k] /= by;
}
template <class A>
constexpr BagRows<A> kRows = {add<A>, exceed<A>, add_part<A>, end_sums<A>, divide<A>};

}  // namespace

template <>
const BagRows<float>& bag_rows_avx2() {
  return kRows<float>;
}
template <>
const BagRows<double>& bag_rows_avx2() {
  return kRows<double>;
}

}  // namespace lutra
