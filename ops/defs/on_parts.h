// Views tensors of stored dtypes as tensors of computed ones, and runs ops whose kernels know no complex elements on
// the tensors' parts.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

// Returns whether t's dtype is complex or packed.
bool has_cells(const Tensor& t);
// Returns a view of the same bytes as elements of another dtype.
Tensor view_as_dtype(const Tensor& t, DType dtype);
// Returns the memory of t as elements of a computed dtype: the parts of complex elements, the bytes of packed ones.
// Returns t itself if its dtype is neither.
Tensor as_cells(const Tensor& t);
// Returns such cells as elements of dtype again.
Tensor of_cells(const Tensor& cells, DType dtype);
// Returns the sizes, strides and offset of as_cells(t).
ResultSpec layout_of_cells(const Tensor& t);

bool takes_parts(const OpInfo& op, const Args& args);
// Returns args[0] itself if the call is in place.
Tensor call_on_parts(const OpInfo& op, const Args& args, bool inplace);

}  // namespace lutra
