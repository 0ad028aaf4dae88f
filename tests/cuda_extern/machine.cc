// In: kernel sources. Out: shared libraries of the host. Blocks run one after the other; the threads of a block take
// turns between barriers.
#include "tests/cuda_extern/machine.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include "ops/core/error.h"
#include "ops/cuda/loaded_module.h"
#include "tests/cuda_codegen/cubins.h"
#include "tests/seeds.h"

namespace lutra::cuda {
namespace {

const char kShim[] = R"cpp(
#include <ucontext.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>
#define LUTRA_EMULATED 1
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __global__
#define __shared__ static
#define __restrict__
#define __launch_bounds__(...)
  struct Dim {
    unsigned x = 1, y = 1, z = 1;
  };
  static Dim threadIdx, blockIdx, blockDim, gridDim;
  static ucontext_t scheduler;
  struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false;
  };
  static std::vector<Fiber> fibers;
  static unsigned current, alive, arrived, generation;
  static void yield() {
    const unsigned me = current;
    swapcontext(&fibers[me].context, &scheduler);
  }
  static void release() {
    if (arrived >= alive) arrived = 0, generation++;
  }
  static void __syncthreads() {
    const unsigned mine = generation;
    arrived++;
    release();
    while (generation == mine) yield();
  }
  static void __syncwarp(unsigned = 0) { yield(); }
  static unsigned char exchange[32][32][32];
  // Every lane's value of the warp: all lanes take part.
  template <class T>
  static T from_lane(T v, unsigned lane) {
    const unsigned warp = threadIdx.x / 32, me = threadIdx.x % 32;
    std::memcpy(exchange[warp][me], &v, sizeof v);
    yield();
    T r;
    std::memcpy(&r, exchange[warp][lane & 31], sizeof r);
    yield();
    return r;
  }
  template <class T>
  static T __shfl_sync(unsigned, T v, int lane) {
    return from_lane(v, lane);
  }
  template <class T>
  static T __shfl_xor_sync(unsigned, T v, int mask) {
    return from_lane(v, threadIdx.x % 32 ^ mask);
  }
  template <class T>
  static T __shfl_down_sync(unsigned, T v, int n) {
    const unsigned lane = threadIdx.x % 32 + n;
    return from_lane(v, lane > 31 ? threadIdx.x % 32 : lane);
  }
  static unsigned __ballot_sync(unsigned, bool x) {
    const unsigned warp = threadIdx.x / 32, me = threadIdx.x % 32;
    exchange[warp][me][0] = x;
    yield();
    unsigned r = 0;
    for (unsigned lane = 0; lane < 32; lane++) r |= (unsigned)exchange[warp][lane][0] << lane;
    yield();
    return r;
  }
  static unsigned __match_any_sync(unsigned, unsigned long long x) {
    const unsigned warp = threadIdx.x / 32, me = threadIdx.x % 32;
    std::memcpy(exchange[warp][me], &x, sizeof x);
    yield();
    unsigned r = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
      r |= unsigned(std::memcmp(exchange[warp][lane], &x, sizeof x) == 0) << lane;
    }
    yield();
    return r;
  }
  static int __ffs(int x) { return __builtin_ffs(x); }
  static int __popc(unsigned x) { return __builtin_popcount(x); }
  template <class T>
  static T atomicAdd(T* p, T v) {
    const T old = *p;
    *p += v;
    return old;
  }
  template <class T>
  static T atomicMax(T* p, T v) {
    const T old = *p;
    if (v > old) *p = v;
    return old;
  }
  static int atomicCAS_system(int* p, int compare, int v) {
    const int old = *p;
    if (old == compare) *p = v;
    return old;
  }
  static void __threadfence_system() {}
#define __expf(x) std::exp((float)(x))
  static void cudaGraphSetConditional(unsigned long long handle, unsigned value) { *(unsigned*)handle = value; }
  static unsigned bits_of(float f) {
    unsigned b;
    std::memcpy(&b, &f, 4);
    return b;
  }
  static float float_of(unsigned b) {
    float f;
    std::memcpy(&f, &b, 4);
    return f;
  }
  static unsigned long long bits_of(double f) {
    unsigned long long b;
    std::memcpy(&b, &f, 8);
    return b;
  }
  static double double_of(unsigned long long b) {
    double f;
    std::memcpy(&f, &b, 8);
    return f;
  }
#define DYNAMIC_SHARED(name) alignas(16) static float name[1 << 16]
  struct alignas(16) float4 {
    float x, y, z, w;
  };
  using namespace std;
)cpp";

const char kDriver[] = R"cpp(
  template <class... A, size_t... I>
  static void unpack(void (*kernel)(A...), void** p, index_sequence<I...>) {
    kernel(*(remove_const_t<A>*)p[I]...);
  }
  template <class... A>
  static void call(void (*kernel)(A...), void** p) {
    unpack(kernel, p, index_sequence_for<A...>());
  }
  static void (*thread_body)(void**);
  static void** arguments;
  static void run_fiber() {
    thread_body(arguments);
    fibers[current].done = true;
    alive--;
    release();
    swapcontext(&fibers[current].context, &scheduler);
  }
  static void run_block(unsigned n) {
    fibers.resize(n);
    alive = n, arrived = 0;
    for (unsigned t = 0; t < n; t++) {
      Fiber& f = fibers[t];
      f.stack.resize(1 << 16);
      f.done = false;
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data(), f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      makecontext(&f.context, run_fiber, 0);
    }
    while (alive) {
      for (current = 0; current < n; current++) {
        if (fibers[current].done) continue;
        threadIdx.x = current;
        swapcontext(&scheduler, &fibers[current].context);
      }
    }
  }
  static void run_grid(void (*kernel)(void**), const long long* grid, unsigned n, void** params, bool barriers) {
    thread_body = kernel, arguments = params;
    threadIdx = Dim{0, 0, 0};
    blockDim.x = n, gridDim = Dim{(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
      for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
          if (barriers) {
            run_block(n);
            continue;
          }
          for (unsigned t = 0; t < n; t++) threadIdx.x = t, kernel(params);
        }
  }
)cpp";

// Whether each kernel of the text begins with the statement: a graph may launch it before what it depends on has ended.
bool all_begin_with(const std::string& text, const std::string& statement) {
  const std::string kernel = "\nKERNEL ";
  for (size_t at = text.find(kernel); at != text.npos; at = text.find(kernel, at + 1)) {
    const size_t first = text.find_first_not_of(" \n", text.find('{', at) + 1);
    if (text.compare(first, statement.size(), statement)) return false;
  }
  return true;
}

const std::string kCompile = "g++ -std=c++20 -O1 -w -ffp-contract=off -fPIC -o ";

}  // namespace

HostMachine::HostMachine() {
  char name[] = "/tmp/lutra_kernels_XXXXXX";
  LUTRA_CHECK(mkdtemp(name));
  folder_ = name;
  std::ofstream(folder_ + "/shim.h") << kShim;
  const std::string header = kCompile + folder_ + "/shim.h.gch -x c++-header " + folder_ + "/shim.h";
  LUTRA_CHECK(system(header.c_str()) == 0, "the shim does not compile");
  set_emulator(this);
}

HostMachine::~HostMachine() {
  set_emulator(nullptr);
  for (auto& [text, handle] : loaded_) {
    if (handle) dlclose(handle);
  }
  if (!std::getenv("LUTRA_KEEP_KERNELS")) (void)!system(("rm -rf " + folder_).c_str());
  if (!has_nvrtc()) return;
  // NVRTC takes what it has not seen yet of this process's kernels: one of each variant, and a part of the other dtypes
  // (attention's take long and are alike), each for one of the two architectures. LUTRA_TEST_SCALE=4: all, variants for
  // both.
  const bool all = rounds(1) >= 4;
  static std::set<std::string> seen;
  std::map<int, std::set<std::string>> sources;
  for (const std::string& text : texts_) {
    const uint64_t hash = std::hash<std::string>()(text);
    const int arch = hash % 2 ? 80 : 90;
    if (seen.insert(text.substr(text.find("#define VARIANT"))).second) {
      sources[arch].insert(text);
      if (all) sources[170 - arch].insert(text);
    } else if ((all || hash / 2 % 4 == 0) && text.find("\n// attention\n") == text.npos && seen.insert(text).second) {
      sources[arch].insert(text);
    }
  }
  for (const auto& [arch, texts] : sources) CHECK(compile_problems(texts, {arch}) == "");
}

void HostMachine::launch(const std::string& text, const char* name, const ExternGrid& grid, unsigned block,
                         void** params) {
  launches[name]++;
  void*& handle = loaded_[text + name];
  if (!handle) {
    texts_.insert(text);
    CHECK(all_begin_with(text, "sync_dependencies();"));
    const std::string base = folder_ + "/" + std::to_string(loaded_.size());
    std::ofstream(base + ".cu") << text;
    std::ofstream out(base + ".cc");
    out << "#include \"shim.h\"\n" << text << kDriver;
    const bool barriers = text.find("__sync") != text.npos || text.find("_sync(") != text.npos;
    out << "static void body(void** p) { call(" << name << ", p); }\nextern \"C\" void run"
        << "(const long long* grid, unsigned n, void** p) { run_grid(body, grid, n, p, " << barriers << "); }\n";
    out.close();
    const std::string command = kCompile + base + ".so -shared " + base + ".cc";
    LUTRA_CHECK(system(command.c_str()) == 0, "a kernel does not compile: ", base);
    handle = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    LUTRA_CHECK(handle, dlerror());
  }
  using Run = void (*)(const int64_t*, unsigned, void**);
  auto run = reinterpret_cast<Run>(dlsym(handle, "run"));
  LUTRA_CHECK(run, name);
  const int64_t sizes[3] = {grid.x, grid.y, grid.z};
  run(sizes, block, params);
}

}  // namespace lutra::cuda
