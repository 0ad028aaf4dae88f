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
constinit thread_local int64_t looks_to_pass = 0;

void heed_stop() {
  if (looks_to_pass > 0) {
    looks_to_pass--;
    return;
  }
  const char* why = stop_reason;
  stop_reason = nullptr;
  throw Error(ErrorKind::kInterrupt, why);
}

}  // namespace lutra
