// How a gradient lies in memory, said so that it holds for other sizes: a backward with symbolic sizes serves them all.
#pragma once
#include <string>

#include "ops/core/tensor.h"

namespace lutra {

// Whether one of them is a symbol.
bool is_symbolic(const Sizes& sizes);
// Two gradients of equal text lie alike, whatever their sizes. The text tells gaps between elements; where elements
// overlap, the strides.
std::string layout_of(const Tensor& gradient);
// Whether there is memory between its elements.
bool has_gaps(const Tensor& gradient);
// The strides of a tensor of these sizes that lies as the gradient does: functions of the sizes where those are
// symbols.
Sizes strides_like(const Sizes& sizes, const Tensor& gradient);
// The gradient; a copy of it where its elements overlap, so that its strides are no functions of the sizes, and those
// are symbols.
Tensor said_by_sizes(const Tensor& gradient, const Sizes& sizes);

}  // namespace lutra
