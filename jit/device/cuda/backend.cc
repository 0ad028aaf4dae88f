// A GPU as a device: its description, its policy of sums, code by NVRTC.
#include "jit/device/backend.h"

#include "jit/codegen/cuda/code.h"
#include "jit/device/cuda/machine.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {
namespace {

// They decide what a thread has.
constexpr int64_t kFlat[] = {1 << 24}, kRows[] = {512, 4104, 40, 24, 17, 13},
                  kShortRows[] = {24, 65544, 40, 28, 17, 13};

Preferences preferences() {
  Preferences p;
  p.made_for_sizes = p.nested_parallel = p.column_threads = p.padded_products = true;
  p.likely = {kFlat, kRows, kShortRows};
  return p;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend() : Backend(numerics::kGpuReductions, cuda::preferences()) {}

  Machine machine(Device device) const override { return machine_of(context(device)); }
  std::shared_ptr<Code> compile(const loop::Kernel& kernel, const KernelTarget& target, bool listing) const override {
    Context& c = context(target.device);
    return cuda::compile(kernel, target.hints, machine_of(c), target.several, target.at_once, c, listing);
  }
  // The device stands for its number of multiprocessors, which the mapping looks at.
  std::string kernel_key(const loop::Kernel& kernel, const KernelTarget& target) const override {
    return to_string(target.device) + " " + mapping_class(kernel, target.hints, machine(target.device)) +
           (target.several ? " several" : "");
  }
};

[[maybe_unused]] const bool registered = [] {
  static const CudaBackend backend;
  register_backend(DeviceType::kCUDA, &backend);
  return true;
}();

}  // namespace
}  // namespace lutra::cuda
