// The process-wide table of compiled kernels, keyed by instruction set and the text of the loop IR.
#include "jit/runtime/kernel_cache.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "jit/runtime/profile.h"
#include "ops/core/digest.h"
#include "ops/core/error.h"
#include "ops/core/interrupt.h"

namespace lutra {
namespace {

// Number of unused CPU kernels that are kept, in case the same one is compiled again.
constexpr size_t kIdle = 1024;
// About 30 us of vector instructions.
constexpr int32_t kLookAfter = 1 << 16;

struct Entry {
  std::shared_ptr<CachedKernel> kernel;
  bool removable = false;    // once nobody uses it; false for a GPU, whose code may still be running
  uint64_t last_lookup = 0;  // by Cache::lookups
  bool is_idle() const { return removable && kernel.use_count() == 1 && !kernel->launches; }
};

struct Cache {
  std::mutex mutex;
  std::unordered_map<std::string, Entry> kernels;
  uint64_t lookups = 0;
  size_t look_at = 2 * kIdle;                 // number of kernels at which idle ones are removed
  std::unordered_set<std::string> compiling;  // keys that some thread is compiling
  std::condition_variable compiled;           // notified when a key is removed from `compiling`
};

// Ends the compilation of a key, even if it failed: then a waiting thread tries.
struct Compiling {
  Cache& cache;
  const std::string& key;
  Compiling(Cache& cache, const std::string& key) : cache(cache), key(key) {}
  Compiling(const Compiling&) = delete;
  ~Compiling() {
    {
      const std::lock_guard lock(cache.mutex);
      cache.compiling.erase(key);
    }
    cache.compiled.notify_all();
  }
};

// Never destroyed, since tensors and executables may outlive static objects.
Cache& cache() {
  static Cache* c = new Cache;
  return *c;
}

// Removes the kernels that have been idle longest. Call it with the lock held. A removed kernel is compiled again when
// it is needed.
void forget_idle(Cache& c) {
  if (c.kernels.size() < c.look_at) return;
  std::vector<uint64_t> idle;
  for (const auto& [key, entry] : c.kernels) {
    if (entry.is_idle()) idle.push_back(entry.last_lookup);
  }
  if (idle.size() > kIdle) {
    const auto oldest_kept = idle.end() - std::ptrdiff_t(kIdle);
    std::nth_element(idle.begin(), oldest_kept, idle.end());
    std::erase_if(c.kernels, [&](const auto& k) { return k.second.is_idle() && k.second.last_lookup < *oldest_kept; });
  }
  c.look_at = c.kernels.size() + kIdle;
}

std::shared_ptr<CachedKernel> looked_up(Cache& c, Entry& entry) {
  entry.last_lookup = ++c.lookups;
  return entry.kernel;
}

// Adds a compiled or loaded kernel. Call it with the lock held.
std::shared_ptr<CachedKernel> publish(Cache& c, const std::string& key, const Backend& backend,
                                      std::shared_ptr<CachedKernel> kernel) {
  forget_idle(c);
  const bool removable = !backend.preferences.leaves_processors;
  return looked_up(c, c.kernels.emplace(key, Entry{std::move(kernel), removable}).first->second);
}

}  // namespace

std::shared_ptr<CachedKernel> cached_kernel(const loop::Kernel& kernel, const KernelTarget& target, bool listing,
                                            bool waits) {
  const Backend& backend = backend_of(target.device);
  const std::string key = backend.kernel_key(kernel, target) + (listing ? " listed\n" : "\n") + loop::print(kernel);
  Cache& c = cache();
  std::unique_lock lock(c.mutex);
  while (!c.kernels.count(key) && c.compiling.count(key)) {
    if (!waits) return nullptr;
    c.compiled.wait_for(lock, std::chrono::milliseconds(10));
    lock.unlock();
    check_stop();
    lock.lock();
  }
  if (const auto it = c.kernels.find(key); it != c.kernels.end()) {
    const std::shared_ptr<CachedKernel> found = looked_up(c, it->second);
    lock.unlock();
    if (!target.at_once) found->code->complete();
    return found;
  }
  c.compiling.insert(key);
  lock.unlock();
  const Compiling scope(c, key);
  auto made = std::make_shared<CachedKernel>();
  made->code = backend.compile(kernel, target, listing);
  count_compiled_kernel();
  made->name = kernel.name;
  LUTRA_CHECK(made->code, "kernel ", kernel.name, " has no code");
  const std::lock_guard published(c.mutex);
  return publish(c, key, backend, std::move(made));
}

const Code& looking_code(CachedKernel& cached, const loop::Kernel& kernel, KernelTarget target) {
  if (const Code* code = cached.looking.load(std::memory_order_acquire)) return *code;
  target.look_after = kLookAfter;
  std::shared_ptr<CachedKernel> made = cached_kernel(kernel, target, false);
  const std::lock_guard lock(cache().mutex);
  if (!cached.with_looks) cached.with_looks = std::move(made);
  cached.looking.store(cached.with_looks->code.get(), std::memory_order_release);
  return *cached.with_looks->code;
}

std::shared_ptr<CachedKernel> loaded_kernel(const std::string& name, const std::string& image, const Backend& backend) {
  Cache& c = cache();
  std::lock_guard<std::mutex> lock(c.mutex);
  const std::string key = str("image ", digest(image), " ", name);
  if (const auto it = c.kernels.find(key); it != c.kernels.end()) return looked_up(c, it->second);
  auto made = std::make_shared<CachedKernel>();
  made->code = backend.load(image);
  made->name = name;
  return publish(c, key, backend, std::move(made));
}

std::shared_ptr<CachedKernel> library_counters(const char* op) {
  return named_counters(std::string(op) + " (library)");
}

std::shared_ptr<CachedKernel> named_counters(const std::string& name) {
  Cache& c = cache();
  std::lock_guard<std::mutex> lock(c.mutex);
  std::shared_ptr<CachedKernel>& entry = c.kernels["counters " + name].kernel;
  if (!entry) entry = std::make_shared<CachedKernel>(), entry->name = name;
  return entry;
}

std::string perf_report() {
  std::vector<std::shared_ptr<CachedKernel>> all;
  {
    Cache& c = cache();
    std::lock_guard<std::mutex> lock(c.mutex);
    for (const auto& [key, entry] : c.kernels) {
      if (entry.kernel->launches) all.push_back(entry.kernel);
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->nanoseconds > b->nanoseconds; });
  std::string text;
  for (const auto& k : all) {
    const uint64_t n = k->launches, ns = k->nanoseconds;
    const double seconds = std::max(double(ns), 1.0) / 1e9;
    char line[256], rate[32] = "";
    if (k->flops) std::snprintf(rate, sizeof rate, " %7.1f GFLOP/s", double(k->flops) / seconds / 1e9);
    std::snprintf(line, sizeof line, "%10.3f ms %8llu launches %9.2f us each %7.1f GB/s%s  %s\n", double(ns) / 1e6,
                  static_cast<unsigned long long>(n), double(ns) / 1e3 / double(n), double(k->bytes) / seconds / 1e9,
                  rate, k->name.c_str());
    text += line;
  }
  return text;
}

}  // namespace lutra
