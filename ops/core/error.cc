// Wishes that a program stops, and their errors.
#include "ops/core/error.h"

#include "ops/core/interrupt.h"

namespace lutra {

std::atomic<bool> interrupt_wanted{false};

void raise_interrupt() {
  interrupt_wanted = false;
  throw Error(ErrorKind::kInterrupt, "interrupted!");
}

constinit thread_local const char* stop_reason = nullptr;

void raise_stop() { throw Error(ErrorKind::kInterrupt, stop_reason); }

}  // namespace lutra
