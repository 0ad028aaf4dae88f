// Sums and largest elements of some rows, in registers. There is one set of functions for each instruction set, with
// the same bits.
#pragma once
#include <cstdint>
#include <type_traits>

namespace lutra {

constexpr int kBagVectors = 8;  // the most vectors of a part of a row
template <class A>
constexpr int64_t kBagLanes = 32 / int64_t(sizeof(A));  // elements of a vector

// Functions of `count` > 0 parts of rows, with n elements each: from 1 to kBagLanes * kBagVectors.
template <class A>
struct BagRows {
  using Place = std::conditional_t<sizeof(A) == 4, int32_t, int64_t>;
  // to = rows[0] * scales[0] + rows[1] * scales[1] ..., from 0 and in order.
  void (*add)(const A* const* rows, const A* scales, int64_t count, int64_t n, A* to);
  // Replaces elements of `most` that a row exceeds; at: its number, or what it was. A NaN exceeds all numbers.
  void (*exceed)(const A* const* rows, int64_t count, int64_t n, A* most, Place* at);
  // Adds a part to compensated sums; ends these sums; divides.
  void (*add_part)(const A* part, int64_t n, A* sum, A* lost);
  void (*end)(const A* lost, int64_t n, A* sum);
  void (*divide)(A* to, int64_t n, A by);
};
template <class A>
const BagRows<A>& bag_rows_avx2();

}  // namespace lutra
