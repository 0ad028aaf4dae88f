// Long kernels in, looks whether they shall end: such code asks now and then, and leaves its loops where it is told so.
#pragma once

namespace lutra {

// A look of the loop that this thread runs (ops/core/interrupt.h). Not 0: the kernel shall be left; the error waits.
int look_in_kernel() noexcept;
// Raises that error, where a kernel of this thread has been left.
void raise_left();

}  // namespace lutra
