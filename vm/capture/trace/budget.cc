// Budgets use this thread's CPU time, so that a busy machine does not end a capture.
#include "vm/capture/trace/budget.h"

#include <algorithm>
#include <cmath>

#include "ops/core/clock.h"

namespace lutra {
namespace {

constexpr uint64_t kMaxNodes = 20000, kNodesAMillisecond = 10;

// A factor for builds with checks, which are slower, so that captures do not end earlier in them.
#if defined(__SANITIZE_ADDRESS__) || defined(LUTRA_DEBUG)
constexpr double kSlower = 20;
#else
constexpr double kSlower = 1;
#endif

}  // namespace

Budget::Budget(int ms, double dear_ms)
    : most_nodes_(ms ? std::min(kMaxNodes, uint64_t(ms) * kNodesAMillisecond) : kMaxNodes),
      until_(ms ? thread_cpu_ms() + ms * kSlower : HUGE_VAL),
      dear_(dear_ms) {}

bool Budget::look() {
  next_look_ = work_ + kLook;
  return work_ > kMaxWork || thread_cpu_ms() > std::min(until_, dear_);
}

bool Budget::is_too_expensive() const { return dear_ != HUGE_VAL && thread_cpu_ms() > dear_; }

}  // namespace lutra
