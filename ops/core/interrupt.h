// Requests to stop a program. A person's request (check_interrupt) reaches whichever thread checks first. A limit's
// request is for one thread. Code that may take long calls check_stop now and then.
#pragma once
#include <atomic>
#include <cstdint>

#include "ops/core/error.h"

namespace lutra {

// Why this thread must stop, until the error is raised; null if it need not stop. A signal handler on the thread may
// set it.
extern constinit thread_local const char* stop_reason;
// The number of checks of this thread that still ignore such a reason. Tests use it to stop at places that do not
// depend on the clock.
extern constinit thread_local int64_t looks_to_pass;
// Raises Error(kInterrupt) with stop_reason, once. Returns true if this thread works in the background and goes on.
bool heed_stop();

inline void check_stop() {
  if (stop_reason && heed_stop()) return;
  check_interrupt();
}

// Whether check_stop's error may end a loop of this thread unfinished. The loop then must write nothing that can be
// seen outside.
extern constinit thread_local bool loops_are_stoppable;
// Set while this thread runs a part of a loop for another thread: whether that loop has ended.
extern constinit thread_local const std::atomic<bool>* loop_is_over;
[[noreturn]] void end_part();

// Checks within such a loop, or a part of it, whether to end it. Code that runs long calls this.
inline void look_in_loop() {
  if (loop_is_over) {
    if (loop_is_over->load(std::memory_order_relaxed)) end_part();
  } else if (loops_are_stoppable) {
    check_stop();
  }
}

inline constexpr int64_t kStretch = 1 << 16;  // elements between two checks

// Calls body(begin, end) for stretches of [0, n), with a check before each but the first.
template <class F>
inline void in_stretches(int64_t n, const F& body, int64_t stretch = kStretch) {
  for (int64_t i = 0; i < n; i += stretch) {
    if (i > 0) look_in_loop();
    body(i, n - i < stretch ? n : i + stretch);
  }
}

// Wraps a comparator for std::sort and its kin so that it checks now and then.
template <class Less>
auto with_looks(const Less& less) {
  return [less, n = int64_t(0)](const auto& a, const auto& b) mutable {
    if (++n % kStretch == 0) look_in_loop();
    return less(a, b);
  };
}

// A scope in which this thread works in the background. It stops when `wish` is set, and ignores other requests, which
// are for other threads.
class BackgroundStop {
 public:
  explicit BackgroundStop(const std::atomic<bool>& wish);
  ~BackgroundStop();
  BackgroundStop(const BackgroundStop&) = delete;

 private:
  const std::atomic<bool>* saved_wish_;
  const char* saved_reason_;
};

}  // namespace lutra
