// Makes the contexts of devices, and turns results of the driver into errors.
#include "ops/cuda/context.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "ops/core/interrupt.h"
#include "ops/core/place.h"
#include "ops/core/storage.h"
#include "ops/cuda/faults.h"

namespace lutra::cuda {
namespace {

constexpr int kMaxDevices = 64;
constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
// CUdevice_attribute
constexpr int kClock = 13, kMultiprocessors = 16, kMemoryClock = 36, kMemoryBits = 37, kCacheBytes = 38, kThreads = 39,
              kMajor = 75, kMinor = 76, kRegisters = 82, kSharedOptIn = 97;

struct Devices {
  std::mutex mutex;
  bool counted = false;
  int count = 0;
  std::string problem;
  std::array<std::atomic<Context*>, kMaxDevices> contexts{};
};

// Never destroyed: storages may outlive the static destructors.
Devices& devices() {
  static Devices* d = new Devices;
  return *d;
}

thread_local Context* current = nullptr;

void count_devices(Devices& d) {
  if (d.counted) return;
  d.counted = true;
  d.count = 0;
  d.problem.clear();
  const Driver* driver = cuda::driver();
  if (!driver) {
    d.problem = driver_problem();
    return;
  }
  const Result result = driver->device_count(&d.count);
  if (result != kSuccess) d.count = 0, d.problem = str("its GPUs cannot be counted: ", result_text(result));
  if (result == kSuccess && d.count <= 0) d.count = 0, d.problem = "the NVIDIA driver finds no GPU";
  if (d.count > kMaxDevices) d.count = kMaxDevices;
}

void forget_contexts() {
  Devices& d = devices();
  std::lock_guard lock(d.mutex);
  const Driver* driver = d.counted && d.problem.empty() ? cuda::driver() : nullptr;
  for (auto& slot : d.contexts) {
    Context* c = slot.exchange(nullptr);
    if (!c) continue;
    if (driver) {
      driver->set_current(c->handle);
      driver->stream_destroy(c->stream);
      driver->release_primary(c->driver_index);
    }
    delete c;
  }
  current = nullptr;
  d.counted = false;
}
[[maybe_unused]] const bool contexts_are_forgotten = (on_set_driver(forget_contexts), true);

// Checks a step of making a context. A failure is a user error, because the device lacks something.
void need(Result result, int index, const char* what) {
  if (result != kSuccess) fail("device 'cuda:", index, "' is not available: ", what, ": ", result_text(result));
}

int attribute(const Driver& driver, int index, int device, int which) {
  int value = 0;
  need(driver.device_attribute(&value, which, device), index, "its limits cannot be read");
  return value;
}

// Makes the stream. If that fails, it releases the primary context.
void open_stream(const Driver& driver, Context& c) {
  need(driver.retain_primary(&c.handle, c.driver_index), c.index, "its context cannot be made");
  Result result = driver.set_current(c.handle);
  if (result == kSuccess) result = driver.stream_create(&c.stream, kNonBlocking);
  if (result == kSuccess) return;
  driver.release_primary(c.driver_index);
  need(result, c.index, "it has no stream");
}

Context* make_context(const Driver& driver, int index) {
  auto c = std::make_unique<Context>();
  c->index = index;
  need(driver.device_get(&c->driver_index, index), index, "it cannot be opened");
  const int device = c->driver_index;
  char name[256] = {};
  need(driver.device_name(name, sizeof(name) - 1, device), index, "its name cannot be read");
  c->name = name;
  c->arch = attribute(driver, index, device, kMajor) * 10 + attribute(driver, index, device, kMinor);
  c->multiprocessors = attribute(driver, index, device, kMultiprocessors);
  c->shared_bytes = attribute(driver, index, device, kSharedOptIn);
  c->threads = attribute(driver, index, device, kThreads);
  c->registers = attribute(driver, index, device, kRegisters);
  c->cache_bytes = attribute(driver, index, device, kCacheBytes);
  c->clock = 1e3 * attribute(driver, index, device, kClock);
  // Memory makes two transfers a clock.
  c->memory_rate =
      1e3 * attribute(driver, index, device, kMemoryClock) * 2 / 8 * attribute(driver, index, device, kMemoryBits);
  need(driver.device_total_memory(&c->total_bytes, device), index, "its memory cannot be read");
  note_device_memory(int64_t(c->total_bytes));
  open_stream(driver, *c);
  return c.release();
}

Context* open_context(int index) {
  Devices& d = devices();
  std::lock_guard lock(d.mutex);
  count_devices(d);
  if (!d.count) fail("device 'cuda:", index, "' is not available: ", d.problem);
  if (index < 0 || index >= d.count) {
    fail("device 'cuda:", index, "' is not available: this machine has ", d.count, d.count == 1 ? " GPU" : " GPUs");
  }
  std::atomic<Context*>& slot = d.contexts[size_t(index)];
  if (!slot) slot = make_context(*driver(), index);
  return slot;
}

// Returns whether the context takes no more work after this result.
bool is_fatal(Result result) {
  switch (result) {
    case 214:  // ECC_UNCORRECTABLE
    case 220:  // NVLINK_UNCORRECTABLE
    case 226:  // CONTAINED
    case 700:  // ILLEGAL_ADDRESS
    case 702:  // LAUNCH_TIMEOUT
    case 709:  // CONTEXT_IS_DESTROYED
    case 710:  // ASSERT
    case 714:  // HARDWARE_STACK_ERROR
    case 715:  // ILLEGAL_INSTRUCTION
    case 716:  // MISALIGNED_ADDRESS
    case 717:  // INVALID_ADDRESS_SPACE
    case 718:  // INVALID_PC
    case 719:  // LAUNCH_FAILED
      return true;
    default: return false;
  }
}

// Returns "cuMemFree" for "memory_free(p)".
std::string asked(const char* what) {
  const std::string_view call(what);
  const std::string_view name = call.substr(0, call.find('('));
#define X(member, symbol, signature) \
  if (name == #member) return std::string(symbol).substr(0, std::string(symbol).find("_v"));
  LUTRA_CUDA_FUNCTIONS(X)
#undef X
  return std::string(call);
}

std::string launch_text(const Context::Launch& l) {
  return *l.file ? str(l.op, " (", l.file, ":", l.line, ")") : std::string(l.op);
}

// Returns "add (train.lua:3), then mm (train.lua:4)", oldest first.
std::string recent_text(Context& c) {
  const uint64_t kept = std::min<uint64_t>(c.launches, c.recent.size());
  std::string text;
  for (uint64_t i = c.launches - kept; i < c.launches; i++) {
    text += (text.empty() ? "" : ", then ") + launch_text(c.recent[i % c.recent.size()]);
  }
  return text;
}

[[noreturn]] void raise_lost(Context& c) {
  std::lock_guard lock(c.mutex);
  throw Error(ErrorKind::kData,
              str("cuda:", c.index, ": the GPU's context is lost since: ", c.lost_to, "; the CPU goes on"));
}

// Marks the context as lost and raises all that is known, once. Later raise_lost repeats the reason.
[[noreturn]] void lose(Context& c, Result result) {
  std::lock_guard lock(c.mutex);
  const std::string happened = result_text(result), launches = recent_text(c);
  c.lost_to = happened;
  std::string text = str("cuda:", c.index, ": ", happened);
  if (sync_wanted() && c.launches) {
    const std::string last = launch_text(c.recent[(c.launches - 1) % c.recent.size()]);
    c.lost_to += " in " + last;
    text += " in " + last;
  } else if (!launches.empty()) {
    c.lost_to += " after " + launches;
    text += str(" in one of the last launches: ", launches, " (LUTRA_CUDA_SYNC=1 tells which)");
  }
  c.lost.store(true, std::memory_order_release);
  throw Error(ErrorKind::kData, text + "; the GPU's context is lost, the CPU goes on");
}

void keep_text(char* to, size_t bytes, const char* from) {
  const size_t n = std::strlen(from);
  // Keeps the end of a long path, which is more informative.
  const char* start = n < bytes ? from : from + (n - bytes + 1);
  std::memcpy(to, start, std::min(n, bytes - 1) + 1);
}

}  // namespace

bool sync_wanted() {
  static const bool wanted = [] {
    const char* text = std::getenv("LUTRA_CUDA_SYNC");
    return text && *text && std::strcmp(text, "0") != 0;
  }();
  return wanted;
}

int device_count() {
  Devices& d = devices();
  std::lock_guard lock(d.mutex);
  count_devices(d);
  return d.count;
}

bool is_available() { return device_count() > 0; }

const std::string& problem() {
  device_count();
  return devices().problem;
}

Context& context(Device device) {
  LUTRA_CHECK(device.type == DeviceType::kCUDA);
  Context* c = device.index >= 0 && device.index < kMaxDevices
                   ? devices().contexts[size_t(device.index)].load(std::memory_order_acquire)
                   : nullptr;
  if (!c) c = open_context(device.index);
  if (c->lost.load(std::memory_order_acquire)) raise_lost(*c);
  // Other code in this process may have made its own context current.
  const Driver& d = *driver();
  ContextHandle now = nullptr;
  current = c;
  if (d.get_current(&now) != kSuccess || now != c->handle) check(d.set_current(c->handle), "set_current()");
  return *c;
}

void raise(Result result, const char* what) {
  Context* c = current;
  if (c && c->lost.load(std::memory_order_acquire)) raise_lost(*c);
  if (c && is_fatal(result)) lose(*c, result);
  const std::string where = c ? str("cuda:", c->index) : std::string("cuda");
  const ErrorKind kind = result == kOutOfMemory ? ErrorKind::kMemory : ErrorKind::kInternal;
  throw Error(kind, str(where, ": ", asked(what), " failed: ", result_text(result)));
}

void wait_for_loops(Context& c) {
  constexpr Result kNotReady = 600;
  if (!c.loops.exchange(false)) return;
  Result result = kNotReady;
  while ((result = driver()->stream_query(c.stream)) == kNotReady) {
    try {
      check_stop();
    } catch (...) {
      end_loops(c);
      throw;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  check(result, "stream_query()");
}

void synchronize(Device device) {
  Context& c = context(device);
  const size_t removed = removed_fault_sites();
  wait_for_loops(c);
  LUTRA_CUDA(stream_synchronize(c.stream));
  raise_fault(c);
  forget_fault_sites(c, removed);
}

void launched(Context& c, const char* op, const char* file, int line) {
  Place place;
  if (!file && place_now(place)) file = place.file, line = place.line;
  {
    std::lock_guard lock(c.mutex);
    Context::Launch& l = c.recent[c.launches++ % c.recent.size()];
    keep_text(l.op, sizeof(l.op), op ? op : "?");
    keep_text(l.file, sizeof(l.file), file ? file : "");
    l.line = line;
  }
  if (!sync_wanted()) return;
  current = &c;
  LUTRA_CUDA(stream_synchronize(c.stream));
  raise_fault(c);
}

}  // namespace lutra::cuda
