// Implements math.h's operations for plain floats, doubles and unsigned integers, for the interpreter.
// Include it before math.h's templates are instantiated: operations on built-in types are found only here.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace lutra::loop {

inline float mul_add(float a, float b, float c) { return std::fma(a, b, c); }
inline double mul_add(double a, double b, double c) { return std::fma(a, b, c); }
inline void fma_into(float& p, float x, float c) { p = std::fma(p, x, c); }
inline void fma_into(double& p, double x, double c) { p = std::fma(p, x, c); }
inline float root(float x) { return std::sqrt(x); }
inline double root(double x) { return std::sqrt(x); }
inline float floor_of(float x) { return std::floor(x); }
inline double floor_of(double x) { return std::floor(x); }
inline float fmod_of(float a, float b) { return std::fmod(a, b); }
inline double fmod_of(double a, double b) { return std::fmod(a, b); }
template <class F>
F lower(F c, F x) {
  return c < x ? c : x;
}
template <class F>
F raise(F c, F x) {
  return c > x ? c : x;
}
inline uint32_t bits(float x) {
  uint32_t i;
  memcpy(&i, &x, sizeof i);
  return i;
}
inline uint64_t bits(double x) {
  uint64_t i;
  memcpy(&i, &x, sizeof i);
  return i;
}
inline float floating(uint32_t i) {
  float x;
  memcpy(&x, &i, sizeof x);
  return x;
}
inline double floating(uint64_t i) {
  double x;
  memcpy(&x, &i, sizeof x);
  return x;
}
template <class T>
T select(bool mask, T a, T b) {
  return mask ? a : b;
}
inline double widen(float x) { return x; }
inline float narrow(double x) { return float(x); }
template <class F>
float by_double(bool mask, float r, float x, const F& f) {
  return mask ? float(f(double(x))) : r;
}
template <class T, class F>
T rarely(bool mask, T r, T x, const F& f) {
  return mask ? f(x) : r;
}
inline uint32_t shl(uint32_t i, int n) { return i << n; }
inline uint64_t shl(uint64_t i, int n) { return i << n; }
inline uint32_t shr(uint32_t i, int n) { return i >> n; }
inline uint64_t shr(uint64_t i, int n) { return i >> n; }
inline uint64_t mul32(uint64_t a, uint64_t b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }

}  // namespace lutra::loop

#include "jit/loop/functions.h"

namespace lutra::loop {
template <>
struct FloatTraits<float> {
  using Int = uint32_t;
  using Mask = bool;
  static constexpr int kBits = 32;
};
template <>
struct FloatTraits<double> {
  using Int = uint64_t;
  using Mask = bool;
  static constexpr int kBits = 64;
};
}  // namespace lutra::loop
