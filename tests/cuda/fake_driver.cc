// The functions of the fake driver. They answer like a GPU that does everything at once.
// In the tests' executable they are called fake_cuInit and so on, so that they do not hide a real driver's functions.
// In a library (with LUTRA_FAKE_LIBRARY defined) the functions have the driver's names. Then FAKE_CUDA_DEVICES, _MEMORY
// (bytes), _VERSION, _FAIL (symbol:code), _IDLE, _PROTECT configure it; fake_cuda_fail(n, code) makes one call fail.
// Modules and graphs: fake_modules.cc.
#include "tests/cuda/fake_driver.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/cuda/fake_calls.h"

namespace lutra::cuda {
namespace {

constexpr Result kNoDevice = 100, kInvalidDevice = 101, kInvalidHandle = 400;

FakeGpu from_environment() {
  FakeGpu g;
#ifdef LUTRA_FAKE_LIBRARY
  if (const char* text = std::getenv("FAKE_CUDA_DEVICES")) g.devices = std::atoi(text);
  if (const char* text = std::getenv("FAKE_CUDA_MEMORY")) g.memory = size_t(std::atoll(text));
  g.idle = std::getenv("FAKE_CUDA_IDLE") != nullptr;
  g.protects = std::getenv("FAKE_CUDA_PROTECT") != nullptr;
  if (const char* text = std::getenv("FAKE_CUDA_VERSION")) g.version = std::atoi(text);
  if (const char* text = std::getenv("FAKE_CUDA_FAIL")) {
    const std::string all = text;
    const size_t colon = all.find(':');
    g.fail_symbol = all.substr(0, colon);
    g.fail_with = std::atoi(all.c_str() + colon + 1);
  }
#endif
  return g;
}

struct FakeEvent {
  float ms = 0;
  bool recorded = false;
};

thread_local ContextHandle current = nullptr;
float clock_ms = 0;  // each record is a millisecond later

bool is_fatal(Result r) { return r == 700 || r == 702 || (r >= 709 && r <= 719 && r != 711 && r != 712 && r != 713); }

bool inside(DevicePtr at, size_t n) {
  auto& blocks = fake_gpu().blocks;
  auto it = blocks.upper_bound(at);
  if (it == blocks.begin()) return false;
  --it;
  return at + n <= it->first + it->second;
}

void* pointer(DevicePtr at) { return reinterpret_cast<void*>(uintptr_t(at)); }

template <class F>
void perform(F work) {
  if (fake_record(work)) return;
  const FakeWork scope;
  work();
}

// Memory that can be protected alone: whole pages of its own.
void* take_pages(size_t n) {
  void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}
void protect(int how) {
  for (const auto& [at, n] : fake_gpu().blocks) mprotect(pointer(at), n, how);
}
int working = 0;  // scopes of FakeWork
constexpr Result kCaptureUnsupported = 900;
}  // namespace

FakeGpu& fake_gpu() {
  static FakeGpu gpu = from_environment();
  return gpu;
}

std::recursive_mutex& fake_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

FakeWork::FakeWork() {
  if (working++ == 0 && fake_gpu().protects) protect(PROT_READ | PROT_WRITE);
}
FakeWork::~FakeWork() {
  if (--working == 0 && fake_gpu().protects) protect(PROT_NONE);
}

Result fake_enter(const char* symbol) {
  FakeGpu& g = fake_gpu();
  const int call = g.calls++;
  if (g.lost) return g.lost;
  if (call != g.fail_at && g.fail_symbol != symbol) return kSuccess;
  g.failed = symbol;
  if (is_fatal(g.fail_with)) g.lost = g.fail_with;
  return g.fail_with;
}

FAKE(cuInit)(unsigned) {
  ENTER("cuInit");
  return fake_gpu().devices ? fake_gpu().init_result : kNoDevice;
}
FAKE(cuDriverGetVersion)(int* version) {
  ENTER("cuDriverGetVersion");
  *version = fake_gpu().version;
  return kSuccess;
}
FAKE(cuGetErrorName)(Result r, const char** text) {
  *text = r == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : r == 1   ? "CUDA_ERROR_INVALID_VALUE"
          : r == 100 ? "CUDA_ERROR_NO_DEVICE"
          : r == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
                     : "CUDA_ERROR_UNKNOWN";
  return kSuccess;
}
FAKE(cuGetErrorString)(Result r, const char** text) {
  *text = r == 2     ? "out of memory"
          : r == 1   ? "invalid argument"
          : r == 100 ? "no CUDA-capable device is detected"
          : r == 719 ? "unspecified launch failure"
                     : "unknown error";
  return kSuccess;
}
FAKE(cuDeviceGetCount)(int* count) {
  ENTER("cuDeviceGetCount");
  *count = fake_gpu().devices;
  return kSuccess;
}
FAKE(cuDeviceGet)(int* device, int index) {
  ENTER("cuDeviceGet");
  *device = index;
  return index < fake_gpu().devices ? kSuccess : kInvalidDevice;
}
FAKE(cuDeviceGetName)(char* name, int n, int) {
  ENTER("cuDeviceGetName");
  std::strncpy(name, "Fake GPU", size_t(n));
  return kSuccess;
}
FAKE(cuDeviceGetAttribute)(int* value, int which, int) {
  ENTER("cuDeviceGetAttribute");
  static const std::map<int, int> limits = {{13, 1980000}, {16, 132}, {36, 2619000}, {37, 5120},  {38, 50 << 20},
                                            {39, 2048},    {75, 9},   {76, 0},       {82, 65536}, {97, 232448}};
  const auto known = limits.find(which);
  *value = known == limits.end() ? 0 : known->second;
  return kSuccess;
}
FAKE(cuDeviceTotalMem_v2)(size_t* bytes, int) {
  ENTER("cuDeviceTotalMem_v2");
  *bytes = fake_gpu().memory;
  return kSuccess;
}
FAKE(cuDevicePrimaryCtxRetain)(ContextHandle* context, int device) {
  ENTER("cuDevicePrimaryCtxRetain");
  fake_gpu().contexts++;
  *context = reinterpret_cast<ContextHandle>(uintptr_t(device + 1));
  return kSuccess;
}
FAKE(cuDevicePrimaryCtxRelease_v2)(int) {
  ALONE;
  fake_gpu().contexts--;
  ENTER("cuDevicePrimaryCtxRelease_v2");
  return kSuccess;
}
FAKE(cuCtxSetCurrent)(ContextHandle context) {
  ENTER("cuCtxSetCurrent");
  current = context;
  return kSuccess;
}
FAKE(cuCtxGetCurrent)(ContextHandle* context) {
  ENTER("cuCtxGetCurrent");
  *context = current;
  return kSuccess;
}
FAKE(cuDeviceCanAccessPeer)(int* can, int device, int peer) {
  ENTER("cuDeviceCanAccessPeer");
  *can = device != peer;
  return kSuccess;
}
FAKE(cuCtxEnablePeerAccess)(ContextHandle peer, unsigned) {
  ENTER("cuCtxEnablePeerAccess");
  return current && peer && fake_gpu().peers.emplace(current, peer).second ? kSuccess : kInvalidValue;
}
FAKE(cuMemGetInfo_v2)(size_t* free_bytes, size_t* total) {
  ENTER("cuMemGetInfo_v2");
  *free_bytes = fake_gpu().memory - fake_gpu().used;
  *total = fake_gpu().memory;
  return kSuccess;
}
FAKE(cuMemAlloc_v2)(DevicePtr* at, size_t n) {
  ENTER("cuMemAlloc_v2");
  FakeGpu& g = fake_gpu();
  if (!current) return kInvalidHandle;
  if (g.used + n > g.memory) return kOutOfMemory;
  void* p = g.protects ? take_pages(n) : std::aligned_alloc(512, n);
  if (!p) return kOutOfMemory;
  std::memset(p, 0xCD, n);
  if (g.protects) mprotect(p, n, PROT_NONE);
  *at = DevicePtr(reinterpret_cast<uintptr_t>(p));
  g.blocks[*at] = n;
  g.used += n;
  return kSuccess;
}
FAKE(cuMemFree_v2)(DevicePtr at) {
  ALONE;
  FakeGpu& g = fake_gpu();
  auto it = g.blocks.find(at);
  if (it == g.blocks.end()) return kInvalidValue;
  const size_t n = it->second;
  g.used -= n;
  g.blocks.erase(it);
  if (g.protects) {
    munmap(pointer(at), n);
  } else {
    std::free(pointer(at));
  }
  ENTER("cuMemFree_v2");
  return kSuccess;
}
FAKE(cuMemHostAlloc)(void** p, size_t n, unsigned) {
  ENTER("cuMemHostAlloc");
  *p = std::malloc(n);
  fake_gpu().pinned[*p] = n;
  return kSuccess;
}
FAKE(cuMemFreeHost)(void* p) {
  ALONE;
  if (!fake_gpu().pinned.erase(p)) return kInvalidValue;
  std::free(p);
  ENTER("cuMemFreeHost");
  return kSuccess;
}
FAKE(cuMemcpyAsync)(DevicePtr to, DevicePtr from, size_t n, StreamHandle) {
  ENTER("cuMemcpyAsync");
  perform([=] { std::memmove(pointer(to), pointer(from), n); });
  return kSuccess;
}
FAKE(cuMemcpyHtoDAsync_v2)(DevicePtr to, const void* from, size_t n, StreamHandle) {
  ENTER("cuMemcpyHtoDAsync_v2");
  if (!inside(to, n)) return kInvalidValue;
  perform([=] { std::memcpy(pointer(to), from, n); });
  return kSuccess;
}
FAKE(cuMemcpyDtoHAsync_v2)(void* to, DevicePtr from, size_t n, StreamHandle) {
  ENTER("cuMemcpyDtoHAsync_v2");
  if (!inside(from, n)) return kInvalidValue;
  perform([=] { std::memcpy(to, pointer(from), n); });
  return kSuccess;
}
FAKE(cuMemcpyDtoDAsync_v2)(DevicePtr to, DevicePtr from, size_t n, StreamHandle) {
  ENTER("cuMemcpyDtoDAsync_v2");
  if (!inside(to, n) || !inside(from, n)) return kInvalidValue;
  perform([=] { std::memmove(pointer(to), pointer(from), n); });
  return kSuccess;
}
FAKE(cuMemsetD8Async)(DevicePtr at, unsigned char value, size_t n, StreamHandle) {
  ENTER("cuMemsetD8Async");
  if (!inside(at, n)) return kInvalidValue;
  perform([=] { std::memset(pointer(at), value, n); });
  return kSuccess;
}
FAKE(cuStreamCreate)(StreamHandle* stream, unsigned) {
  ENTER("cuStreamCreate");
  *stream = reinterpret_cast<StreamHandle>(uintptr_t(++fake_gpu().streams));
  return kSuccess;
}
FAKE(cuStreamDestroy_v2)(StreamHandle) {
  ALONE;
  fake_gpu().streams--;
  ENTER("cuStreamDestroy_v2");
  return kSuccess;
}
FAKE(cuStreamSynchronize)(StreamHandle) {
  ENTER("cuStreamSynchronize");
  if (fake_recording()) return kCaptureUnsupported;
  return kSuccess;
}
FAKE(cuStreamWaitEvent)(StreamHandle, EventHandle, unsigned) {
  ENTER("cuStreamWaitEvent");
  return kSuccess;
}
FAKE(cuStreamQuery)(StreamHandle) {
  ENTER("cuStreamQuery");
  if (fake_recording()) return kCaptureUnsupported;
  return kSuccess;
}
FAKE(cuEventCreate)(EventHandle* event, unsigned) {
  ENTER("cuEventCreate");
  *event = reinterpret_cast<EventHandle>(new FakeEvent);
  fake_gpu().events++;
  return kSuccess;
}
FAKE(cuEventDestroy_v2)(EventHandle event) {
  ALONE;
  delete reinterpret_cast<FakeEvent*>(event);
  fake_gpu().events--;
  ENTER("cuEventDestroy_v2");
  return kSuccess;
}
FAKE(cuEventRecord)(EventHandle event, StreamHandle) {
  ENTER("cuEventRecord");
  auto* e = reinterpret_cast<FakeEvent*>(event);
  e->ms = clock_ms += 1;
  e->recorded = true;
  return kSuccess;
}
FAKE(cuEventQuery)(EventHandle) {
  ENTER("cuEventQuery");
  return kSuccess;
}
FAKE(cuEventSynchronize)(EventHandle) {
  ENTER("cuEventSynchronize");
  if (fake_recording()) return kCaptureUnsupported;
  return kSuccess;
}
FAKE(cuEventElapsedTime)(float* ms, EventHandle start, EventHandle end) {
  ENTER("cuEventElapsedTime");
  const auto *a = reinterpret_cast<FakeEvent*>(start), *b = reinterpret_cast<FakeEvent*>(end);
  if (!a->recorded || !b->recorded) return kInvalidHandle;
  *ms = b->ms - a->ms;
  return kSuccess;
}

#ifdef LUTRA_FAKE_LIBRARY
// For programs: calls so far; the call after `in_calls` more fails with `code` (0: none does); its symbol, "" before.
extern "C" __attribute__((visibility("default"))) int fake_cuda_calls() { return fake_gpu().calls; }
extern "C" __attribute__((visibility("default"))) void fake_cuda_fail(int in_calls, int code) {
  fake_gpu().fail_at = code ? fake_gpu().calls + in_calls : -1;
  fake_gpu().fail_with = code;
  fake_gpu().failed.clear();
}
extern "C" __attribute__((visibility("default"))) const char* fake_cuda_failed() { return fake_gpu().failed.c_str(); }
#else
namespace {

const Driver& fake_table() {
  static const Driver table = [] {
    Driver d;
#define X(member, symbol, signature) \
  d.member = reinterpret_cast<Result(*) signature>(dlsym(RTLD_DEFAULT, "fake_" symbol));
    LUTRA_CUDA_FUNCTIONS(X)
    LUTRA_CUDA_NEWER_FUNCTIONS(X)
#undef X
    return d;
  }();
  return table;
}

}  // namespace

FakeScope::FakeScope(const FakeGpu& gpu) {
  set_driver(nullptr);
  fake_gpu() = gpu;
  current = nullptr;
  set_driver(&fake_table());
}

FakeScope::~FakeScope() { set_driver(nullptr); }
#endif

}  // namespace lutra::cuda
