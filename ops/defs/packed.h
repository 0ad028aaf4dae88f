// Ops on tensors of int4, which lie two elements a byte. Invariant: no byte is split. The last dimension is contiguous
// and even, and whatever begins in it begins at an even element (whole_bytes, ops/core/tensor.h). So each tensor is a
// view of bytes, and no kernel, no loop and no file knows half bytes.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

// A call that is made on bytes, or of shifts of bytes. Views are made as those of other dtypes, and kAtCall's parts
// come here themselves.
bool has_packed(const OpInfo& op, const Args& args);
// Throws for an op that is not among the moves.
Tensor call_packed(const OpInfo& op, const Args& args);
// copy_.
Tensor copy_packed(const OpInfo& op, const Args& args);

}  // namespace lutra
