// Arguments of a call of a modelled function: one that is not given is nil, one of a wrong kind is left to the
// function.
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
