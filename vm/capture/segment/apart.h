// Adds guards to a finished trace: the objects that it writes must differ from others that it reads.
#pragma once
#include <functional>

#include "vm/capture/segment/effects.h"
#include "vm/capture/trace/trace.h"

namespace lutra {

void keep_objects_apart(Trace& t);                          // tables, keys of one table, variables
void keep_tensors_apart(Trace& t, const Effects& effects);  // tensors whose gradient or requires_grad changes
void guard_memories(Trace& t);                              // memories of inputs that are views of one input

// Returns the inputs in memory that the graph writes.
std::vector<int> inputs_written(const Trace& t);
// If written inputs overlap others, starts the trace again with their memory as one input, or calls stop(), which ends
// it.
void part_written(Trace& t, const std::vector<int>& written, const std::function<void()>& stop);

}  // namespace lutra
