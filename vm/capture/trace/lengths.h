// Lengths of tables of a trace.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// Pushes a real table made by the writes of a fresh one: it has the same order and the same length.
void push_replica(Trace& t, const Table* table);

// What stands in a real table at a key that is a real value, read anew.
Var* read_real(Trace& t, Table* table, Var* k);

}  // namespace lutra
