// Arithmetic of the CPU's kernels by element type.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/core/element_types.h"

namespace lutra {

// The type in which arithmetic on T is done. Integers wrap, so it is their unsigned counterpart.
template <class T>
struct Arithmetic {
  using type = std::make_unsigned_t<T>;
};
template <>
struct Arithmetic<float> {
  using type = float;
};
template <>
struct Arithmetic<double> {
  using type = double;
};
template <>
struct Arithmetic<Half> {
  using type = float;
};
template <>
struct Arithmetic<BFloat16> {
  using type = float;
};

// Converts a float element to another float type.
template <class T, class S>
T converted(S v) {
  return T(typename Arithmetic<S>::type(v));
}

// Converts a number to an element: rounds, and truncates for integers.
template <class T>
T element_of(double v) {
  if constexpr (std::is_same_v<T, Bool8>) {
    return Bool8{uint8_t(v != 0)};
  } else if constexpr (std::is_integral_v<T>) {
    return v > -9.3e18 && v < 9.223372036854775807e18 ? T(int64_t(v)) : T(INT64_MIN);
  } else {
    using A = typename Arithmetic<T>::type;
    return T(A(v));
  }
}

template <class T>
double to_double(T v) {
  if constexpr (std::is_same_v<T, Bool8>) {
    return v.v;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return double(v);
  } else {
    return double(float(v));
  }
}

}  // namespace lutra
