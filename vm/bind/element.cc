// One element of any dtype in, a Scalar out, and back.
#include "vm/bind/element.h"

#include <cmath>
#include <cstring>

namespace lutra {
namespace {

double half_to_double(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  double v = 0;
  if (exponent == 31) {
    v = mantissa ? std::nan("") : INFINITY;
  } else {
    v = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
  }
  return h & 0x8000 ? -v : v;
}

// Rounds to the nearest, ties to even; one rounding from double.
uint16_t double_to_half(double v) {
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  v = std::fabs(v);
  if (std::isnan(v)) return sign | 0x7e00;
  if (v >= 65520) return sign | 0x7c00;
  if (v == 0) return sign;
  int exponent = 0;
  std::frexp(v, &exponent);  // v = m * 2^exponent, m in [0.5, 1)
  const int unit = std::max(exponent - 11, -24);
  const double rounded = std::nearbyint(std::ldexp(v, -unit));
  if (unit == -24) return sign | uint16_t(rounded);  // subnormal, or the smallest normal
  return sign | uint16_t((unit + 24) * 1024 + int(rounded));
}

double bfloat16_to_double(uint16_t b) {
  const uint32_t bits = uint32_t(b) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

uint16_t float_to_bfloat16(float f) {
  if (std::isnan(f)) return 0x7fc0;
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  bits += 0x7fff + ((bits >> 16) & 1);
  return uint16_t(bits >> 16);
}

template <class T>
T load(const void* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

template <class T>
void store(void* at, T v) {
  std::memcpy(at, &v, sizeof v);
}

// Out of int64's range or NaN: the smallest, as x64's conversion gives.
int64_t whole_part(const Scalar& s) {
  if (s.kind != Scalar::kNumber) return s.i;
  return s.d > -9.3e18 && s.d < 9.223372036854775807e18 ? int64_t(s.d) : INT64_MIN;
}

}  // namespace

Scalar load_element(const void* at, DType dtype) {
  switch (dtype) {
    case DType::kBool: return Scalar::of_bool(load<uint8_t>(at) != 0);
    case DType::kUInt8: return Scalar::of_int(load<uint8_t>(at));
    case DType::kInt8: return Scalar::of_int(load<int8_t>(at));
    case DType::kInt16: return Scalar::of_int(load<int16_t>(at));
    case DType::kInt32: return Scalar::of_int(load<int32_t>(at));
    case DType::kInt64: return Scalar::of_int(load<int64_t>(at));
    case DType::kFloat16: return half_to_double(load<uint16_t>(at));
    case DType::kBFloat16: return bfloat16_to_double(load<uint16_t>(at));
    case DType::kFloat32: return double(load<float>(at));
    case DType::kFloat64: return load<double>(at);
    case DType::kNone: break;
  }
  fail_internal("element of no dtype");
}

void store_element(void* at, DType dtype, const Scalar& value) {
  switch (dtype) {
    case DType::kBool: return store<uint8_t>(at, value.to_double() != 0);
    case DType::kUInt8: return store(at, uint8_t(whole_part(value)));
    case DType::kInt8: return store(at, int8_t(whole_part(value)));
    case DType::kInt16: return store(at, int16_t(whole_part(value)));
    case DType::kInt32: return store(at, int32_t(whole_part(value)));
    case DType::kInt64: return store(at, whole_part(value));
    case DType::kFloat16: return store(at, double_to_half(value.to_double()));
    case DType::kBFloat16: return store(at, float_to_bfloat16(float(value.to_double())));
    case DType::kFloat32: return store(at, float(value.to_double()));
    case DType::kFloat64: return store(at, value.to_double());
    case DType::kNone: break;
  }
  fail_internal("element of no dtype");
}

void Elements::each(const std::function<void(const Scalar&)>& visit) const {
  if (t_->numel().hint > 0) walk(0, 0, visit);
}

void Elements::walk(size_t dim, int64_t offset, const std::function<void(const Scalar&)>& visit) const {
  if (dim == t_->sizes.size()) return visit(at(offset));
  for (int64_t i = 0; i < size(dim); ++i) walk(dim + 1, offset + i * stride(dim), visit);
}

}  // namespace lutra
