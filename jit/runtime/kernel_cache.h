// Kernels of this process: loop IR and instruction set in, published code out, compiled once.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "jit/codegen/kernel.h"

namespace lutra {

struct CachedKernel {
  std::shared_ptr<Code> code;  // null for a library's kernels
  std::string name;
  // The same code with looks, once it has run long; the pointer is for reading without a lock.
  std::shared_ptr<CachedKernel> with_looks;
  std::atomic<const Code*> looking{nullptr};
  // Counted when runtime_config().perf.
  std::atomic<uint64_t> launches{0}, nanoseconds{0}, bytes{0}, flops{0};
  void count(uint64_t ns, int64_t moved, double computed) {
    launches++, nanoseconds += ns, bytes += uint64_t(moved), flops += uint64_t(computed);
  }
};

// Equal loop IR gives the same entry for one target, from any thread. While another thread compiles it, this waits, or
// gives null where the caller has something else to do.
std::shared_ptr<CachedKernel> cached_kernel(const loop::Kernel& kernel, const KernelTarget& target, bool listing,
                                            bool waits = true);
// The code of cached that looks whether it shall end; the first call compiles it.
const Code& looking_code(CachedKernel& cached, const loop::Kernel& kernel, KernelTarget target);
// The same of code that was kept (Backend::image): nothing is compiled.
std::shared_ptr<CachedKernel> loaded_kernel(const std::string& name, const std::string& image, const Backend& backend);
// Where launches of a library's kernel are counted.
std::shared_ptr<CachedKernel> library_counters(const char* op);
// Where launches of several kernels at once are counted.
std::shared_ptr<CachedKernel> named_counters(const std::string& name);
// Kernels by time, one a line; empty when none was measured.
std::string perf_report();

}  // namespace lutra
