// A finished trace in; guards that keep the objects apart that it writes, and others that it reads.
#pragma once
#include <functional>

#include "vm/capture/segment/effects.h"
#include "vm/capture/trace/trace.h"

namespace lutra {

void keep_objects_apart(Trace& t);                          // tables, keys of one table, variables
void keep_tensors_apart(Trace& t, const Effects& effects);  // whose gradient or requires_grad changes
void guard_memories(Trace& t);                              // of inputs that are views of one

// The inputs that lie in memory which the graph writes.
std::vector<int> inputs_written(const Trace& t);
// Where inputs that are written overlap others, the trace is made again with their memory as one input; or stop() ends
// it.
void part_written(Trace& t, const std::vector<int>& written, const std::function<void()>& stop);

}  // namespace lutra
