// 64-bit and complex numbers that are constants of the program. Results computed from them are constants, too.
#pragma once
#include <optional>

#include "vm/bytecode/dump.h"
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;
struct Frame;

// Returns constant `index` of the frame's prototype. It is the same object as in the program, which can compare
// identities.
Var* number_cdata(Trace& t, Frame& f, unsigned index);
// Returns whether a value is such a constant: made in the trace, or in a variable that is never assigned again (which
// is guarded), or an integer that calls pass, guarded by its value until a call passes another one.
bool is_constant_cdata(Trace& t, Var* v);
// Returns whether it is an int64_t that calls pass and that changes, or computed from one: a symbol within +-2^53.
bool is_changing_integer(Trace& t, Var* v);
Var* number_of_changing(Trace& t, Var* integer);
// Computes a metamethod of cdata if one operand is such a constant and the other one is too, or a number; or if one
// operand is such a symbol. Else returns null.
Var* cdata_operation(Trace& t, const char* metamethod, Var* a, Var* b);
// Returns the result of a call that converts a number to int64_t, a constant or a symbol; null for other calls.
Var* made_cdata(Trace& t, Var* function, const Vars& args);
// Returns the result of ffi.istype for such an integer or for a value that is no cdata; null for other calls.
Var* is_of_type(Trace& t, Var* function, const Vars& args);
// Returns whether the value at the top of the stack is a 64-bit or complex number.
bool is_number_cdata(Trace& t);

}  // namespace lutra
