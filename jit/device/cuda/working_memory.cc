// Takes leases from a list of the process, and puts them back.
#include "jit/device/cuda/working_memory.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "ops/cuda/allocator.h"

namespace lutra {
namespace {

// An arena that is too small grows by at least an eighth, up to this limit. Otherwise slowly growing sizes would move
// it in each run.
constexpr size_t kMaxSpare = size_t(32) << 20;

struct Idle {
  std::mutex mutex;
  std::vector<std::pair<Device, std::unique_ptr<WorkingMemory::Bundle>>> all;
};

// Never destroyed, since executables may outlive static objects.
Idle& idle() {
  static Idle* i = new Idle;
  return *i;
}

size_t arena_bytes(const WorkingMemory::Bundle& b) { return b.arena ? b.arena->nbytes : 0; }

void release_idle() {
  std::vector<std::pair<Device, std::unique_ptr<WorkingMemory::Bundle>>> gone;
  const std::lock_guard lock(idle().mutex);
  gone.swap(idle().all);
}
[[maybe_unused]] const bool idle_memory_is_released = (cuda::set_idle_memory(release_idle), true);

}  // namespace

void WorkingMemory::take(Device device) {
  device_ = device;
  {
    const std::lock_guard lock(idle().mutex);
    auto& all = idle().all;
    auto best = all.end();
    for (auto i = all.begin(); i != all.end(); ++i) {
      if (i->first == device && (best == all.end() || arena_bytes(*i->second) > arena_bytes(*best->second))) best = i;
    }
    if (best != all.end()) {
      bundle_ = std::move(best->second);
      all.erase(best);
    }
  }
  if (!bundle_) bundle_ = std::make_unique<Bundle>();
}

void WorkingMemory::give_back() {
  if (!bundle_) return;
  bundle_->scratch.hold_in(nullptr);
  bundle_->scratch.lend(nullptr, 0);
  const std::lock_guard lock(idle().mutex);
  idle().all.emplace_back(device_, std::move(bundle_));
}

void* WorkingMemory::arena(size_t bytes) {
  Ref<Storage>& a = bundle_->arena;
  if (!a || a->nbytes < bytes) {
    const size_t before = a ? a->nbytes : 0;
    a = nullptr;
    a = allocate(std::max(bytes, before + std::min(before / 8, kMaxSpare)), device_);
  }
  return a->data;
}

}  // namespace lutra
