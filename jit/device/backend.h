// The interface of a kind of device. Each kind's folder registers one Backend. Shared code asks the Backend for what it
// needs, and never tests the kind of device.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jit/device/machine.h"
#include "jit/loop/abi.h"
#include "jit/loop/loop.h"
#include "ops/core/device.h"
#include "ops/core/numerics.h"

namespace lutra {

struct ExternCall;
struct FlatPlan;  // jit/runtime/flat_plan.h
class Runner;     // jit/runtime/runner.h

// The target that code is compiled for.
struct KernelTarget {
  Device device;
  std::string isa;             // of a CPU: "avx512", "avx2", "arm64"; "interp" and "wide" select the interpreters
  std::vector<int64_t> hints;  // integer arguments of a likely launch, if the device's code is made for sizes
  bool several = false;        // several launches of it run in parallel
  bool at_once = false;        // it must run before it is compiled, if the device has an interpreter of kernels
  // Not 0: its loops look whether they shall stop, if the device's code can. Between two looks there is this much work
  // (vector instructions, or iterations of the interpreter).
  int32_t look_after = 0;
};

// Sizes of a likely result, innermost first. Code that is made for them serves all sizes: no two are equal, and no rule
// treats one of them specially.
struct LikelySizes {
  std::span<const int64_t> flat, rows, short_rows;
};

// The rules for temporaries in a run's arena (jit/runtime/arena.h).
struct ArenaRules {
  size_t align = 64;
  int32_t spare = 0;          // for how many more launches a slot's memory is not given to others
  bool lends_gaps = false;    // a library's launch may use memory that is free then
  bool cleared_late = false;  // the system clears a page when it is first accessed
};

// Choices that affect speed; no bit of a result depends on them.
struct Preferences {
  bool made_for_sizes = false;     // code's speed depends on the sizes that it was made for
  bool nested_parallel = false;    // inner loops of a nest are parallel, too
  bool column_threads = false;     // the columns of a reduction are parallel threads
  bool padded_products = false;    // a large product's rows are padded to multiples of 16 bytes
  bool leaves_processors = false;  // its kernels do not use the CPU's threads
  bool fed_scatters = false;       // a scatter runs by blocks with the kernel whose result it takes, and may write its
                                   // result over an operand that dies
  LikelySizes likely;
  ArenaRules arena;
};

// Invariants:
// 1. A Backend lives as long as the process, and is registered before main.
// 2. numerics, preferences and the stated machine do not change.
class Backend {
 public:
  Backend(const numerics::Reductions& reductions, const Preferences& preferences, const Machine& stated)
      : reductions(reductions), preferences(preferences), stated(stated) {}
  Backend(const Backend&) = delete;

  // Returns the description of a device. Throws Error(kUser) if there is no such device.
  virtual Machine machine(Device device) const = 0;
  // Compiles verified loop IR. Throws an Error for an unknown isa or an unavailable device.
  virtual std::shared_ptr<Code> compile(const loop::Kernel& kernel, const KernelTarget& target, bool listing) const = 0;
  // Returns those properties of the target on which the code depends, as text.
  virtual std::string kernel_key(const loop::Kernel& kernel, const KernelTarget& target) const = 0;

  // Returns the code as bytes, which `load` accepts in another process on a machine with an equal target_key. Returns
  // "" if the device saves code in another way.
  virtual std::string image(const Code&) const { return ""; }
  virtual std::shared_ptr<Code> load(const std::string& image) const;
  // Returns the target of plans and code as text. A saved plan is valid if this is equal.
  std::string target_key(Device device, const std::string& isa) const;

  // Describes how the code generator maps a kernel to threads: one line for each loop that it considered. For the
  // stated machine and these integer arguments. Returns "" if the device has no such choice.
  virtual std::string mapping(const loop::Kernel&, std::span<const int64_t>) const { return ""; }

  // Returns true if the host can read and write the device's memory.
  virtual bool has_host_memory() const { return false; }
  // Returns the runner of a flat plan. The plan must outlive it.
  virtual std::unique_ptr<Runner> make_runner(const FlatPlan& flat) const = 0;
  // Returns the stream of the device's work; null if it has none.
  virtual void* stream(Device) const { return nullptr; }
  // Waits for the device's pending work. Throws if something failed in it.
  virtual void wait(Device) const {}
  // Prepares for a library call like this one. For devices whose code is made for sizes.
  virtual void prepare(const ExternCall&) const {}
  // Returns the nanoseconds that this thread has waited for compilation by others.
  virtual uint64_t compile_wait_ns() const { return 0; }

  const numerics::Reductions reductions;
  const Preferences preferences;
  const Machine stated;  // a typical machine, for choices without a device: golden texts

 protected:
  ~Backend() = default;
};

void register_backend(DeviceType type, const Backend* backend);
// Throws Error(kInternal) if no backend is registered.
const Backend& backend_of(DeviceType type);
inline const Backend& backend_of(Device device) { return backend_of(device.type); }

}  // namespace lutra
