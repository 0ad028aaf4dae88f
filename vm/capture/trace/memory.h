// Inputs of a trace that lie in one storage in; whether they can be views of one input out.
#pragma once
#include <optional>

#include "vm/capture/trace/trace.h"

namespace lutra {

// The elements among which the inputs over the storage lie; none where they differ in dtype, have to do with gradients,
// or are few among many.
std::optional<StorageRange> memory_of_inputs(const Trace& t, const Storage* storage);

}  // namespace lutra
