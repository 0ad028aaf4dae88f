// The state that ops depend on beside their arguments: grad mode, autocast, the default device, the random state. A Lua
// state has its own and installs it on the thread that runs it. A thread without installed modes has modes of its own.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <unordered_map>

#include "ops/core/account.h"
#include "ops/core/current_device.h"
#include "ops/core/settings.h"
#include "ops/core/tensor.h"
#include "ops/defs/call.h"

namespace lutra {

// Indexed by device type: 0 is the CPU, 1 is CUDA.
struct AutocastMode {
  std::array<bool, 2> enabled{};
  std::array<DType, 2> dtype{DType::kBFloat16, DType::kFloat16};
  bool cache = true;
  bool any() const { return enabled[0] || enabled[1]; }
  bool operator==(const AutocastMode&) const = default;
};

struct KeptCast {
  Tensor source, cast;
  ElementsMark mark;  // of source
};

struct AutocastState {
  AutocastMode mode;
  bool watched = false;   // whether call_op must look at autocast at all
  bool counting = false;  // a trace counts the reads
  uint64_t reads = 0;
  std::unordered_map<const TensorImpl*, KeptCast> kept;
};

// Is told the tensors of eager calls.
struct CallWatch : RefCounted {
  virtual ~CallWatch() = default;
  virtual void takes(const Tensor& t) = 0;
  virtual void made(const Tensor& t) = 0;
  virtual void writes(const Tensor& t) = 0;  // before the write
};

struct BackwardParts;  // ops/grad/engine.h

// A host's threads, which replace our own.
struct HostThreads {
  // Runs task(task_arg, i) for each i in [0, n), on any threads. Returns when all have returned.
  void (*run)(void* arg, int n, void (*task)(void* task_arg, int i), void* task_arg) = nullptr;
  void* arg = nullptr;
  int count = 0;  // including the calling thread
};

struct Modes {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  bool grad = true;
  Generator generator;
  DeviceMode device;
  AutocastState autocast;
  Ref<CallWatch> watch;
  BackwardParts* backward_parts = nullptr;
  int64_t calls_to_hook = kNever;  // the number of eager calls before the host's hook runs
  OwnAccount account;              // of a Lua state
  HostThreads threads;             // of the host, if it brought any
  Settings settings;               // of a Lua state
};

extern constinit thread_local Modes* installed_modes;
Modes& thread_modes();  // the modes of a thread that has none installed
inline Modes& modes() { return installed_modes ? *installed_modes : thread_modes(); }

// Installs modes on this thread for a scope. Null installs the thread's own.
class ModesScope {
 public:
  explicit ModesScope(Modes* modes) : saved_(installed_modes) {
    if (modes != saved_) install(modes);
  }
  ~ModesScope() {
    if (installed_modes != saved_) install(saved_);
  }
  ModesScope(const ModesScope&) = delete;

  static void install(Modes* modes) {
    installed_modes = modes;
    installed_device_mode = modes ? &modes->device : nullptr;
    installed_account = modes ? modes->account.get() : nullptr;
    installed_settings = modes ? &modes->settings : nullptr;
  }

 private:
  Modes* saved_;
};

}  // namespace lutra
