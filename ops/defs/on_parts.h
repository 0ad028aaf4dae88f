// Tensors of stored dtypes as tensors of computed ones, and ops whose kernels know no complex elements: the same ops on
// the tensors' parts.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

// The memory of t as elements of a computed dtype: the parts of complex elements, the bytes of packed ones. t itself
// where it has neither.
Tensor as_cells(const Tensor& t);
// Such cells as elements of dtype again.
Tensor of_cells(const Tensor& cells, DType dtype);
// Sizes, strides and offset of as_cells(t).
ResultSpec layout_of_cells(const Tensor& t);

bool takes_parts(const OpInfo& op, const Args& args);
// args[0] itself where the call is in place.
Tensor call_on_parts(const OpInfo& op, const Args& args, bool inplace);

}  // namespace lutra
