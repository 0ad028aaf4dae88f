// The wish to stop, and its error.
#include "ops/core/error.h"

namespace lutra {

std::atomic<bool> interrupt_wanted{false};

void raise_interrupt() {
  interrupt_wanted = false;
  throw Error(ErrorKind::kInterrupt, "interrupted!");
}

}  // namespace lutra
