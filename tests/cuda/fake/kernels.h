// The header of kernels that fake_nvrtc.cc compiles, of both kinds (jit/codegen/cuda's text, ops/extern/cuda's): the
// shim of fibers, and the rest of CUDA that they use.
#define LUTRA_SHIM_LENIENT
#include "shim.h"

#include <utility>

#define LUTRA_EMULATED 1
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define DYNAMIC_SHARED(name) alignas(16) static float name[1 << 16]

struct alignas(16) float4 {
  float x, y, z, w;
};

template <class T>
T __shfl_sync(unsigned, T x, int lane) {
  return shim::exchange(x, (shim::running->lane & ~31u) | (unsigned(lane) & 31));
}
template <class T>
T __shfl_down_sync(unsigned, T x, int n) {
  const unsigned lane = shim::running->lane;
  return shim::exchange(x, (lane & 31) + unsigned(n) < 32 ? lane + unsigned(n) : lane);
}
inline unsigned __ballot_sync(unsigned, bool x) {
  unsigned r = 0;
  for (unsigned lane = 0; lane < 32; lane++)
    r |= unsigned(shim::exchange(x, (shim::running->lane & ~31u) | lane)) << lane;
  return r;
}
inline unsigned __match_any_sync(unsigned, unsigned long long x) {
  unsigned r = 0;
  for (unsigned lane = 0; lane < 32; lane++)
    r |= unsigned(shim::exchange(x, (shim::running->lane & ~31u) | lane) == x) << lane;
  return r;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline void __syncwarp(unsigned) { __syncwarp(); }
template <class T>
T atomicAdd(T* p, T v) {
  const T old = *p;
  *p += v;
  return old;
}
template <class T>
T atomicMax(T* p, T v) {
  const T old = *p;
  if (v > old) *p = v;
  return old;
}
inline int atomicCAS_system(int* p, int expected, int wanted) { return atomicCAS(p, expected, wanted); }
inline unsigned bits_of(float x) { return shim_bits<unsigned>(x); }
// A condition is a number of the fake driver.
inline void cudaGraphSetConditional(unsigned long long handle, unsigned value) {
  *reinterpret_cast<unsigned*>(handle) = value;
}
inline float float_of(unsigned x) { return shim_bits<float>(x); }
inline unsigned long long bits_of(double x) { return shim_bits<unsigned long long>(x); }
inline double double_of(unsigned long long x) { return shim_bits<double>(x); }
#define __expf(x) std::exp((float)(x))

// A kernel's parameters from their addresses; their sizes, for whoever keeps copies of them.
template <class... A, size_t... I>
void shim_call(void (*kernel)(A...), void** p, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_const_t<A>*>(p[I])...);
}
template <class... A>
void shim_call(void (*kernel)(A...), void** p) {
  shim_call(kernel, p, std::index_sequence_for<A...>());
}
template <class... A>
size_t shim_size(void (*)(A...), size_t i) {
  constexpr size_t sizes[] = {sizeof(A)..., 0};
  return i < sizeof...(A) ? sizes[i] : 0;
}
