// Compiles CUDA C++ by NVRTC for the device's architecture, once a process, and keeps it on disk.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/cuda/context.h"

namespace lutra::cuda {

// Returns whether NVRTC is available. nvrtc_problem() tells why not.
bool has_nvrtc();
const std::string& nvrtc_problem();

// Compiles source to a cubin for sm_<arch>. It needs no device. No multiply-add is contracted, denormals are kept, and
// division and root are rounded correctly. Throws Error(kInternal) with the compiler's log and the numbered source,
// Error(kUser) if there is no NVRTC. It looks in the disk cache first: files of cache_directory()/cubin, one for each
// entry, keyed by the source, architecture, options and NVRTC's version.
std::string compile_cubin(const std::string& source, int arch);
// Does the same without the disk cache.
std::string compile_fresh_cubin(const std::string& source, int arch);
// Compiles to PTX for compute_<arch> and later. Drivers older than NVRTC's CUDA version refuse it.
std::string compile_ptx(const std::string& source, int arch);

// A source that contains this text calls sync_dependencies() at the start of all its kernels. So they may be launched
// before the work that they depend on has ended (programmatic dependent launch), and wait for it themselves. A kernel
// signals only by its end that the next one may begin: an earlier signal costs launches outside of graphs 2 us each
// (H100).
inline constexpr const char kDependentLaunch[] = R"cuda(static inline void sync_dependencies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
)cuda";
// Returns whether the function is from such a source, and the device supports such launches.
bool waits_by_itself(FunctionHandle function);

// A loaded module, shared by the process and immutable.
class LoadedModule {
 public:
  // Compiles and loads a module, or returns one that was loaded before.
  static std::shared_ptr<LoadedModule> get(const std::string& source, Context& c);
  // Does the same without compiling. Returns null if it was not loaded before and is not on the disk.
  static std::shared_ptr<LoadedModule> find(const std::string& source, Context& c);
  // Loads a cubin or PTX. Returns null if the driver refuses it.
  static std::shared_ptr<LoadedModule> load(const void* image, Context& c);
  ~LoadedModule();
  // Returns null if there is no function of that name.
  FunctionHandle find_function(const char* name);
  // Throws if there is no function of that name. shared_bytes: the most dynamic shared memory of its launches.
  FunctionHandle function(const char* name, int shared_bytes = 0);

 private:
  explicit LoadedModule(ModuleHandle module, bool dependent = false) : module_(module), dependent_(dependent) {}
  static std::shared_ptr<LoadedModule> keep(const std::string& source, const std::string& cubin, Context& c);
  ModuleHandle module_;
  bool dependent_;                         // see waits_by_itself
  std::vector<FunctionHandle> functions_;  // functions returned that wait by themselves
};

// Returns the nanoseconds that this thread has waited for LoadedModule::get to compile.
uint64_t compile_wait_ns();

}  // namespace lutra::cuda
