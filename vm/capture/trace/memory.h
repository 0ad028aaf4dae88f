// Decides whether inputs of a trace in one storage can be views of one input.
#pragma once
#include <optional>

#include "vm/capture/trace/trace.h"

namespace lutra {

// Returns the range of elements that the inputs over the storage cover. Returns nullopt if they differ in dtype, have
// gradients, or cover only few elements of a large range.
std::optional<StorageRange> memory_of_inputs(const Trace& t, const Storage* storage);

}  // namespace lutra
