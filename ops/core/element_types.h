// The C++ type of a dtype's elements, and calls of templates with that type.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/core/dtype.h"
#include "ops/core/error.h"
#include "ops/core/half.h"

namespace lutra {

// A bool, whose sum is "or" and whose product is "and".
struct Bool8 {
  uint8_t v;
};

// A float of `Bits` that converts to and from float.
template <class Bits, float (*kValue)(Bits), Bits (*kRound)(float)>
struct SmallFloat {
  Bits bits;
  SmallFloat() = default;
  explicit SmallFloat(float f) : bits(kRound(f)) {}
  explicit operator float() const { return kValue(bits); }
};
using Half = SmallFloat<uint16_t, half_to_float, float_to_half>;
using BFloat16 = SmallFloat<uint16_t, bfloat16_to_float, float_to_bfloat16>;
using Float8E4M3FN = SmallFloat<uint8_t, float8_to_float<3>, float_to_float8<3>>;
using Float8E5M2 = SmallFloat<uint8_t, float8_to_float<2>, float_to_float8<2>>;

// Two int4, the first in the lower half.
struct Int4 {
  uint8_t pair;
};

// Memory of a complex number.
template <class Part>
struct Complex {
  Part re, im;
};
template <class T>
constexpr bool kIsComplex = false;
template <class Part>
constexpr bool kIsComplex<Complex<Part>> = true;

// Calls f.template operator()<T>() with T the type of a computed dtype's elements.
template <class F>
decltype(auto) with_element_type(DType dtype, F&& f) {
  switch (dtype) {
#define X(e, name, ir, type, ...) \
  case DType::e: return f.template operator()<type>();
    LUTRA_DTYPES(X)
#undef X
    default: fail_internal("an element of ", name(dtype), " where arithmetic is done");
  }
}

// Does the same for every dtype.
template <class F>
decltype(auto) with_stored_type(DType dtype, F&& f) {
  switch (dtype) {
#define X(e, name, ir, type, ...) \
  case DType::e: return f.template operator()<type>();
    LUTRA_ALL_DTYPES(X)
#undef X
    case DType::kNone: break;
  }
  fail_internal("an element of no dtype");
}

// Does the same for the computed float dtypes.
template <class F>
decltype(auto) with_float_type(DType dtype, F&& f) {
  if (!is_float(dtype)) fail_internal("an element of ", name(dtype), " where floats are meant");
  return with_element_type(dtype, [&]<class T>() -> decltype(f.template operator()<float>()) {
    if constexpr (!std::is_integral_v<T> && !std::is_same_v<T, Bool8>) return f.template operator()<T>();
    fail_internal("an integer where floats are meant");
  });
}

}  // namespace lutra
