// Makes host code of generated CUDA source; precedes it in a translation unit. The threads of a block are fibers that
// run one after the other; barriers and shuffles switch between them. Blocks run one after the other.
// LUTRA_SHIM_LENIENT: threads that have ended count as arrived at every barrier, as on a GPU.
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};

namespace shim {

struct Index {
  unsigned x, y, z;
};
enum Wait { kNone, kWarp, kBlock, kDone };
struct Fiber {
  ucontext_t first;
  jmp_buf at;
  char* stack = nullptr;
  bool begun = false;
  Wait wait = kNone;
  Index thread;
  unsigned lane = 0, shuffles = 0;
  unsigned long long out[2];
};
constexpr size_t kStack = 128 * 1024;
#ifdef LUTRA_SHIM_LENIENT
constexpr bool kLenient = true;
#else
constexpr bool kLenient = false;
#endif
inline std::vector<Fiber> fibers;
inline Fiber* running = nullptr;
inline Index block, blocks, shape;
inline jmp_buf scheduler;
inline ucontext_t scheduler_context;
inline void (*body)(void*);
inline void* argument;

inline void wait(Wait what) {
  running->wait = what;
  if (_setjmp(running->at) == 0) _longjmp(scheduler, 1);
}
inline void enter() {
  body(argument);
  running->wait = kDone;
  _longjmp(scheduler, 1);
}
inline void resume(Fiber& f) {
  running = &f;
  if (_setjmp(scheduler) != 0) return;
  if (f.begun) _longjmp(f.at, 1);
  f.begun = true;
  getcontext(&f.first);
  f.first.uc_stack.ss_sp = f.stack;
  f.first.uc_stack.ss_size = kStack;
  f.first.uc_link = nullptr;
  makecontext(&f.first, enter, 0);
  setcontext(&f.first);
}

// Runs what can run; then the warps and the block whose threads have all arrived go on. Threads that are done count as
// arrived nowhere: a barrier that some leave out is an error.
inline void run_block(unsigned count) {
  for (unsigned done = 0; done < count;) {
    bool moved = false;
    for (unsigned i = 0; i < count; i++) {
      if (fibers[i].wait != kNone) continue;
      resume(fibers[i]);
      moved = true;
      done += fibers[i].wait == kDone;
    }
    for (unsigned w = 0; w < count; w += 32) {
      unsigned arrived = 0, left = 0;
      for (unsigned i = w; i < w + 32; i++) {
        arrived += fibers[i].wait == kWarp;
        left += kLenient && (i >= count || fibers[i].wait == kDone);
      }
      if (!arrived || arrived + left < 32) continue;
      for (unsigned i = w; i < w + 32; i++) {
        if (fibers[i].wait == kWarp) fibers[i].wait = kNone;
      }
      moved = true;
    }
    unsigned at_block = 0;
    for (unsigned i = 0; i < count; i++) at_block += fibers[i].wait == kBlock;
    if (at_block && at_block + (kLenient ? done : 0) == count) {
      for (unsigned i = 0; i < count; i++) {
        if (fibers[i].wait == kBlock) fibers[i].wait = kNone;
      }
      moved = true;
    }
    if (!moved && done < count) {
      fprintf(stderr, "shim: threads of a block wait for each other for ever\n");
      abort();
    }
  }
}

inline void launch(void (*f)(void*), void* arg, const unsigned* grid, const unsigned* threads) {
  const unsigned count = threads[0] * threads[1] * threads[2];
  body = f, argument = arg;
  if (fibers.size() < count + 31) fibers.resize((count + 31) / 32 * 32);
  for (Fiber& fiber : fibers) {
    if (!fiber.stack) fiber.stack = static_cast<char*>(malloc(kStack));
  }
  blocks = {grid[0], grid[1], grid[2]};
  shape = {threads[0], threads[1], threads[2]};
  for (unsigned b = 0; b < grid[0] * grid[1] * grid[2]; b++) {
    block = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
    for (unsigned i = 0; i < count; i++) {
      Fiber& t = fibers[i];
      t.begun = false, t.wait = kNone, t.lane = i, t.shuffles = 0;
      t.thread = {i % threads[0], i / threads[0] % threads[1], i / threads[0] / threads[1]};
    }
    run_block(count);
  }
}

template <class T>
T exchange(T x, unsigned from) {
  Fiber& me = *running;
  const unsigned turn = me.shuffles++ % 2;
  memcpy(&me.out[turn], &x, sizeof x);
  wait(kWarp);
  T other;
  memcpy(&other, &fibers[from].out[turn], sizeof other);
  return other;
}

}  // namespace shim

#define threadIdx (shim::running->thread)
#define blockIdx (shim::block)
#define gridDim (shim::blocks)
#define blockDim (shim::shape)

inline void __syncthreads() { shim::wait(shim::kBlock); }
inline void __syncwarp() { shim::wait(shim::kWarp); }
template <class T>
T __shfl_xor_sync(unsigned, T x, int apart) {
  return shim::exchange(x, shim::running->lane ^ unsigned(apart));
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline int atomicCAS(int* p, int expected, int wanted) {
  const int old = *p;
  if (old == expected) *p = wanted;
  return old;
}
inline void __threadfence_system() {}
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r = r << 1 | (x >> i & 1);
  return r;
}
template <class To, class From>
To shim_bits(From x) {
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
inline float __uint_as_float(unsigned x) { return shim_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return shim_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return shim_bits<double>(x); }
inline long long __double_as_longlong(double x) { return shim_bits<long long>(x); }
