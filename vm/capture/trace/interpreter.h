// The table of instruction handlers; each family of opcodes fills in its own.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// What every opcode family speaks in.
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

// Operands that are constants of the prototype.
Var* string_constant(Trace& t, Frame& f, unsigned index);
Var* number_constant(Trace& t, Frame& f, unsigned index);
Var* arithmetic(Trace& t, bc::Op op, Var* a, Var* b);
void jump(Frame& f, bc::Pc target);
// Whether few rounds of the loop that the frame is in are left; of an iterator's, whether it has few in all.
bool has_few_rounds(Trace& t, const Frame& f, const bc::Loop& loop);
// What the call at the frame's pc has given.
void place_results(Trace& t, Frame& f, const Vars& results);

}  // namespace lutra
