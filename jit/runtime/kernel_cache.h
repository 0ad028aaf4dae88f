// The kernels of this process: compiles each kernel once, by loop IR and instruction set.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "jit/codegen/kernel.h"

namespace lutra {

struct CachedKernel {
  std::shared_ptr<Code> code;  // null for a library's kernels
  std::string name;
  // The same code with looks, compiled once the kernel has run long. The pointer is for reading without the lock.
  std::shared_ptr<CachedKernel> with_looks;
  std::atomic<const Code*> looking{nullptr};
  // Counted if runtime_config().perf is set.
  std::atomic<uint64_t> launches{0}, nanoseconds{0}, bytes{0}, flops{0};
  void count(uint64_t ns, int64_t moved, double computed) {
    launches++, nanoseconds += ns, bytes += uint64_t(moved), flops += uint64_t(computed);
  }
};

// Returns the kernel with this loop IR and target; the same entry for any thread. If another thread is compiling it,
// waits for it, or returns null if `waits` is false.
std::shared_ptr<CachedKernel> cached_kernel(const loop::Kernel& kernel, const KernelTarget& target, bool listing,
                                            bool waits = true);
// Returns the code of `cached` that looks whether it shall stop. The first call compiles it.
const Code& looking_code(CachedKernel& cached, const loop::Kernel& kernel, KernelTarget target);
// Returns a kernel with saved code (Backend::image), without compiling.
std::shared_ptr<CachedKernel> loaded_kernel(const std::string& name, const std::string& image, const Backend& backend);
// Counters for launches of a library's kernel.
std::shared_ptr<CachedKernel> library_counters(const char* op);
// Counters for launches of several kernels at once.
std::shared_ptr<CachedKernel> named_counters(const std::string& name);
// Lists the kernels by time, one a line. Empty if none was measured.
std::string perf_report();

}  // namespace lutra
