// Records that kernels wrote in, errors with the words of their launches out.
#include "ops/cuda/faults.h"

#include <array>
#include <atomic>
#include <unordered_map>
#include <vector>

#include "ops/core/late_error.h"

namespace lutra::cuda {
namespace {

constexpr unsigned kPortableMapped = 1 | 2;  // CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP

struct Faults {
  std::mutex mutex;
  std::unordered_map<int64_t, std::function<Error(const LaunchFault&)>> sites;
  int64_t next = 1;
  struct Removed {
    int64_t site;
    int device;
    size_t number;
  };
  std::vector<Removed> removed;
  std::atomic<size_t> removals{0};
  std::array<std::atomic<LaunchFault*>, 128> records{};
};

// Never destroyed: sites are removed by what may outlive the static destructors.
Faults& faults() {
  static Faults* f = new Faults;
  return *f;
}

void forget_records() {
  Faults& f = faults();
  for (auto& slot : f.records) {
    if (LaunchFault* record = slot.exchange(nullptr)) driver()->host_free(record);
  }
}
[[maybe_unused]] const bool registered = (on_set_driver(forget_records), true);

}  // namespace

LaunchFault* fault_record(Context& c) {
  std::atomic<LaunchFault*>& slot = faults().records[size_t(c.index)];
  if (LaunchFault* record = slot.load(std::memory_order_acquire)) return record;
  Faults& f = faults();
  std::lock_guard lock(f.mutex);
  if (LaunchFault* record = slot.load(std::memory_order_acquire)) return record;
  void* bytes = nullptr;
  LUTRA_CUDA(host_allocate(&bytes, sizeof(LaunchFault), kPortableMapped));
  auto* record = new (bytes) LaunchFault;
  slot.store(record, std::memory_order_release);
  return record;
}

int64_t add_fault_site(std::function<Error(const LaunchFault&)> describe) {
  Faults& f = faults();
  std::lock_guard lock(f.mutex);
  f.sites.emplace(f.next, std::move(describe));
  return f.next++;
}

void remove_fault_site(int64_t site, int device) {
  Faults& f = faults();
  std::lock_guard lock(f.mutex);
  f.removed.push_back({site, device, f.removals++});
}

size_t removed_fault_sites() { return faults().removals; }

void forget_fault_sites(Context& c, size_t removed) {
  Faults& f = faults();
  if (!removed) return;
  std::lock_guard lock(f.mutex);
  std::erase_if(f.removed, [&](const Faults::Removed& r) {
    const bool over = r.device == c.index && r.number < removed;
    if (over) f.sites.erase(r.site);
    return over;
  });
}

void raise_fault(Context& c) {
  Faults& f = faults();
  LaunchFault* record = f.records[size_t(c.index)].load(std::memory_order_acquire);
  if (!record || !std::atomic_ref<int32_t>(record->set).load(std::memory_order_acquire)) return;
  // Later work may be about to write it too.
  LUTRA_CUDA(stream_synchronize(c.stream));
  const LaunchFault fault = *record;
  *record = LaunchFault();
  std::function<Error(const LaunchFault&)> describe;
  {
    std::lock_guard lock(f.mutex);
    if (auto it = f.sites.find(fault.site); it != f.sites.end()) describe = it->second;
  }
  if (describe) throw LateError(describe(fault));
  throw Error(ErrorKind::kData, str("cuda:", c.index, ": index ", fault.index,
                                    " is out of bounds for a dimension of size ", fault.bound));
}

}  // namespace lutra::cuda
