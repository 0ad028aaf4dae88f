// The CPU as a device: its description, its policy of sums, code by instruction set.
#include <unistd.h>

#include <thread>

#include "jit/codegen/kernel.h"
#include "jit/device/backend.h"
#include "jit/device/cpu/runner.h"
#include "ops/core/storage.h"

namespace lutra {
namespace {

constexpr int64_t kSizes[] = {1031, 37, 23, 19, 17, 13};

Preferences preferences() {
  Preferences p;
  p.likely = {kSizes, kSizes, kSizes};
  return p;
}

size_t asked(int name) { return size_t(std::max<long>(sysconf(name), 0)); }

class CpuBackend final : public Backend {
 public:
  CpuBackend() : Backend(numerics::kCpuReductions, lutra::preferences()) {}

  Machine machine(Device) const override {
    Machine m;
    m.isa = best_isa();
    m.processors = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
    m.memory_bytes = memory_bytes();
    m.cache_bytes[0] = asked(_SC_LEVEL1_DCACHE_SIZE);
    m.cache_bytes[1] = asked(_SC_LEVEL2_CACHE_SIZE);
    m.cache_bytes[2] = asked(_SC_LEVEL3_CACHE_SIZE);
    return m;
  }
  std::shared_ptr<Code> compile(const loop::Kernel& kernel, const KernelTarget& target, bool listing) const override {
    return compile_kernel(kernel, target, listing);
  }
  std::string kernel_key(const loop::Kernel&, const KernelTarget& target) const override { return target.isa; }
  std::string image(const Code& code) const override { return image_of(code); }
  std::shared_ptr<Code> load(const std::string& image) const override { return load_kernel(image); }
  std::unique_ptr<Runner> make_runner(const FlatPlan& flat) const override { return make_cpu_runner(flat); }
};

[[maybe_unused]] const bool registered = [] {
  static const CpuBackend backend;
  register_backend(DeviceType::kCPU, &backend);
  return true;
}();

}  // namespace
}  // namespace lutra
