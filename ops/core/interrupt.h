// Who wants a program to stop: a person, whatever looks first (check_interrupt), or a limit of what one thread runs.
// What may take long calls check_stop now and then.
#pragma once
#include <cstdint>

#include "ops/core/error.h"

namespace lutra {

// Why what this thread runs is to stop, until that is raised; null: it is not. A signal handler on the thread may set
// it.
extern constinit thread_local const char* stop_reason;
// How many more looks of this thread pass such a reason by: tests stop at places that no clock moves.
extern constinit thread_local int64_t looks_to_pass;
void heed_stop();  // Error(kInterrupt) of that text, once

inline void check_stop() {
  check_interrupt();
  if (stop_reason) heed_stop();
}

}  // namespace lutra
