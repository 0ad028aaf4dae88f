// The text that every kernel of this folder begins with: types, the CPU kernels' arithmetic, views, faults.
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

// There are no headers, because NVRTC finds none. LUTRA_EMULATED is defined for the tests' host compiler.
const char kPrelude[] = R"cuda(
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned u32;
typedef long long i64;
typedef unsigned long long u64;
#define DEV __device__ __forceinline__
#define CALLED static __device__ __noinline__
#define KERNEL extern "C" __global__ void
#define BOUNDS(...) __launch_bounds__(__VA_ARGS__)
#ifndef LUTRA_EMULATED
DEV u32 bits_of(float f) { return __float_as_uint(f); }
DEV float float_of(u32 b) { return __uint_as_float(b); }
DEV u64 bits_of(double f) { return (u64)__double_as_longlong(f); }
DEV double double_of(u64 b) { return __longlong_as_double((i64)b); }
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) float name[]
#endif
#define INF float_of(0x7f800000u)
#define QNAN float_of(0x7fc00000u)

struct bool8 { u8 v; };  // a sum is "or", a product is "and"
struct half16 { u16 bits; };
struct bfloat { u16 bits; };

// Rounds to the nearest, ties to even.
DEV half16 to_half(float f) {
  half16 h;
#ifdef LUTRA_EMULATED
  const u32 bits = bits_of(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) h.bits = (u16)(sign | 0x7e00);
  else if (rest >= 0x477ff000) h.bits = (u16)(sign | 0x7c00);
  else if (rest < 0x38800000) h.bits = (u16)(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000));
  else h.bits = (u16)(sign | (((rest + 0xfff + (rest >> 13 & 1)) >> 13) - 0x1c000));
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
#endif
  return h;
}
DEV float from_half(half16 h) {
#ifdef LUTRA_EMULATED
  const u32 sign = (u32)(h.bits & 0x8000) << 16, rest = h.bits & 0x7fff;
  if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest < 0x400) return float_of(sign | bits_of((float)rest * 5.9604644775390625e-8f));
  return float_of(sign | ((rest << 13) + 0x38000000));
#else
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits));
  return f;
#endif
}
DEV bfloat to_bfloat(float f) {
  const u32 b = bits_of(f);
  bfloat r;
  r.bits = f != f ? (u16)0x7fc0 : (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
  return r;
}
DEV float from_bfloat(bfloat h) { return float_of((u32)h.bits << 16); }

// up: converts an element to the type of arithmetic (integers: an unsigned type, since they wrap). down: rounds back.
template <class T> struct Num;
#define NUM(T, A_, FLOATING)                                                 \
  template <> struct Num<T> {                                                \
    typedef A_ A;                                                            \
    enum { floating = FLOATING };                                            \
    static DEV A up(T v) { return (A)v; }                                    \
    static DEV T down(A v) { return (T)v; }                                  \
    static DEV double wide(T v) { return (double)v; }                        \
  };
NUM(u8, u8, 0)
NUM(u16, u16, 0)
NUM(u32, u32, 0)
NUM(u64, u64, 0)
NUM(i8, u8, 0)
NUM(i16, u16, 0)
NUM(i32, u32, 0)
NUM(i64, u64, 0)
NUM(float, float, 1)
NUM(double, double, 1)
template <> struct Num<half16> {
  typedef float A;
  enum { floating = 1 };
  static DEV A up(half16 v) { return from_half(v); }
  static DEV half16 down(A v) { return to_half(v); }
  static DEV double wide(half16 v) { return (double)from_half(v); }
};
template <> struct Num<bfloat> {
  typedef float A;
  enum { floating = 1 };
  static DEV A up(bfloat v) { return from_bfloat(v); }
  static DEV bfloat down(A v) { return to_bfloat(v); }
  static DEV double wide(bfloat v) { return (double)from_bfloat(v); }
};
template <> struct Num<bool8> {
  typedef u8 A;
  enum { floating = 0 };
  static DEV A up(bool8 v) { return v.v; }
  static DEV bool8 down(A v) { bool8 r; r.v = v != 0; return r; }
  static DEV double wide(bool8 v) { return (double)v.v; }
};

// Returns a * b + c, rounded once.
DEV float mad(float a, float b, float c) { return fmaf(a, b, c); }
DEV double mad(double a, double b, double c) { return fma(a, b, c); }

// Converts a number to an element: rounds it; an integer takes the whole part.
template <class T, int kFloating> struct OfWide {
  static DEV T get(double v) {
    return v > -9.3e18 && v < 9.223372036854775807e18 ? (T)(i64)v : (T)(i64)0x8000000000000000ull;
  }
};
template <class T> struct OfWide<T, 1> {
  static DEV T get(double v) { return Num<T>::down((typename Num<T>::A)v); }
};
template <> struct OfWide<bool8, 0> {
  static DEV bool8 get(double v) { bool8 r; r.v = v != 0; return r; }
};
template <class T> DEV T element_of(double v) { return OfWide<T, Num<T>::floating>::get(v); }

// Converts from one element type to another.
template <class To, class From, int kWide> struct Convert {
  static DEV To get(From v) { return element_of<To>(Num<From>::wide(v)); }
};
template <class To, class From> struct Convert<To, From, 0> {
  static DEV To get(From v) { return (To)v; }
};
template <class T> struct IsInt { enum { yes = !Num<T>::floating }; };
template <> struct IsInt<bool8> { enum { yes = 0 }; };
template <class T> struct Convert<T, T, 1> { static DEV T get(T v) { return v; } };
template <class To, class From> DEV To convert(From v) {
  return Convert<To, From, !(IsInt<To>::yes && IsInt<From>::yes)>::get(v);
}

// The same layout as ExternView in ops/extern/extern.h.
struct View {
  void* data;
  u8 dtype;
  int dim;
  i64 sizes[16], strides[16];
};
// Returns the offset of the element with the row-major number i.
DEV i64 place(const View& v, i64 i) {
  i64 at = 0;
  for (int d = v.dim - 1; d > 0; d--) {
    const i64 n = v.sizes[d], q = ((u64)i >> 32) ? i / n : ((u64)n >> 32) ? 0 : (i64)((u32)i / (u32)n);
    at += (i - q * n) * v.strides[d];
    i = q;
  }
  return v.dim ? at + i * v.strides[0] : 0;
}

struct Fault { int set, arg; i64 index, bound, site; };
// Reports a fault. The first one stays until the host has read it.
DEV void report(Fault* f, i64 site, int arg, i64 index, i64 bound) {
  if (atomicCAS_system(&f->set, 0, 1) != 0) return;
  f->arg = arg, f->index = index, f->bound = bound, f->site = site;
  __threadfence_system();
}

DEV i64 thread_number() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

// Maps elements to unsigned keys in the order of sort: ascending, -0 equal to 0, NaNs equal and last.
DEV u64 sort_key(bool8 v) { return v.v != 0; }
DEV u64 sort_key(u8 v) { return v; }
DEV u64 sort_key(i8 v) { return (u8)((u8)v ^ 0x80); }
DEV u64 sort_key(i16 v) { return (u16)((u16)v ^ 0x8000); }
DEV u64 sort_key(i32 v) { return (u32)v ^ 0x80000000u; }
DEV u64 sort_key(i64 v) { return (u64)v ^ 0x8000000000000000ull; }
DEV u64 half_key(u16 b, u16 infinity) {
  const u16 rest = b & 0x7fff;
  if (rest > infinity) return 0xffff;
  if (rest == 0) return 0x8000;
  return b & 0x8000 ? (u16)~b : (u16)(b | 0x8000);
}
DEV u64 sort_key(half16 v) { return half_key(v.bits, 0x7c00); }
DEV u64 sort_key(bfloat v) { return half_key(v.bits, 0x7f80); }
DEV u64 sort_key(float v) {
  const u32 b = bits_of(v), rest = b & 0x7fffffffu;
  if (rest > 0x7f800000u) return 0xffffffffu;
  if (rest == 0) return 0x80000000u;
  return b >> 31 ? ~b : (b | 0x80000000u);
}
DEV u64 sort_key(double v) {
  const u64 b = bits_of(v), rest = b & 0x7fffffffffffffffull;
  if (rest > 0x7ff0000000000000ull) return ~0ull;
  if (rest == 0) return 0x8000000000000000ull;
  return b >> 63 ? ~b : (b | 0x8000000000000000ull);
}
)cuda";

}  // namespace lutra::cuda
