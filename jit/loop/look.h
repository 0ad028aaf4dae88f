// Long kernels look now and then whether they shall stop, and leave their loops then.
#pragma once

namespace lutra {

// Looks whether the loop that this thread runs shall stop (ops/core/interrupt.h). If the result is not 0, the kernel
// must be left; the error is kept.
int look_in_kernel() noexcept;
// Throws the kept error if a kernel of this thread has been left.
void raise_left();

}  // namespace lutra
