// Lengths of tables of a trace.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// Pushes a real table made by the writes of a fresh one: it has the same order and the same length.
void push_replica(Trace& t, const Table* table);

}  // namespace lutra
