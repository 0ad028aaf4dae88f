// Lists of tensors in a trace.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// Reads a list of tensors. Returns false if an item is not a tensor.
bool read_tensors(Trace& t, Var* list, std::vector<Tensor>& out);
Var* list_of(Trace& t, const std::vector<Tensor>& tensors);

}  // namespace lutra
