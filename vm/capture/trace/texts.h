// Strings made of numbers and strings that may be others in a later call: made after the run, until Lua has to look at
// one.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

// Whether a number or a string may be another in a later call of the same code.
bool may_change(const Var* v);
// The strings and numbers, forced, as one string, like `..`.
Var* join(Trace& t, const Vars& parts);
// Makes a string what it is in this call.
void pin_text(Trace& t, Var* v);

// tostring, string.format and functions that no string makes fail, of values of which one may change.
Vars run_tostring(Trace& t, Var* self, const Vars& args);
Vars run_format(Trace& t, Var* self, const Vars& args);
Vars run_text(Trace& t, Var* self, const Vars& args);
Vars run_rep(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
