// NVRTC's functions, cubins from the disk or from NVRTC, and modules by source.
#include "ops/cuda/loaded_module.h"

#include <dlfcn.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <vector>

#include "ops/core/disk_cache.h"
#include "ops/core/numerics.h"
#include "ops/cuda/allocator.h"
#include "ops/cuda/library.h"

namespace lutra::cuda {
namespace {

using RtcProgram = struct _nvrtcProgram*;

// clang-format off
#define LUTRA_NVRTC_FUNCTIONS(X)                                                                                      \
  X(version, "nvrtcVersion", (int*, int*))                                                                            \
  X(create, "nvrtcCreateProgram", (RtcProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  X(destroy, "nvrtcDestroyProgram", (RtcProgram*))                                                                    \
  X(compile, "nvrtcCompileProgram", (RtcProgram, int, const char* const*))                                            \
  X(cubin_size, "nvrtcGetCUBINSize", (RtcProgram, size_t*))                                                           \
  X(cubin, "nvrtcGetCUBIN", (RtcProgram, char*))                                                                      \
  X(ptx_size, "nvrtcGetPTXSize", (RtcProgram, size_t*))                                                               \
  X(ptx, "nvrtcGetPTX", (RtcProgram, char*))                                                                          \
  X(log_size, "nvrtcGetProgramLogSize", (RtcProgram, size_t*))                                                        \
  X(log, "nvrtcGetProgramLog", (RtcProgram, char*))
// clang-format on

struct Nvrtc {
#define X(member, symbol, signature) int(*member) signature = nullptr;
  LUTRA_NVRTC_FUNCTIONS(X)
#undef X
  std::string problem;
  int major = 0, minor = 0;

  Nvrtc() {
    void* lib = open_library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, problem);
    if (!lib) return;
#define X(member, symbol, signature)                               \
  member = reinterpret_cast<int(*) signature>(dlsym(lib, symbol)); \
  if (!member && problem.empty()) problem = std::string("libnvrtc lacks ") + symbol + ": older than CUDA 12";
    LUTRA_NVRTC_FUNCTIONS(X)
#undef X
    if (problem.empty() && (version(&major, &minor) != 0 || major < 12)) {
      problem = str("NVRTC ", major, ".", minor, " is too old: 12.0 or later is needed");
    }
  }
};

const Nvrtc& nvrtc() {
  static const Nvrtc* n = new Nvrtc;  // never destroyed: the library stays open to the end
  return *n;
}

constexpr int kInvalidOption = 5;  // NVRTC_ERROR_INVALID_OPTION
constexpr const char* kFaster = "-minimal";

std::vector<std::string> options(const std::string& arch) {
  return {"-arch=" + arch,   "-std=c++20",      "-fmad=false",        "-ftz=false", "-prec-div=true",
          "-prec-sqrt=true", "-default-device", "-no-source-include", "-w",         kFaster};
}

std::string numbered(const std::string& source) {
  std::stringstream in(source), out;
  int n = 0;
  for (std::string line; std::getline(in, line);) out << ++n << ": " << line << "\n";
  return out.str();
}

std::string compile_fresh(const std::string& source, const std::vector<std::string>& flags, bool ptx) {
  const Nvrtc& n = nvrtc();
  const auto size_of_image = ptx ? n.ptx_size : n.cubin_size;
  RtcProgram program = nullptr;
  if (n.create(&program, source.c_str(), "lutra.cu", 0, nullptr, nullptr) != 0) fail_internal("nvrtcCreateProgram");
  std::vector<const char*> args;
  for (const std::string& f : flags) args.push_back(f.c_str());
  const int result = n.compile(program, int(args.size()), args.data());
  size_t bytes = 0;
  std::string out;
  if (result == 0 && size_of_image(program, &bytes) == 0) {
    out.resize(bytes);
    (ptx ? n.ptx : n.cubin)(program, out.data());
  } else if (n.log_size(program, &bytes) == 0) {
    out.resize(bytes);
    n.log(program, out.data());
  }
  n.destroy(&program);
  // Older versions do not know the option, which only makes compilation faster.
  if (result == kInvalidOption && flags.back() == kFaster)
    return compile_fresh(source, {flags.begin(), flags.end() - 1}, ptx);
  if (result != 0) fail_internal("NVRTC: ", out.c_str(), "\n", numbered(source));
  return out;
}

struct Loaded {
  std::mutex mutex;
  std::set<FunctionHandle> dependent;  // functions that wait by themselves
  std::map<std::pair<int, std::string>, std::weak_ptr<LoadedModule>> modules;
};
Loaded& loaded() {
  static Loaded* l = new Loaded;
  return *l;
}

}  // namespace

bool has_nvrtc() { return nvrtc().problem.empty(); }
const std::string& nvrtc_problem() { return nvrtc().problem; }

std::string compile_fresh_cubin(const std::string& source, int arch) {
  if (!has_nvrtc()) fail("cuda: kernels cannot be compiled: ", nvrtc_problem());
  return compile_fresh(source, options(str("sm_", arch)), false);
}

namespace {

std::string key_of(const std::string& source, const std::vector<std::string>& flags) {
  std::string key = str("numerics ", numerics::kVersion, " nvrtc ", nvrtc().major, ".", nvrtc().minor);
  for (const std::string& f : flags) key += " " + f;
  return key + "\n" + source;
}

std::string compile_for(const std::string& source, const std::string& arch, bool ptx) {
  if (!has_nvrtc()) fail("cuda: kernels cannot be compiled: ", nvrtc_problem());
  const std::vector<std::string> flags = options(arch);
  const std::string key = key_of(source, flags);
  const char* kind = ptx ? "ptx" : "cubin";
  std::string image;
  if (read_cached(kind, key, image)) return image;
  image = compile_fresh(source, flags, ptx);
  write_cached(kind, key, image);
  return image;
}

}  // namespace

std::string compile_cubin(const std::string& source, int arch) { return compile_for(source, str("sm_", arch), false); }
std::string compile_ptx(const std::string& source, int arch) {
  return compile_for(source, str("compute_", arch), true);
}

namespace {

thread_local uint64_t waited_ns = 0;

Result load_module(ModuleHandle* module, const void* image, Context& c) {
  LUTRA_CUDA(set_current(c.handle));
  const Result result = driver()->module_load(module, image);
  if (result != kOutOfMemory) return result;
  empty_cache({DeviceType::kCUDA, int8_t(c.index)});  // it may keep the memory that the driver lacks
  return driver()->module_load(module, image);
}

}  // namespace

std::shared_ptr<LoadedModule> LoadedModule::load(const void* image, Context& c) {
  ModuleHandle module = nullptr;
  if (load_module(&module, image, c) != kSuccess) return nullptr;
  return std::shared_ptr<LoadedModule>(new LoadedModule(module));
}

std::shared_ptr<LoadedModule> LoadedModule::find(const std::string& source, Context& c) {
  Loaded& all = loaded();
  {
    std::lock_guard lock(all.mutex);
    if (auto known = all.modules[{c.index, source}].lock()) return known;
  }
  std::string cubin;
  if (!has_nvrtc() || !read_cached("cubin", key_of(source, options(str("sm_", c.arch))), cubin)) return nullptr;
  return keep(source, cubin, c);
}

std::shared_ptr<LoadedModule> LoadedModule::get(const std::string& source, Context& c) {
  if (auto found = find(source, c)) return found;
  const auto start = std::chrono::steady_clock::now();
  const std::string cubin = compile_cubin(source, c.arch);
  waited_ns += uint64_t((std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1));
  return keep(source, cubin, c);
}

uint64_t compile_wait_ns() { return waited_ns; }

std::shared_ptr<LoadedModule> LoadedModule::keep(const std::string& source, const std::string& cubin, Context& c) {
  ModuleHandle module = nullptr;
  check(load_module(&module, cubin.data(), c), "module_load()");
  const bool dependent = c.arch >= 90 && source.find(kDependentLaunch) != std::string::npos;
  std::shared_ptr<LoadedModule> made(new LoadedModule(module, dependent));
  Loaded& all = loaded();
  std::lock_guard lock(all.mutex);
  std::weak_ptr<LoadedModule>& place = all.modules[{c.index, source}];
  if (auto known = place.lock()) return known;
  place = made;
  return made;
}

LoadedModule::~LoadedModule() {
  if (!functions_.empty()) {
    const std::lock_guard lock(loaded().mutex);
    for (FunctionHandle f : functions_) loaded().dependent.erase(f);
  }
  driver()->module_unload(module_);
}

bool waits_by_itself(FunctionHandle function) {
  const std::lock_guard lock(loaded().mutex);
  return loaded().dependent.count(function) > 0;
}

FunctionHandle LoadedModule::find_function(const char* name) {
  FunctionHandle f = nullptr;
  return driver()->module_function(&f, module_, name) == kSuccess ? f : nullptr;
}

FunctionHandle LoadedModule::function(const char* name, int shared_bytes) {
  constexpr int kMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  FunctionHandle f = nullptr;
  LUTRA_CUDA(module_function(&f, module_, name));
  if (dependent_) {
    const std::lock_guard lock(loaded().mutex);
    if (loaded().dependent.insert(f).second) functions_.push_back(f);
  }
  if (shared_bytes > 48 * 1024) LUTRA_CUDA(set_function_attribute(f, kMaxDynamicShared, shared_bytes));
  return f;
}

}  // namespace lutra::cuda
