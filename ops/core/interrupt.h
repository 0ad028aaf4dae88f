// Who wants a program to stop: a person, whatever looks first (check_interrupt), or a limit of what one thread runs.
// What may take long calls check_stop now and then.
#pragma once
#include <atomic>
#include <cstdint>

#include "ops/core/error.h"

namespace lutra {

// Why what this thread runs is to stop, until that is raised; null: it is not. A signal handler on the thread may set
// it.
extern constinit thread_local const char* stop_reason;
// How many more looks of this thread pass such a reason by: tests stop at places that no clock moves.
extern constinit thread_local int64_t looks_to_pass;
// Error(kInterrupt) of that text, once. True: this thread works in the background and goes on.
bool heed_stop();

inline void check_stop() {
  if (stop_reason && heed_stop()) return;
  check_interrupt();
}

// Whether a loop of this thread may end unfinished, by check_stop's error: nothing that can be seen outside is written.
extern constinit thread_local bool loops_are_stoppable;
// Of the loop that this thread runs a part of for another one: whether it has ended.
extern constinit thread_local const std::atomic<bool>* loop_is_over;
[[noreturn]] void end_part();

// For what runs long within such a loop, or a part of it: it ends where it may and shall.
inline void look_in_loop() {
  if (loop_is_over) {
    if (loop_is_over->load(std::memory_order_relaxed)) end_part();
  } else if (loops_are_stoppable) {
    check_stop();
  }
}

inline constexpr int64_t kStretch = 1 << 16;  // elements between two looks

// body(begin, end) for stretches of [0, n), a look before each but the first.
template <class F>
inline void in_stretches(int64_t n, const F& body, int64_t stretch = kStretch) {
  for (int64_t i = 0; i < n; i += stretch) {
    if (i > 0) look_in_loop();
    body(i, n - i < stretch ? n : i + stretch);
  }
}

// An order that looks now and then, for std::sort and kin.
template <class Less>
auto with_looks(const Less& less) {
  return [less, n = int64_t(0)](const auto& a, const auto& b) mutable {
    if (++n % kStretch == 0) look_in_loop();
    return less(a, b);
  };
}

// This thread works in the background for a scope: it stops where *wish is set, and leaves all other wishes to the
// threads that they are about.
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
