// The head of every generated kernel: the block's fields, scalar types, loads and stores, and the instructions that C++
// does not have with loop IR's meaning. NVRTC compiles it, without standard headers.
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif
typedef long long i64;
typedef unsigned long long u64;

struct Fault {
  int set, arg;
  i64 index, bound, site;
};
struct Head {
  i64 begin, end;
  u64 seed, call;
  Fault* fault;
  void* stream;
  int device, reserved;
  i64 site;
};

inline bool within(i64 index, i64 bound, int arg, Fault* fault, i64 site) {
  if (u64(index) < u64(bound)) return true;
  if (fault && atomicCAS(&fault->set, 0, 1) == 0) {
    fault->arg = arg;
    fault->index = index;
    fault->bound = bound;
    fault->site = site;
    __threadfence_system();
  }
  return false;
}

// Returns a / b, and the remainder in rest; a >= 0, b > 0.
inline i64 split(i64 a, i64 b, i64& rest) {
  if (((u64(a) | u64(b)) >> 32) == 0) {
    const unsigned q = unsigned(a) / unsigned(b);
    rest = unsigned(a) - q * unsigned(b);
    return q;
  }
  const i64 q = a / b;
  rest = a - q * b;
  return q;
}

// Half floats: the bits in memory, and values, which are floats that the type can represent.
inline float f16_value(uint16_t h) {
#ifdef __CUDA_ARCH__
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
#else
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) return __uint_as_float(sign | __float_as_uint(float(mantissa) * 5.9604644775390625e-8f));
  return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
#endif
}
inline uint16_t f16_bits(float f) {
#ifdef __CUDA_ARCH__
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
#else
  const uint32_t u = __float_as_uint(f), a = u & 0x7fffffffu;
  const uint16_t sign = uint16_t(u >> 16 & 0x8000);
  if (a > 0x7f800000u) return uint16_t(sign | 0x7e00 | (a >> 13 & 0x3ff));
  if (a >= 0x477ff000u) return uint16_t(sign | 0x7c00);
  if (a < 0x38800000u) return uint16_t(sign | (__float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u));
  return uint16_t(sign | ((a + 0xfff + (a >> 13 & 1) - 0x38000000u) >> 13));
#endif
}
inline float bf16_value(uint16_t b) { return __uint_as_float(uint32_t(b) << 16); }
inline uint16_t bf16_bits(float f) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
#else
  const uint32_t u = __float_as_uint(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t(u >> 16 | 0x40);
  return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
#endif
}
inline i64 max1(i64 n) { return n > 1 ? n : 1; }

inline float f16(float x) { return f16_value(f16_bits(x)); }
inline float bf16(float x) { return bf16_value(bf16_bits(x)); }

// Several elements that are accessed as one.
template <class S, int N>
struct alignas(sizeof(S) * N) Pack {
  S e[N];
};
template <int kBytes>
struct Word {
  typedef uint4 T;
};
template <>
struct Word<8> {
  typedef uint2 T;
};
template <>
struct Word<4> {
  typedef unsigned T;
};
template <>
struct Word<2> {
  typedef unsigned short T;
};
template <>
struct Word<1> {
  typedef unsigned char T;
};
// For memory that no kernel writes meanwhile.
template <int N, class S>
inline Pack<S, N> read_pack(const S* p) {
  typedef typename Word<sizeof(S) * N>::T W;
  union {
    W word;
    Pack<S, N> pack;
  } u;
  u.word = __ldg(reinterpret_cast<const W*>(p));
  return u.pack;
}
template <int N, class S>
inline Pack<S, N> load_pack(const S* p) {
  return *reinterpret_cast<const Pack<S, N>*>(p);
}
template <int N, class S>
inline void store_pack(S* p, const Pack<S, N>& v) {
  *reinterpret_cast<Pack<S, N>*>(p) = v;
}

// Integers wrap: arithmetic is unsigned, in 32 or 64 bits.
template <int kBytes>
struct Unsigned {
  typedef unsigned T;
  typedef int S;
};
template <>
struct Unsigned<8> {
  typedef u64 T;
  typedef i64 S;
};
template <class T>
using UnsignedOf = typename Unsigned<sizeof(T)>::T;
template <class T>
using SignedOf = typename Unsigned<sizeof(T)>::S;

template <class T>
inline T add(T a, T b) {
  return T(UnsignedOf<T>(a) + UnsignedOf<T>(b));
}
inline float add(float a, float b) { return a + b; }
inline double add(double a, double b) { return a + b; }
template <class T>
inline T sub(T a, T b) {
  return T(UnsignedOf<T>(a) - UnsignedOf<T>(b));
}
template <class T>
inline T mul(T a, T b) {
  return T(UnsignedOf<T>(a) * UnsignedOf<T>(b));
}
inline float mul(float a, float b) { return a * b; }
inline double mul(double a, double b) { return a * b; }
// NaN is before all; of equal values returns the first one (also of 0 and -0).
template <class T>
inline T minimum(T a, T b) {
  return a <= b || a != a ? a : b;
}
template <class T>
inline T maximum(T a, T b) {
  return a >= b || a != a ? a : b;
}
template <class T>
inline T negated(T a) {
  return sub(T(0), a);
}
template <class T>
inline T absolute(T a) {
  return a < 0 ? negated(a) : a;
}
template <class T>
inline T quotient(T a, T b) {
  typedef SignedOf<T> S;
  if (b == 0) return 0;
  if (S(b) == -1) return negated(a);
  return T(S(a) / S(b));
}
template <class T>
inline T remainder_of_ints(T a, T b) {
  typedef SignedOf<T> S;
  if (b == 0 || S(b) == -1) return 0;
  const S r = S(a) % S(b);
  return T(r != 0 && (r < 0) != (S(b) < 0) ? r + S(b) : r);
}
template <class T>
inline T quotient_down(T a, T b) {
  typedef SignedOf<T> S;
  if (b == 0) return 0;
  if (S(b) == -1) return negated(a);
  const S q = S(a) / S(b), r = S(a) % S(b);
  return T(r != 0 && (r < 0) != (S(b) < 0) ? q - 1 : q);
}
inline i64 power(i64 base, i64 exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  u64 r = 1, b = u64(base);
  for (u64 e = u64(exponent); e; e >>= 1) {
    if (e & 1) r *= b;
    b *= b;
  }
  return i64(r);
}
inline i64 divisor(i64 a, i64 b) {
  u64 x = a < 0 ? 0 - u64(a) : u64(a), y = b < 0 ? 0 - u64(b) : u64(b);
  while (y) {
    const u64 rest = x % y;
    x = y;
    y = rest;
  }
  return i64(x);
}

// Converts floats to integers by truncation. NaN, and values that do not fit, give the smallest integer.
template <class F>
inline i64 to_i64(F x) {
  return x < F(9223372036854775808.0) && x >= F(-9223372036854775808.0) ? i64(x) : i64(0x8000000000000000ull);
}
inline int to_i32(float x) { return x < 2147483648.0f && x >= -2147483648.0f ? int(x) : int(0x80000000u); }
inline int to_i32(double x) { return x < 2147483648.0 && x > -2147483649.0 ? int(x) : int(0x80000000u); }
