// Strings built from numbers and strings that may change in a later call. They are built after the run, unless Lua
// needs one earlier.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

// Returns whether a number or a string may have another value in a later call of the same code.
bool may_change(const Var* v);
// Joins strings and numbers, which must be forced, like `..`.
Var* join(Trace& t, const Vars& parts);
// Specialises a string to its value in this call.
void pin_text(Trace& t, Var* v);

// Models of tostring, string.format and functions that cannot fail for any string, with arguments that may change.
Vars run_tostring(Trace& t, Var* self, const Vars& args);
Vars run_format(Trace& t, Var* self, const Vars& args);
Vars run_text(Trace& t, Var* self, const Vars& args);
Vars run_rep(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
