// Turns records that kernels wrote into errors of their launches.
#include "ops/cuda/faults.h"

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

#include "ops/core/late_error.h"
#include "ops/core/place.h"

namespace lutra::cuda {
namespace {

constexpr unsigned kPortableMapped = 1 | 2;  // CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP

// The host memory through which host and kernels communicate.
struct HostWords {
  LaunchFault fault;
  int32_t stop = 0;  // not 0: loops must end
};

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
  std::map<std::pair<std::string, int>, int64_t> place_ids;
  std::vector<std::pair<std::string, int>> places;  // by id, from 1
};

// A site's id is its low half. The high half is the id of its place.
constexpr int kPlaceShift = 32;
constexpr int64_t kSiteMask = (int64_t(1) << kPlaceShift) - 1;

// Never destroyed: objects that outlive the static destructors may remove sites.
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
[[maybe_unused]] const bool records_are_forgotten = (on_set_driver(forget_records), true);

}  // namespace

LaunchFault* fault_record(Context& c) {
  std::atomic<LaunchFault*>& slot = faults().records[size_t(c.index)];
  if (LaunchFault* record = slot.load(std::memory_order_acquire)) return record;
  Faults& f = faults();
  std::lock_guard lock(f.mutex);
  if (LaunchFault* record = slot.load(std::memory_order_acquire)) return record;
  void* bytes = nullptr;
  LUTRA_CUDA(host_allocate(&bytes, sizeof(HostWords), kPortableMapped));
  auto* words = new (bytes) HostWords;
  slot.store(&words->fault, std::memory_order_release);
  return &words->fault;
}

int32_t* loops_stop(Context& c) { return &reinterpret_cast<HostWords*>(fault_record(c))->stop; }

void end_loops(Context& c) {
  const std::atomic_ref<int32_t> stop(*loops_stop(c));
  stop.store(1, std::memory_order_release);
  driver()->stream_synchronize(c.stream);
  stop.store(0, std::memory_order_release);
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

int64_t site_here(int64_t site) {
  Place place;
  if (!site || !place_now(place)) return site;
  Faults& f = faults();
  std::lock_guard lock(f.mutex);
  const auto [it, fresh] = f.place_ids.try_emplace({place.file, place.line}, int64_t(f.places.size()) + 1);
  if (fresh) f.places.push_back(it->first);
  return site | it->second << kPlaceShift;
}

void raise_fault(Context& c) {
  Faults& f = faults();
  LaunchFault* record = f.records[size_t(c.index)].load(std::memory_order_acquire);
  if (!record || !std::atomic_ref<int32_t>(record->set).load(std::memory_order_acquire)) return;
  // Later work may be about to write the record too.
  LUTRA_CUDA(stream_synchronize(c.stream));
  const LaunchFault fault = *record;
  *record = LaunchFault();
  std::function<Error(const LaunchFault&)> describe;
  std::string place;
  {
    std::lock_guard lock(f.mutex);
    if (auto it = f.sites.find(fault.site & kSiteMask); it != f.sites.end()) describe = it->second;
    const auto id = size_t(fault.site >> kPlaceShift);
    if (id > 0 && id <= f.places.size()) place = str(f.places[id - 1].first, ":", f.places[id - 1].second);
  }
  if (describe) {
    const Error error = describe(fault);
    if (place.empty() && error.file) place = str(error.file, ":", error.line);
    if (place.empty()) throw LateError(error);
    throw LateError(Error(error.kind, str(error.what(), " (launched at ", place, ")")));
  }
  throw Error(ErrorKind::kData, str("cuda:", c.index, ": index ", fault.index,
                                    " is out of bounds for a dimension of size ", fault.bound));
}

}  // namespace lutra::cuda
