// Numbers of 64 bits and complex ones that are constants of the program: what is computed of them is a constant, too.
#pragma once
#include <optional>

#include "vm/bytecode/dump.h"
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;
struct Frame;

// Constant `index` of the frame's prototype: the object itself, as a program sees which one it is.
Var* number_cdata(Trace& t, Frame& f, unsigned index);
// Whether a value is one: made in the trace, or in a variable that is never assigned again, which is guarded. Or an
// integer that calls bring: guarded by its value, until another one came.
bool is_constant_cdata(Trace& t, Var* v);
// Whether it is an int64_t that calls bring and that changes, or computed of one: a symbol within +-2^53.
bool is_changing_integer(Trace& t, Var* v);
Var* number_of_changing(Trace& t, Var* integer);
// By a metamethod of cdata, where one operand is a constant of them and the other one, too, or a number; or where one
// is a symbol. Null elsewhere.
Var* cdata_operation(Trace& t, const char* metamethod, Var* a, Var* b);
// What a call makes of a number where it asks for an int64_t: a constant, or a symbol. Null elsewhere.
Var* made_cdata(Trace& t, Var* function, const Vars& args);
// Whether the value at the top of the stack is a number of 64 bits or a complex one.
bool is_number_cdata(Trace& t);

}  // namespace lutra
