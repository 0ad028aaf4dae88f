// A finished trace in; guards that keep the objects apart that it writes, and others that it reads.
#pragma once
#include "vm/capture/segment/effects.h"
#include "vm/capture/trace/trace.h"

namespace lutra {

void keep_objects_apart(Trace& t);                          // tables, keys of one table, variables
void keep_tensors_apart(Trace& t, const Effects& effects);  // whose gradient or requires_grad changes

}  // namespace lutra
