// Loads libcuda's functions, or tells in one line why there are none.
#include "ops/cuda/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "ops/core/error.h"

namespace lutra::cuda {
namespace {

constexpr int kNeededVersion = 12000;  // CUDA 12.0
constexpr Result kNoDevice = 100, kDriverMismatch = 803;

std::string version_text(int version) { return str(version / 1000, ".", version % 1000 / 10); }

struct State {
  std::mutex mutex;
  bool asked = false;
  const Driver* given = nullptr;  // set by a test
  Driver loaded;
  std::string problem;
  std::vector<void (*)()> forget;
};

// Never destroyed: storages may outlive the static destructors.
State& state() {
  static State* s = new State;
  return *s;
}

std::atomic<const Driver*> ready{nullptr};

std::string library() {
  const char* path = std::getenv("LUTRA_CUDA_DRIVER");
  return path && *path ? path : "libcuda.so.1";
}

// Opens the machine's driver, which is never closed.
bool load(Driver& table, std::string& problem) {
  const std::string path = library();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    problem = str("no NVIDIA driver: ", dlerror());
    return false;
  }
  const char* missing = nullptr;
#define X(member, symbol, signature)                                           \
  table.member = reinterpret_cast<Result(*) signature>(dlsym(handle, symbol)); \
  if (!table.member && !missing) missing = symbol;
  LUTRA_CUDA_FUNCTIONS(X)
#undef X
#define X(member, symbol, signature) table.member = reinterpret_cast<Result(*) signature>(dlsym(handle, symbol));
  LUTRA_CUDA_NEWER_FUNCTIONS(X)
#undef X
  if (missing) {
    problem = str("the NVIDIA driver is too old: ", path, " has no ", missing, " (CUDA ", version_text(kNeededVersion),
                  " or newer is needed)");
  }
  return !missing;
}

std::string text_of(const Driver& driver, Result result) {
  const char *text = nullptr, *name = nullptr;
  if (driver.error_string) driver.error_string(result, &text);
  if (driver.error_name) driver.error_name(result, &name);
  return str(text ? text : "unknown error", " (", name ? name : std::to_string(result), ")");
}

// Returns whether the driver can be used: it starts, and is new enough.
bool start(const Driver& driver, std::string& problem) {
  int version = 0;
  if (driver.driver_version(&version) == kSuccess && version < kNeededVersion) {
    problem = str("the NVIDIA driver is too old: it supports CUDA ", version_text(version), ", and ",
                  version_text(kNeededVersion), " or newer is needed");
    return false;
  }
  const Result result = driver.init(0);
  if (result == kSuccess) return true;
  if (result == kNoDevice) {
    problem = str("the NVIDIA driver finds no GPU (", text_of(driver, result), ")");
  } else if (result == kDriverMismatch) {
    problem = str("the NVIDIA driver's library and its kernel module differ (", text_of(driver, result), ")");
  } else {
    problem = str("the NVIDIA driver does not start: ", text_of(driver, result));
  }
  return false;
}

void ask(State& s) {
  if (s.asked) return;
  const Driver* driver = s.given;
  if (!driver && load(s.loaded, s.problem)) driver = &s.loaded;
  if (driver && start(*driver, s.problem)) ready.store(driver, std::memory_order_release);
  s.asked = true;
}

}  // namespace

const Driver* driver() {
  if (const Driver* d = ready.load(std::memory_order_acquire)) return d;
  State& s = state();
  std::lock_guard lock(s.mutex);
  ask(s);
  return ready.load(std::memory_order_relaxed);
}

bool has_dependent_launches() {
  const Driver* d = driver();
  return d && d->graph_edges && d->graph_add_edges && d->graph_remove_edges;
}

bool has_conditional_nodes() {
  constexpr int kWithMemoryNodes = 12040;
  const Driver* d = driver();
  int version = 0;
  return d && d->begin_capture_to_graph && d->graph_conditional_handle && d->graph_add_node &&
         d->driver_version(&version) == kSuccess && version >= kWithMemoryNodes;
}

const std::string& driver_problem() {
  driver();
  return state().problem;
}

void set_driver(const Driver* driver) {
  State& s = state();
  std::vector<void (*)()> forget;
  {
    std::lock_guard lock(s.mutex);
    forget = s.forget;
  }
  // The old driver is still in place, so that its objects can be freed.
  for (auto f : forget) f();
  std::lock_guard lock(s.mutex);
  ready = nullptr;
  s.given = driver;
  s.asked = false;
  s.problem.clear();
}

void on_set_driver(void (*forget)()) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.forget.push_back(forget);
}

std::string result_text(Result result) {
  const Driver* d = driver();
  return d ? text_of(*d, result) : str("error ", result);
}

}  // namespace lutra::cuda
