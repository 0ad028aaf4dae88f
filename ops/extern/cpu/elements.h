// Element types as the CPU's kernels compute with them: the C++ type of a dtype's storage, and its arithmetic.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/core/dtype.h"
#include "ops/core/error.h"

namespace lutra {

// A bool: sums are "or", products "and".
struct Bool8 {
  uint8_t v;
};

// Rounds to the nearest, ties to even.
inline uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return uint16_t(sign | 0x7e00);
  if (rest >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds to 65536 or more
  if (rest < 0x38800000) {                                 // subnormal: let the addition round to its unit
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t rounded = rest + 0xfff + (rest >> 13 & 1);
  return uint16_t(sign | ((rounded >> 13) - 0x1c000));
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest < 0x400) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(float(rest) * 0x1p-24f));
  return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000));
}

struct Half {
  uint16_t bits;
  Half() = default;
  explicit Half(float f) : bits(float_to_half(f)) {}
  explicit operator float() const { return half_to_float(bits); }
};

struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  explicit BFloat16(float f) {
    const uint32_t b = std::bit_cast<uint32_t>(f);
    bits = f != f ? 0x7fc0 : uint16_t((b + 0x7fff + (b >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
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
