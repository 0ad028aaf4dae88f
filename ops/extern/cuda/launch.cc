// Launches kernels by source. Each is compiled and loaded when it is first used on a GPU.
#include "ops/extern/cuda/launch.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "ops/core/settings.h"
#include "ops/cuda/faults.h"
#include "ops/cuda/loaded_module.h"

namespace lutra::cuda {
namespace {

Emulator* emulator = nullptr;
thread_local int open_launchers = 0;
thread_local ScratchPool* pool = nullptr;
thread_local bool only_prepare = false;
thread_local std::vector<KernelId> wanted_kernels;  // of the call that is being prepared

const char* device_type(DType t) {
  if (is_int(t)) return info(t).ir_name;
  switch (t) {
    case DType::kBool: return "bool8";
    case DType::kFloat16: return "half16";
    case DType::kBFloat16: return "bfloat";
    case DType::kFloat32: return "float";
    case DType::kFloat64: return "double";
    default: break;
  }
  fail_internal("a kernel for no dtype");
}

struct Key {
  const ExternSource* source;
  const char* name;
  uint64_t types;
  int variant, device;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    uint64_t h = reinterpret_cast<uintptr_t>(k.source) * 0x9e3779b97f4a7c15u + reinterpret_cast<uintptr_t>(k.name);
    h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u + k.types;
    h = (h ^ (h >> 32)) * 0x94d049bb133111ebu + uint64_t(k.variant) * 64 + uint64_t(k.device);
    return size_t(h ^ (h >> 31));
  }
};
struct Loaded {
  std::shared_ptr<LoadedModule> program;
  FunctionHandle function = nullptr;
};

FunctionHandle function_of(const KernelId& k, Context& c) {
  static std::mutex mutex;
  static auto& loaded = *new std::unordered_map<Key, Loaded, KeyHash>;  // never destroyed: the driver may end first
  Key key{&k.source, k.name, 1, k.variant, c.index};
  for (int i = 0; i < k.types.count; i++) key.types = key.types << 8 | uint64_t(k.types.of[i]);
  {
    const std::lock_guard lock(mutex);
    const auto found = loaded.find(key);
    if (found != loaded.end()) return found->second.function;
  }
  Loaded l;  // compiled without the lock, in parallel with other kernels
  l.program = LoadedModule::get(kernel_text(k), c);
  l.function = l.program->function(k.name, k.shared_bytes);
  const std::lock_guard lock(mutex);
  return loaded.emplace(key, std::move(l)).first->second.function;
}

struct Site {
  int64_t id;
  std::function<Error(const LaunchFault&)> describe;
};
std::mutex sites_mutex;
std::map<std::string, Site, std::less<>>& sites() {
  static std::map<std::string, Site, std::less<>> all;
  return all;
}

}  // namespace

std::string kernel_text(const KernelId& k) {
  std::string text = str(kDependentLaunch, kPrelude);
  for (int i = 0; i < k.types.count; i++) text += str("typedef ", device_type(k.types.of[i]), " T", i, ";\n");
  text += str("#define VARIANT ", k.variant, "\n// ", k.source.name, "\n");
  for (const char* before : k.source.before) text += before ? before : "";
  return text + k.source.text;
}

void ScratchPool::begin_call() {
  for (Block& b : blocks_) b.taken = false;
  lent_taken_ = 0;
}

void* ScratchPool::take_lent(size_t nbytes) {
  constexpr size_t kAlign = 512;
  const size_t misplaced = (reinterpret_cast<uintptr_t>(lent_) + lent_taken_) % kAlign;
  const size_t from = lent_taken_ + (misplaced ? kAlign - misplaced : 0);
  if (!lent_ || from > lent_bytes_ || lent_bytes_ - from < nbytes) return nullptr;
  lent_taken_ = from + nbytes;
  if (watch) watch->taken_lent(lent_ + from, nbytes);
  return lent_ + from;
}

void* ScratchPool::take(size_t nbytes, Device device) {
  constexpr size_t kSmall = size_t(4) << 20;
  constexpr int kSmallBlocks = 3;
  if (nbytes > kSmall) {
    if (void* p = take_lent(nbytes)) return p;
  }
  int fitting = 0;
  Block *best = nullptr, *giving_way = nullptr;
  for (Block& b : blocks_) {
    if (!b.storage) giving_way = &b;  // its allocation failed
    if (!b.storage || b.taken || b.storage->device != device) continue;
    if (b.storage->nbytes < nbytes) {
      if (!giving_way && b.storage->refs.load(std::memory_order_acquire) == 1) giving_way = &b;
      continue;
    }
    fitting++;
    const bool better =
        nbytes <= kSmall ? !best || b.used < best->used : !best || b.storage->nbytes < best->storage->nbytes;
    if (better) best = &b;
  }
  if (!best || (nbytes <= kSmall && fitting < kSmallBlocks)) {
    best = giving_way ? giving_way : &blocks_.emplace_back();
    best->storage = nullptr;
    best->storage = lutra::allocate(nbytes, device);
  }
  best->taken = true, best->used = ++takes_;
  if (watch) watch->taken(size_t(best - blocks_.data()));
  const bool held = !holder_ || std::find(holder_->begin(), holder_->end(), best->storage) != holder_->end();
  if (!held) holder_->push_back(best->storage);
  return best->storage->data;
}

ScratchScope::ScratchScope(ScratchPool* p) : before_(pool) { pool = p; }
ScratchScope::~ScratchScope() { pool = before_; }

PrepareScope::PrepareScope() { only_prepare = true; }
PrepareScope::~PrepareScope() { only_prepare = false; }
bool preparing() { return only_prepare; }
void prepare(const ExternCall& call) {
  const PrepareScope scope;
  wanted_kernels.clear();
  try {
    run_extern(call);
  } catch (const Error&) {
  }
  // In parallel: each has a source of its own, or finds what another thread compiled.
  std::vector<std::jthread> others;  // also joined if memory runs out
  const auto load = [device = call.device, own = installed_settings](const KernelId& kernel) {
    const SettingsScope settings(own);
    try {
      function_of(kernel, context(device));
    } catch (const std::exception&) {  // the call itself will report it
    }
  };
  std::set<std::string> seen;
  for (const KernelId& kernel : wanted_kernels) {
    if (!seen.insert(kernel_text(kernel)).second || &kernel == &wanted_kernels.back()) continue;
    try {
      others.emplace_back(load, kernel);
    } catch (const std::system_error&) {
      break;  // no thread is available: compiles one after the other
    }
  }
  if (!wanted_kernels.empty()) load(wanted_kernels.back());
  for (std::jthread& t : others) t.join();
  for (const KernelId& kernel : wanted_kernels) load(kernel);
}

void set_emulator(Emulator* e) { emulator = e; }
bool emulated() { return emulator != nullptr; }

int64_t fault_site(std::string_view op, std::function<Error(const LaunchFault&)> describe) {
  const std::lock_guard lock(sites_mutex);
  const auto found = sites().find(op);
  if (found != sites().end()) return found->second.id;
  const int64_t id = emulator ? int64_t(sites().size()) : add_fault_site(describe);
  sites().emplace(std::string(op), Site{id, std::move(describe)});
  return id;
}

int64_t index_fault_site(std::string_view op) {
  const int64_t site = fault_site(op, [op = std::string(op)](const LaunchFault& f) {
    return Error(ErrorKind::kData,
                 str(op, ": index ", f.index, " is out of bounds for dimension ", f.arg, " with size ", f.bound));
  });
  return emulator ? site : site_here(site);
}

Error describe_fault(const LaunchFault& fault) {
  for (const auto& [key, site] : sites()) {
    if (site.id == fault.site) return site.describe(fault);
  }
  fail_internal("a fault of no known site");
}

Launcher::Launcher(const ExternCall& call) : call(call) {
  // A nested call does not touch the outer call's memory.
  if (pool && !only_prepare && open_launchers == 0) pool->begin_call();
  if (!emulator) {
    context_ = &cuda::context(call.device);
    stream_ = call.stream ? static_cast<StreamHandle>(call.stream) : context_->stream;
  }
  open_launchers++;
}
Launcher::~Launcher() { open_launchers--; }

void* Launcher::scratch_bytes(size_t n) {
  if (only_prepare) return reinterpret_cast<void*>(512);
  const Device device = emulator ? Device() : call.device;
  if (pool) return pool->take(n, device);
  // ops/core's function, which calls the device's allocator.
  return held_.emplace_back(lutra::allocate(n, device))->data;
}

void Launcher::zero(void* p, size_t nbytes) {
  if (nbytes == 0 || only_prepare) return;
  if (emulator) {
    std::memset(p, 0, nbytes);
    return;
  }
  LUTRA_CUDA(set_bytes(reinterpret_cast<DevicePtr>(p), 0, nbytes, stream_));
}

void Launcher::copy(void* to, const void* from, size_t nbytes) {
  if (nbytes == 0 || only_prepare) return;
  if (emulator) {
    std::memcpy(to, from, nbytes);
    return;
  }
  LUTRA_CUDA(copy_device(reinterpret_cast<DevicePtr>(to), reinterpret_cast<DevicePtr>(from), nbytes, stream_));
}

LaunchFault* Launcher::fault() { return emulator ? &emulator->fault : fault_record(*context_); }

void Launcher::launched() {
  if (context_ && !only_prepare) cuda::launched(*context_, name(call.op), nullptr, 0);
}

void Launcher::launch(const KernelId& kernel, const ExternGrid& grid, unsigned block, void** params) {
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0) return;
  if (grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535) {
    fail(name(call.op), ": ", grid.x, " x ", grid.y, " x ", grid.z, " blocks are too many for ", kernel.name);
  }
  if (emulator) return emulator->launch(kernel_text(kernel), kernel.name, grid, block, params);
  if (only_prepare) return wanted_kernels.push_back(kernel);
  const FunctionHandle function = function_of(kernel, *context_);
  LUTRA_CUDA(launch(function, unsigned(grid.x), unsigned(grid.y), unsigned(grid.z), block, 1, 1,
                    unsigned(kernel.shared_bytes), stream_, params, nullptr));
  launched();
}

}  // namespace lutra::cuda
