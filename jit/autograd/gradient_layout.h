// Describes a gradient's layout independently of its sizes, so that one backward with symbolic sizes serves all sizes.
#pragma once
#include <string>

#include "ops/core/tensor.h"

namespace lutra {

// Returns true if one of the sizes is symbolic.
bool is_symbolic(const Sizes& sizes);
// Describes the layout as text. Two gradients of equal text have the same layout, whatever their sizes. The text gives
// the gaps between elements; if elements overlap, it gives the strides.
std::string layout_of(const Tensor& gradient);
// Returns true if there is unused memory between its elements.
bool has_gaps(const Tensor& gradient);
// Returns the strides of a tensor of these sizes with the gradient's layout. If the sizes are symbolic, the strides are
// functions of them.
Sizes strides_like(const Sizes& sizes, const Tensor& gradient);
// Returns the gradient. Returns a contiguous copy if the sizes are symbolic and its elements overlap, since its strides
// are not functions of the sizes then.
Tensor said_by_sizes(const Tensor& gradient, const Sizes& sizes);

}  // namespace lutra
