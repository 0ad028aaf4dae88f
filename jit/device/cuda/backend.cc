// The GPU's backend: its numerics and preferences, its compiler (NVRTC) and runner.
#include "jit/device/backend.h"

#include "jit/codegen/cuda/analysis.h"
#include "jit/codegen/cuda/code.h"
#include "jit/device/cuda/machine.h"
#include "jit/device/cuda/runner.h"
#include "jit/runtime/config.h"
#include "ops/cuda/context.h"
#include "ops/cuda/loaded_module.h"
#include "ops/extern/cuda/recording.h"

namespace lutra::cuda {
namespace {

// The mapping to threads is chosen for these sizes (LikelySizes).
constexpr int64_t kFlat[] = {1 << 24}, kRows[] = {512, 4104, 40, 24, 17, 13},
                  kShortRows[] = {24, 65544, 40, 28, 17, 13};

Preferences preferences() {
  Preferences p;
  p.made_for_sizes = p.nested_parallel = p.column_threads = p.padded_products = p.leaves_processors = true;
  p.likely = {kFlat, kRows, kShortRows};
  p.arena = {256, 4, true};
  return p;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend() : Backend(numerics::kGpuReductions, cuda::preferences(), stated_machine()) {}

  Machine machine(Device device) const override { return machine_of(context(device)); }
  std::shared_ptr<Code> compile(const loop::Kernel& kernel, const KernelTarget& target, bool listing) const override {
    Context& c = context(target.device);
    const Machine machine = machine_of(c);
    if (runtime_config().mapping_log) {
      std::string mapping_text;
      map_kernel(kernel, target.hints, machine, &mapping_text);
      runtime_config().mapping_log(mapping_text);
    }
    return cuda::compile(kernel, target.hints, machine, target.several, target.at_once, c, listing);
  }
  // The key has the device, since the mapping depends on its number of multiprocessors.
  std::string kernel_key(const loop::Kernel& kernel, const KernelTarget& target) const override {
    return to_string(target.device) + " " + mapping_class(kernel, target.hints, machine(target.device)) +
           (target.several ? " several" : "");
  }
  std::string mapping(const loop::Kernel& kernel, std::span<const int64_t> hints) const override {
    std::string mapping_text;
    map_kernel(kernel, hints, stated, &mapping_text);
    return mapping_text;
  }
  std::unique_ptr<Runner> make_runner(const FlatPlan& flat) const override {
    return std::make_unique<CudaRunner>(flat);
  }
  void* stream(Device device) const override { return context(device).stream; }
  void wait(Device device) const override { synchronize(device); }
  void prepare(const ExternCall& call) const override { cuda::prepare(call); }
  uint64_t compile_wait_ns() const override { return cuda::compile_wait_ns(); }
};

[[maybe_unused]] const bool backend_is_known = [] {
  static const CudaBackend backend;
  register_backend(DeviceType::kCUDA, &backend);
  return true;
}();

}  // namespace
}  // namespace lutra::cuda
