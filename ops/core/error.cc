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

void raise_stop() {
  const char* why = stop_reason;
  stop_reason = nullptr;
  throw Error(ErrorKind::kInterrupt, why);
}

}  // namespace lutra
