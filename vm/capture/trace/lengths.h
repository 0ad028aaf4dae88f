// Lengths of tables of a trace.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// Pushes a real table made by the same writes as a fresh one, so that it has the same order and length.
void push_replica(Trace& t, const Table* table);

// Reads the value at a real key from a real table again.
Var* read_real(Trace& t, Table* table, Var* k);

}  // namespace lutra
