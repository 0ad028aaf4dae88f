// Makes tensors from listed values, and returns their elements as doubles, for tests that compute references with plain
// loops.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/defs/call.h"

namespace lutra {

inline int64_t count(const Tensor& t) {
  int64_t n = 1;
  for (SymInt s : t->sizes) n *= s.hint;
  return n;
}

// The element at a position in logical (row-major) order.
inline char* address(const Tensor& t, int64_t linear) {
  int64_t offset = 0;
  for (size_t d = t->sizes.size(); d-- > 0;) {
    offset += linear % t->sizes[d].hint * t->strides[d].hint;
    linear /= t->sizes[d].hint;
  }
  return t->data_as<char>() + offset * int64_t(size_of(t->dtype));
}

template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool: return f(bool());
    case DType::kUInt8: return f(uint8_t());
    case DType::kInt32: return f(int32_t());
    case DType::kInt64: return f(int64_t());
    case DType::kFloat64: return f(double());
    default: return f(float());
  }
}

inline double get(const Tensor& t, int64_t linear) {
  return with_type(t->dtype, [&](auto x) {
    std::memcpy(&x, address(t, linear), sizeof x);
    return double(x);
  });
}
inline void put(const Tensor& t, int64_t linear, double value) {
  with_type(t->dtype, [&](auto x) {
    x = decltype(x)(value);
    std::memcpy(address(t, linear), &x, sizeof x);
  });
}
inline std::vector<double> values(const Tensor& t) {
  std::vector<double> v;
  for (int64_t i = 0; i < count(t); i++) v.push_back(get(t, i));
  return v;
}

// Small whole numbers and quarters, positive and negative where the type has them; a fixed function of seed.
inline Tensor fill(const Tensor& t, uint32_t seed) {
  for (int64_t i = 0; i < count(t); i++) {
    seed = seed * 1664525u + 1013904223u;
    const int v = int(seed >> 24) % 41;
    put(t, i,
        t->dtype == DType::kBool    ? double(v & 1)
        : t->dtype == DType::kUInt8 ? double(v)
        : is_float(t->dtype)        ? (v - 20) * 0.25
                                    : double(v - 20));
  }
  return t;
}
inline Tensor tensor_of(const Sizes& sizes, DType dtype, uint32_t seed) {
  return fill(make_tensor(sizes, dtype), seed);
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a->dtype != b->dtype || a->sizes.size() != b->sizes.size()) return false;
  for (size_t d = 0; d < a->sizes.size(); d++) {
    if (a->sizes[d].hint != b->sizes[d].hint) return false;
  }
  for (int64_t i = 0; i < count(a); i++) {
    if (std::memcmp(address(a, i), address(b, i), size_of(a->dtype)) != 0) return false;
  }
  return true;
}

inline Scalar integer(int64_t v) { return Scalar::of_int(v); }

}  // namespace lutra
