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

// What code is made for.
struct KernelTarget {
  Device device;
  std::string isa;  // of the CPU: "avx512", "avx2", "arm64"; "interp" and "wide": the interpreters behind the same call
  std::vector<int64_t> hints;  // the integer arguments of a likely launch, where the device's code is made for sizes
  bool several = false;        // that launches of it stand side by side
  bool at_once = false;  // that it shall run before it is compiled, where the device has an interpreter of kernels
};

// Sizes of a likely result that serve code for all sizes, innermost first: no two alike, none that a rule might single
// out.
struct LikelySizes {
  std::span<const int64_t> flat, rows, short_rows;
};

// Choices of speed; no bit of a result depends on them.
struct Preferences {
  bool made_for_sizes = false;   // code is as fast as the sizes that it was made for let it be
  bool nested_parallel = false;  // a nest's inner loops are parallel too
  bool column_threads = false;   // columns of a reduction are threads side by side
  bool padded_products = false;  // a large product's rows are of whole 16 bytes
  LikelySizes likely;
};

// Invariants:
// 1. It lives as long as the process, and is registered before main.
// 2. numerics and preferences do not change.
class Backend {
 public:
  Backend(const numerics::Reductions& reductions, const Preferences& preferences)
      : reductions(reductions), preferences(preferences) {}
  Backend(const Backend&) = delete;

  // Throws Error(kUser) where there is no such device.
  virtual Machine machine(Device device) const = 0;
  // Verified loop IR to code. An unknown isa is an Error, as is a device that cannot be had.
  virtual std::shared_ptr<Code> compile(const loop::Kernel& kernel, const KernelTarget& target, bool listing) const = 0;
  // What of the target the code depends on, as text.
  virtual std::string kernel_key(const loop::Kernel& kernel, const KernelTarget& target) const = 0;

  const numerics::Reductions reductions;
  const Preferences preferences;

 protected:
  ~Backend() = default;
};

// Kinds of devices that there may be.
inline constexpr size_t kMostBackends = 4;
void register_backend(DeviceType type, const Backend* backend);
// Throws Error(kInternal) where nobody has registered one.
const Backend& backend_of(DeviceType type);
inline const Backend& backend_of(Device device) { return backend_of(device.type); }

}  // namespace lutra
