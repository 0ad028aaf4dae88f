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
