// Sums of overlapping windows, for fold and for the gradient of unfold.
#pragma once
#include "ops/defs/call.h"

namespace lutra {

// In: x, whose dimension `taps` has the elements of windows and whose later dimension `windows` counts them. Element k
// of window i belongs to position i * stride + k * dilation. Out: x without `taps`; dimension `windows` has `size`
// positions. A position is the sum of its elements from the first window to the last.
Tensor add_windows(const Tensor& x, int64_t taps, int64_t windows, SymInt stride, SymInt dilation, SymInt size);

}  // namespace lutra
