// The table of instruction handlers; each family of opcodes fills in its own.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// Names that every opcode family uses.
using bc::Op;
using bc::op_a;
using bc::op_b;
using bc::op_c;
using bc::op_d;

using Handler = void (*)(Trace& t, Frame& f, bc::Ins i);
struct Handlers {
  Handler of[256] = {};
  void set(bc::Op op, Handler h) { of[static_cast<int>(op)] = h; }
};

void install_moves(Handlers& h);  // constants, moves, upvalues, closures
void install_arithmetic(Handlers& h);
void install_compares(Handlers& h);  // compares, tests, jumps
void install_tables(Handlers& h);
void install_calls(Handlers& h);  // calls, varargs, returns
void install_loops(Handlers& h);

// Return operands that are constants of the prototype.
Var* string_constant(Trace& t, Frame& f, unsigned index);
Var* number_constant(Trace& t, Frame& f, unsigned index);
Var* arithmetic(Trace& t, bc::Op op, Var* a, Var* b);
void jump(Frame& f, bc::Pc target);
// Returns whether few iterations of the frame's loop are left; for an iterator's loop, whether it has few in total.
bool has_few_rounds(Trace& t, const Frame& f, const bc::Loop& loop);
// Returns the environment of the frame's function, where its globals are.
Var* environment(Trace& t, Frame& f);
// Returns whether it is a call, but no tail call.
bool is_plain_call(bc::Op op);
// Returns operand n of the frame's current call, where 0 is the called function; null if it has none in a slot.
const Var* call_operand(const Frame& f, unsigned n);
// Stores the results of the call at the frame's pc.
void place_results(Trace& t, Frame& f, const Vars& results);

}  // namespace lutra
