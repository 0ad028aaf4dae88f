// Ops on tensors of int4, which have two elements a byte. Invariant: no byte is split. The last dimension is contiguous
// and even, and every view begins at an even element of it (whole_bytes, ops/core/tensor.h). So each tensor is a view
// of bytes, and no kernel, loop or file knows half bytes.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

// Returns whether a call must be made on bytes or by shifts of bytes. Views are made as for other dtypes, and the parts
// of a kAtCall op come here by themselves.
bool has_packed(const OpInfo& op, const Args& args);
// Runs such a call. Throws for an op that is not among the moves.
Tensor call_packed(const OpInfo& op, const Args& args);
// Runs copy_.
Tensor copy_packed(const OpInfo& op, const Args& args);

}  // namespace lutra
