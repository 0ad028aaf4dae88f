// The processor's time of this thread: a machine that is busy with other things does not end a capture.
#include "vm/capture/trace/budget.h"

#include <time.h>

#include <algorithm>
#include <cmath>

namespace lutra {
namespace {

constexpr uint64_t kMostNodes = 20000, kNodesAMillisecond = 10;

// What checks itself is slower: by as much, captures end no earlier.
#if defined(__SANITIZE_ADDRESS__) || defined(LUTRA_DEBUG)
constexpr double kSlower = 20;
#else
constexpr double kSlower = 1;
#endif

double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) / 1e6;
}

}  // namespace

Budget::Budget(int ms, double dear_ms)
    : most_nodes_(ms ? std::min(kMostNodes, uint64_t(ms) * kNodesAMillisecond) : kMostNodes),
      until_(ms ? now() + ms * kSlower : HUGE_VAL),
      dear_(dear_ms) {}

bool Budget::look() {
  next_look_ = work_ + kLook;
  return work_ > kMostWork || now() > std::min(until_, dear_);
}

bool Budget::is_too_dear() const { return dear_ != HUGE_VAL && now() > dear_; }

}  // namespace lutra
