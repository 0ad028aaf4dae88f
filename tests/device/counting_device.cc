// Backend, runner, memory and libraries of the counting device.
#include "tests/device/counting_device.h"

#include <cstdlib>
#include <cstring>

#include "jit/codegen/kernel.h"
#include "jit/device/backend.h"
#include "jit/runtime/kernel_cache.h"
#include "jit/runtime/runner.h"
#include "ops/core/storage.h"

namespace lutra {
namespace {

class CountingRunner final : public Runner {
 public:
  using Runner::Runner;

 private:
  void launch_kernels(RunContext& c, const LaunchStep& first, const Generator& generator, bool&) const override {
    for (const LaunchStep* step = &first; step != FlatPlan::after(&first); step++) {
      counts().kernels++;
      FilledStep filled;
      if (!fill(c, *step, generator, filled)) continue;
      LaunchFault fault;
      filled.head->fault = &fault;
      step->kernel->code->run(filled.head);
      if (fault.set) report(filled, fault);
    }
  }
};

Preferences preferences() {
  static constexpr int64_t kSizes[] = {1031, 37, 23, 19, 17, 13};
  Preferences p;
  p.likely = {kSizes, kSizes, kSizes};
  return p;
}

class CountingBackend final : public Backend {
 public:
  CountingBackend() : Backend(numerics::kCpuReductions, lutra::preferences(), {}) {}
  Machine machine(Device) const override { return {}; }
  std::shared_ptr<Code> compile(const loop::Kernel& kernel, const KernelTarget&, bool listing) const override {
    counts().compiled++;
    return compile_kernel(kernel, {{}, "interp", {}}, listing);
  }
  std::string kernel_key(const loop::Kernel&, const KernelTarget&) const override { return "counting"; }
  std::unique_ptr<Runner> make_runner(const FlatPlan& flat) const override {
    return std::make_unique<CountingRunner>(flat);
  }
};

Ref<Storage> allocate_counted(size_t nbytes, Device device) {
  counts().allocations++;
  Ref<Storage> s = make_ref<Storage>();
  s->data = std::aligned_alloc(64, (nbytes + 64) / 64 * 64);
  s->nbytes = nbytes;
  s->device = device;
  s->deleter = [](void* p) { std::free(p); };
  return s;
}

void copy_counted(void* to, Device, const void* from, Device, size_t nbytes) { std::memcpy(to, from, nbytes); }

// Its memory is the host's, so the CPU's libraries take it.
void run_on_host(const ExternCall& call) {
  counts().libraries++;
  ExternCall here = call;
  here.device = {};
  run_extern(here);
}

bool any_dtype(DType) { return true; }

constexpr ExternKernel kKernels[] = {{OpId::sort, "host", any_dtype, nullptr, run_on_host}};

[[maybe_unused]] const bool registered = [] {
  static const CountingBackend backend;
  static constexpr DeviceMemory memory = {allocate_counted, copy_counted, [](Device) {}};
  register_backend(kCounting.type, &backend);
  set_device_memory(kCounting.type, &memory);
  set_extern_table(kCounting.type, kKernels);
  return true;
}();

}  // namespace

Counts& counts() {
  static Counts c;
  return c;
}

}  // namespace lutra
