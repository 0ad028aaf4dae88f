// Element types as the CPU's kernels compute with them: the C++ type of a dtype's storage, and its arithmetic.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/core/dtype.h"
#include "ops/core/error.h"
#include "ops/core/half.h"

namespace lutra {

// A bool: sums are "or", products "and".
struct Bool8 {
  uint8_t v;
};

struct Half {
  uint16_t bits;
  Half() = default;
  explicit Half(float f) : bits(float_to_half(f)) {}
  explicit operator float() const { return half_to_float(bits); }
};

struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  explicit BFloat16(float f) : bits(float_to_bfloat16(f)) {}
  explicit operator float() const { return bfloat16_to_float(bits); }
};

// What arithmetic on T is done in; integers wrap, so in their unsigned counterparts.
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

// f.template operator()<T>() with the storage type of dtype.
template <class F>
decltype(auto) with_element_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool: return f.template operator()<Bool8>();
    case DType::kUInt8: return f.template operator()<uint8_t>();
    case DType::kInt8: return f.template operator()<int8_t>();
    case DType::kInt16: return f.template operator()<int16_t>();
    case DType::kInt32: return f.template operator()<int32_t>();
    case DType::kInt64: return f.template operator()<int64_t>();
    case DType::kFloat16: return f.template operator()<Half>();
    case DType::kBFloat16: return f.template operator()<BFloat16>();
    case DType::kFloat32: return f.template operator()<float>();
    case DType::kFloat64: return f.template operator()<double>();
    case DType::kNone: break;
  }
  fail_internal("an element of no dtype");
}

// The same for floating-point dtypes.
template <class F>
decltype(auto) with_float_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat16: return f.template operator()<Half>();
    case DType::kBFloat16: return f.template operator()<BFloat16>();
    case DType::kFloat32: return f.template operator()<float>();
    case DType::kFloat64: return f.template operator()<double>();
    default: fail_internal("an element of ", name(dtype), " where floats are meant");
  }
}

// A float element as another float type.
template <class T, class S>
T converted(S v) {
  return T(typename Arithmetic<S>::type(v));
}

// A number as an element: rounded, integers take the whole part.
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
