// What jit knows of a kind of device: one object a kind, which the kind's folder registers. Shared code asks it for
// what it needs; it never asks which kind it is.
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

// What code is made for.
struct KernelTarget {
  Device device;
  std::string isa;  // of the CPU: "avx512", "avx2", "arm64"; "interp" and "wide": the interpreters behind the same call
  std::vector<int64_t> hints;  // the integer arguments of a likely launch, where the device's code is made for sizes
  bool several = false;        // that launches of it stand side by side
  bool at_once = false;  // that it shall run before it is compiled, where the device has an interpreter of kernels
  // Not 0: its loops look whether they shall end, where the device's code can; that much work (vector instructions,
  // iterations of the interpreter) lies between two looks.
  int32_t look_after = 0;
};

// Sizes of a likely result that serve code for all sizes, innermost first: no two alike, none that a rule might single
// out.
struct LikelySizes {
  std::span<const int64_t> flat, rows, short_rows;
};

// How temporaries lie in a run's arena (jit/runtime/arena.h).
struct ArenaRules {
  size_t align = 64;
  int32_t spare = 0;          // for how many launches more a slot is kept from others
  bool lends_gaps = false;    // what lies free at a library's launch is the library's to use
  bool cleared_late = false;  // the system clears a page when it is touched for the first time
};

// Choices of speed; no bit of a result depends on them.
struct Preferences {
  bool made_for_sizes = false;     // code is as fast as the sizes that it was made for let it be
  bool nested_parallel = false;    // a nest's inner loops are parallel too
  bool column_threads = false;     // columns of a reduction are threads side by side
  bool padded_products = false;    // a large product's rows are of whole 16 bytes
  bool leaves_processors = false;  // its kernels do not run on the processor's threads
  LikelySizes likely;
  ArenaRules arena;
};

// Invariants:
// 1. It lives as long as the process, and is registered before main.
// 2. numerics, preferences and the stated machine do not change.
class Backend {
 public:
  Backend(const numerics::Reductions& reductions, const Preferences& preferences, const Machine& stated)
      : reductions(reductions), preferences(preferences), stated(stated) {}
  Backend(const Backend&) = delete;

  // Throws Error(kUser) where there is no such device.
  virtual Machine machine(Device device) const = 0;
  // Verified loop IR to code. An unknown isa is an Error, as is a device that cannot be had.
  virtual std::shared_ptr<Code> compile(const loop::Kernel& kernel, const KernelTarget& target, bool listing) const = 0;
  // What of the target the code depends on, as text.
  virtual std::string kernel_key(const loop::Kernel& kernel, const KernelTarget& target) const = 0;

  // The code as bytes that load takes in another process, on a machine with an equal target_key; "" where the device
  // keeps code in its own way.
  virtual std::string image(const Code&) const { return ""; }
  virtual std::shared_ptr<Code> load(const std::string& image) const;
  // What plans and code are made for, as text: a plan that was kept is taken where this is equal.
  std::string target_key(Device device, const std::string& isa) const;

  // What of a kernel the code generator weighs for the stated machine and such integer arguments, a line each.
  virtual std::string weighed(const loop::Kernel&, std::span<const int64_t>) const { return ""; }

  // Who runs a flat plan; the plan outlives it.
  virtual std::unique_ptr<Runner> make_runner(const FlatPlan& flat) const = 0;
  // The stream of its work, null where it has none.
  virtual void* stream(Device) const { return nullptr; }
  // Waits for the work given to it; raises what went wrong in it.
  virtual void wait(Device) const {}
  // Makes ready what a call of a library like this one will need. Of devices whose code is made for sizes.
  virtual void prepare(const ExternCall&) const {}
  // Nanoseconds that this thread has waited for code to be compiled elsewhere.
  virtual uint64_t compile_wait_ns() const { return 0; }

  const numerics::Reductions reductions;
  const Preferences preferences;
  const Machine stated;  // a usual one, for choices where none is asked: texts of tests

 protected:
  ~Backend() = default;
};

void register_backend(DeviceType type, const Backend* backend);
// Throws Error(kInternal) where nobody has registered one.
const Backend& backend_of(DeviceType type);
inline const Backend& backend_of(Device device) { return backend_of(device.type); }

}  // namespace lutra
