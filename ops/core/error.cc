// Requests to stop a program, and the errors that they raise.
#include "ops/core/error.h"

#include "ops/core/interrupt.h"

namespace lutra {

std::atomic<bool> interrupt_wanted{false};

void raise_interrupt() {
  interrupt_wanted = false;
  throw Error(ErrorKind::kInterrupt, "interrupted!");
}

constinit thread_local const char* stop_reason = nullptr;
constinit thread_local int64_t looks_to_pass = 0;
constinit thread_local bool loops_are_stoppable = false;
constinit thread_local const std::atomic<bool>* loop_is_over = nullptr;

void end_part() { throw Error(ErrorKind::kInterrupt, "the loop has ended"); }

namespace {
constinit thread_local const std::atomic<bool>* background_wish = nullptr;
}

BackgroundStop::BackgroundStop(const std::atomic<bool>& wish)
    : saved_wish_(background_wish), saved_reason_(stop_reason) {
  background_wish = &wish;
  stop_reason = "nobody waits for it any more";
}

BackgroundStop::~BackgroundStop() { background_wish = saved_wish_, stop_reason = saved_reason_; }

bool heed_stop() {
  if (background_wish) {
    if (background_wish->load(std::memory_order_relaxed)) throw Error(ErrorKind::kInterrupt, stop_reason);
    return true;
  }
  if (looks_to_pass > 0) return looks_to_pass--, false;
  const char* why = stop_reason;
  stop_reason = nullptr;
  throw Error(ErrorKind::kInterrupt, why);
}

}  // namespace lutra
