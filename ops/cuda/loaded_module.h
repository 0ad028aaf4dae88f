// CUDA C++ source in, functions out: compiled by NVRTC for the device's architecture, once a process, and kept on disk.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/cuda/context.h"

namespace lutra::cuda {

// Whether NVRTC can be had; nvrtc_problem() says why not.
bool has_nvrtc();
const std::string& nvrtc_problem();

// Source to a cubin for sm_<arch>. No device is needed. No multiply-add is contracted, denormals are kept, division and
// root are rounded correctly. Throws Error(kInternal) with the compiler's log and the numbered source; Error(kUser)
// where there is no NVRTC. Goes to the disk cache first: files of cache_directory()/cubin, one an entry,
// keyed by the source, architecture, options and NVRTC's version.
std::string compile_cubin(const std::string& source, int arch);
// The same past the disk cache.
std::string compile_fresh_cubin(const std::string& source, int arch);
// The same to PTX for compute_<arch> and what comes after it. Drivers older than NVRTC's CUDA version refuse it.
std::string compile_ptx(const std::string& source, int arch);

// A source with this text is one whose kernels all begin with sync_dependencies(): they may be launched before what
// they depend on has ended (programmatic dependent launch), and wait for it themselves. That the next one may begin
// they say by their end: to say it earlier costs launches outside of graphs 2 us each (H100).
inline constexpr const char kDependentLaunch[] = R"cuda(static inline void sync_dependencies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
)cuda";
// Whether the function is of such a source, and the device knows of such launches.
bool waits_by_itself(FunctionHandle function);

// A loaded module, shared by the process and immutable.
class LoadedModule {
 public:
  // Compiles and loads, or finds what was loaded before.
  static std::shared_ptr<LoadedModule> get(const std::string& source, Context& c);
  // The same without compiling: null where it was not loaded before and is not on the disk.
  static std::shared_ptr<LoadedModule> find(const std::string& source, Context& c);
  // A cubin or PTX; null where the driver refuses it.
  static std::shared_ptr<LoadedModule> load(const void* image, Context& c);
  ~LoadedModule();
  // Null where there is none of the name.
  FunctionHandle find_function(const char* name);
  // Throws where there is none of the name. shared_bytes: dynamic shared memory that launches will ask for at most.
  FunctionHandle function(const char* name, int shared_bytes = 0);

 private:
  explicit LoadedModule(ModuleHandle module, bool dependent = false) : module_(module), dependent_(dependent) {}
  static std::shared_ptr<LoadedModule> keep(const std::string& source, const std::string& cubin, Context& c);
  ModuleHandle module_;
  bool dependent_;                         // waits_by_itself
  std::vector<FunctionHandle> functions_;  // that it told of
};

// Nanoseconds that this thread has waited for LoadedModule::get to compile.
uint64_t compile_wait_ns();

}  // namespace lutra::cuda
