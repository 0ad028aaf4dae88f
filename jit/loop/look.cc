// No error crosses generated code: it is kept until the kernel has been left.
#include "jit/loop/look.h"

#include <exception>
#include <utility>

#include "ops/core/interrupt.h"

namespace lutra {
namespace {
thread_local std::exception_ptr left;
}

int look_in_kernel() noexcept {
  try {
    look_in_loop();
    return 0;
  } catch (const std::exception&) {
    left = std::current_exception();
    return 1;
  }
}

void raise_left() {
  if (left) std::rethrow_exception(std::exchange(left, nullptr));
}

}  // namespace lutra
