// The CPU's backend: description of the machine, numerics of sums, code by instruction set.
#include <unistd.h>

#include <algorithm>
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
  p.fed_scatters = true;
  p.arena.cleared_late = true;
  return p;
}

struct Rate {
  const char* isa;
  double additions;
};
// Additions a second. Measured on one core of a Sapphire Rapids: half of its multiply-adds a second (137 to 157 and 78
// GFLOP/s), and adds without vectors.
constexpr Rate kRates[] = {{"avx512", 74e9}, {"avx2", 39e9}};
constexpr double kScalarRate = 4e9;

// Values that cannot be queried are those of such a core. Measured: sums of two vectors in the nearest and in the
// shared cache, copies in the second cache and in memory, a chain of kernels of four elements. Handing over a chunk
// takes 0.6 us to a thread that looks for work, 18 us to a sleeping one. fork_seconds is in between, found by trial:
// the least share is then about 16,000 elements. line_seconds is an estimate.
Machine rated(Machine m) {
  const double cache_rate[] = {500e9, 55e9, 28e9};
  std::copy(std::begin(cache_rate), std::end(cache_rate), m.cache_rate);
  m.processor_rate = 12e9;
  m.memory_rate = m.processor_rate * double(m.processors);
  const Rate* known = std::find_if(std::begin(kRates), std::end(kRates), [&](const Rate& r) { return r.isa == m.isa; });
  m.add_rate = known == std::end(kRates) ? kScalarRate : known->additions;
  m.launch_seconds = 0.03e-6, m.fork_seconds = 2.52e-6, m.line_seconds = 10e-9;
  return m;
}

// The machine for golden texts, whichever machine runs the tests.
Machine stated_machine() {
  Machine m;
  m.isa = "avx2";
  m.processors = 4;
  m.memory_bytes = size_t(16) << 30;
  m.cache_bytes[0] = 32 << 10, m.cache_bytes[1] = 1 << 20, m.cache_bytes[2] = 32 << 20;
  return rated(m);
}

size_t system_value(int name) { return size_t(std::max<long>(sysconf(name), 0)); }

class CpuBackend final : public Backend {
 public:
  CpuBackend() : Backend(numerics::kCpuReductions, lutra::preferences(), stated_machine()) {}

  Machine machine(Device) const override {
    Machine m;
    m.isa = best_isa();
    m.processors = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
    m.memory_bytes = memory_bytes();
    m.cache_bytes[0] = system_value(_SC_LEVEL1_DCACHE_SIZE);
    m.cache_bytes[1] = system_value(_SC_LEVEL2_CACHE_SIZE);
    m.cache_bytes[2] = system_value(_SC_LEVEL3_CACHE_SIZE);
    return rated(m);
  }
  bool has_host_memory() const override { return true; }
  std::shared_ptr<Code> compile(const loop::Kernel& kernel, const KernelTarget& target, bool listing) const override {
    return compile_kernel(kernel, target, listing);
  }
  std::string kernel_key(const loop::Kernel&, const KernelTarget& target) const override {
    return target.look_after ? str(target.isa, " looks after ", target.look_after) : target.isa;
  }
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
