// Rows of few-bit weights for any machine.
#include "ops/extern/cpu/weight_rows.h"

#include <cmath>
#include <cstring>

namespace lutra {
namespace {

struct Vec {
  float lane[kWeightLanes];
};
struct Words {
  uint32_t word[kWeightLanes];
};
template <class F>
inline Vec each(const F& f) {
  Vec r;
  for (int i = 0; i < kWeightLanes; i++) r.lane[i] = f(i);
  return r;
}
inline Vec load(const float* p) {
  return each([&](int i) { return p[i]; });
}
inline Vec splat(float x) {
  return each([&](int) { return x; });
}
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return each([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
inline Vec add(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline float total(Vec v) {
  for (int far = kWeightLanes / 2; far; far /= 2) {
    for (int i = 0; i < far; i++) v.lane[i] += v.lane[i + far];
  }
  return v.lane[0];
}
inline Vec of_int8(const int8_t* p) {
  return each([&](int i) { return float(p[i]); });
}
inline Words words(const uint8_t* p) {
  Words r;
  std::memcpy(r.word, p, sizeof r.word);
  return r;
}
inline Vec nibble(const Words& v, int j) {
  return each([&](int i) { return float(int((v.word[i] >> 4 * j & 15) ^ 8) - 8); });
}

#include "ops/extern/cpu/weight_rows.inc"

}  // namespace

const WeightKernels kWeightBase = {int8_rows, int4_rows};

}  // namespace lutra
