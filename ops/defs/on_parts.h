// Tensors of stored dtypes as tensors of computed ones, and ops whose kernels know no complex elements: the same ops on
// the tensors' parts.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

// Whether t's elements are of a stored dtype that has parts or bytes.
bool has_cells(const Tensor& t);
// The same bytes as elements of another dtype: a view.
Tensor view_as_dtype(const Tensor& t, DType dtype);
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
