// Sums and largest elements of rows for AVX2.
#include "ops/extern/cpu/bag_rows.h"

#include <cstring>

#pragma GCC target("avx2")

namespace lutra {
namespace {

#include "ops/extern/cpu/bag_rows.inc"

}  // namespace

template <>
const BagRows<float>& bag_rows_avx2() {
  return kBagRows<float>;
}
template <>
const BagRows<double>& bag_rows_avx2() {
  return kBagRows<double>;
}

}  // namespace lutra
