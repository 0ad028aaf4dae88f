// Arguments of a call of a modelled function. A missing one is nil. One of a wrong kind breaks the graph, so that the
// function itself raises its error.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

inline Var* arg(Trace& t, const Vars& args, size_t i) { return i < args.size() ? t.force(args[i]) : t.nil(); }

inline Table* table_arg(Trace& t, const Vars& args, size_t i, const char* name) {
  Table* table = t.table_of(arg(t, args, i));
  if (!table) t.stop(Break::raises, {str(name, " of a value that is not a table")});
  return table;
}

}  // namespace lutra
