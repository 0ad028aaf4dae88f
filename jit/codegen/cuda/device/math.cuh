// The operations on float and double that jit/loop/math.h and functions.h need. Their texts follow.
namespace lutra::loop {
inline float mul_add(float a, float b, float c) { return fmaf(a, b, c); }
inline double mul_add(double a, double b, double c) { return fma(a, b, c); }
inline void fma_into(float& p, float x, float c) { p = fmaf(p, x, c); }
inline void fma_into(double& p, double x, double c) { p = fma(p, x, c); }
inline float root(float x) { return sqrtf(x); }
inline double root(double x) { return sqrt(x); }
inline float floor_of(float x) { return floorf(x); }
inline double floor_of(double x) { return floor(x); }
inline float fmod_of(float a, float b) { return fmodf(a, b); }
inline double fmod_of(double a, double b) { return fmod(a, b); }
template <class F>
inline F lower(F c, F x) {
  return c < x ? c : x;
}
template <class F>
inline F raise(F c, F x) {
  return c > x ? c : x;
}
inline uint32_t bits(float x) { return __float_as_uint(x); }
inline uint64_t bits(double x) { return uint64_t(__double_as_longlong(x)); }
inline float floating(uint32_t i) { return __uint_as_float(i); }
inline double floating(uint64_t i) { return __longlong_as_double(int64_t(i)); }
template <class T>
inline T select(bool mask, T a, T b) {
  return mask ? a : b;
}
inline double widen(float x) { return x; }
inline float narrow(double x) { return float(x); }
template <class F>
inline float by_double(bool mask, float r, float x, const F& f) {
  return mask ? float(f(double(x))) : r;
}
template <class T, class F>
inline T rarely(bool mask, T r, T x, const F& f) {
  return mask ? f(x) : r;
}
inline uint32_t shl(uint32_t i, int n) { return i << n; }
inline uint64_t shl(uint64_t i, int n) { return i << n; }
inline uint32_t shr(uint32_t i, int n) { return i >> n; }
inline uint64_t shr(uint64_t i, int n) { return i >> n; }
inline uint64_t mul32(uint64_t a, uint64_t b) { return uint64_t(uint32_t(a)) * uint32_t(b); }

template <class F>
struct FloatTraits;
template <>
struct FloatTraits<float> {
  typedef uint32_t Int;
  typedef bool Mask;
  static constexpr int kBits = 32;
};
template <>
struct FloatTraits<double> {
  typedef uint64_t Int;
  typedef bool Mask;
  static constexpr int kBits = 64;
};
}  // namespace lutra::loop
