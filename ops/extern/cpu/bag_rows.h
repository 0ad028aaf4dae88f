// Sums and largest elements of some rows, in registers. There is one set of functions for each instruction set, with
// the same bits.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lutra {

constexpr int kBagVectors = 8;  // the most vectors of a part of a row
template <class A>
constexpr int64_t kBagLanes = 32 / int64_t(sizeof(A));  // elements of a vector

// Functions of `count` > 0 parts of rows, with n elements each: kBagLanes times 8, 4, 2 or 1, or fewer than kBagLanes.
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

template <class T>
using BagVector [[gnu::vector_size(32)]] = T;
template <class V, class T>
[[gnu::always_inline]] inline void load_bag_vector(V& v, const T* from, int64_t n) {
  v = V{};
  std::memcpy(&v, from, size_t(n) * sizeof(T));
}

// n: the elements of each vector.
template <class A, int kVectors>
[[gnu::always_inline]] inline void add_bag_vectors(const A* const* rows, const A* scales, int64_t count, int64_t n,
                                                   A* to) {
  BagVector<A> sum[kVectors] = {};
  for (int64_t r = 0; r < count; r++) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) {
      BagVector<A> x;
      load_bag_vector(x, rows[r] + v * kBagLanes<A>, n);
      sum[v] += x * scales[r];
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v++) std::memcpy(to + v * kBagLanes<A>, &sum[v], size_t(n) * sizeof(A));
}

template <class A, int kVectors>
[[gnu::always_inline]] inline void exceed_bag_vectors(const A* const* rows, int64_t count, int64_t n, A* most,
                                                      typename BagRows<A>::Place* at) {
  using Place = typename BagRows<A>::Place;
  BagVector<A> best[kVectors];
  BagVector<Place> place[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v++) {
    load_bag_vector(best[v], most + v * kBagLanes<A>, n);
    load_bag_vector(place[v], at + v * kBagLanes<A>, n);
  }
  for (int64_t r = 0; r < count; r++) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v++) {
      BagVector<A> x;
      load_bag_vector(x, rows[r] + v * kBagLanes<A>, n);
      const auto exceeds = ~(x <= best[v]) & (best[v] == best[v]);
      best[v] = exceeds ? x : best[v];
      place[v] = exceeds ? BagVector<Place>{} + Place(r) : place[v];
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; v++) {
    std::memcpy(most + v * kBagLanes<A>, &best[v], size_t(n) * sizeof(A));
    std::memcpy(at + v * kBagLanes<A>, &place[v], size_t(n) * sizeof(Place));
  }
}

template <class A>
[[gnu::always_inline]] inline void add_bag_part(const A* __restrict part, int64_t n, A* __restrict sum,
                                                A* __restrict lost) {
  for (int64_t k = 0; k < n; k++) {
    const A t = sum[k] + part[k];
    lost[k] += part[k] - (t - sum[k]);
    sum[k] = t;
  }
}

template <class A>
[[gnu::always_inline]] inline void end_bag_sums(const A* __restrict lost, int64_t n, A* __restrict sum) {
  for (int64_t k = 0; k < n; k++) sum[k] = lost[k] == lost[k] ? sum[k] + lost[k] : sum[k];
}

template <class A>
[[gnu::always_inline]] inline void add_bag_rows(const A* const* rows, const A* scales, int64_t count, int64_t n,
                                                A* to) {
  constexpr int64_t lanes = kBagLanes<A>;
  switch (n / lanes) {
    case 8: return add_bag_vectors<A, 8>(rows, scales, count, lanes, to);
    case 4: return add_bag_vectors<A, 4>(rows, scales, count, lanes, to);
    case 2: return add_bag_vectors<A, 2>(rows, scales, count, lanes, to);
    case 1: return add_bag_vectors<A, 1>(rows, scales, count, lanes, to);
    default: return add_bag_vectors<A, 1>(rows, scales, count, n, to);
  }
}

template <class A>
[[gnu::always_inline]] inline void exceed_bag_rows(const A* const* rows, int64_t count, int64_t n, A* most,
                                                   typename BagRows<A>::Place* at) {
  constexpr int64_t lanes = kBagLanes<A>;
  switch (n / lanes) {
    case 8: return exceed_bag_vectors<A, 8>(rows, count, lanes, most, at);
    case 4: return exceed_bag_vectors<A, 4>(rows, count, lanes, most, at);
    case 2: return exceed_bag_vectors<A, 2>(rows, count, lanes, most, at);
    case 1: return exceed_bag_vectors<A, 1>(rows, count, lanes, most, at);
    default: return exceed_bag_vectors<A, 1>(rows, count, n, most, at);
  }
}

}  // namespace lutra
