// Analyses of a prototype: what its instructions read and write, which slots are live where, whether it is well formed,
// and its listing. They use only the code, so they also work on stripped functions.
#pragma once

#include <bitset>
#include <string>
#include <vector>

#include "vm/bytecode/dump.h"

namespace lutra::bc {

using Slots = std::bitset<256>;

struct Effects {
  Slots reads, writes;
};
// Returns the slots that the instruction at pc reads and writes. For MULTRES values only the first slot is known; all
// slots from it on are dead before the producer and after the consumer.
Effects effects(const Proto& proto, Pc pc);

// Returns the slots that an FNEW of constant `index` captures by reference.
Slots captures(const Proto& proto, unsigned index);

// Returns the pcs that can run after pc (none at the function's end).
std::vector<Pc> successors(const Proto& proto, Pc pc);

// A loop by its instructions: FORI..FORL (head, end), ISNEXT or JMP to ITERN/ITERC..ITERL, LOOP to its back jump.
// Body pcs are first_body .. end. `base` is operand A of the loop instructions.
struct Loop {
  enum class Kind : uint8_t { kFor, kIterC, kIterN, kLoop } kind;
  Pc head, end;  // FORI/ISNEXT/JMP/LOOP and FORL/ITERL/last back jump
  Pc iter;       // ITERC/ITERN, else 0
  Pc first_body;
  unsigned base;
  bool contains(Pc pc) const { return pc >= first_body && pc <= end; }
  // Returns the first pc of the loop. It lies before head if the loop jumps back to a `while` condition there.
  Pc first(const Proto& proto) const;
};
std::vector<Loop> loops(const Proto& proto);  // outer before inner

// The innermost loop around `at`, of any kind, and the slots that the loop only changes by adding a whole number. last
// is 0 if there is no loop.
struct Counters {
  Pc first = 0, last = 0;
  Slots slots;
};
Counters counters(const Proto& proto, Pc at);

struct Liveness {
  std::vector<Slots> before;  // before[pc]: slots whose values may still be read (including hidden ones)
  std::vector<Slots> hidden;  // hidden[pc]: FOR limit and step, ITERN control: never pass them to a portal
  std::vector<Slots>
      open;  // open[pc]: slots that a closure made by FNEW may hold as an open upvalue (subset of before)
  std::vector<bool> reached;  // reached[pc]: some path leads here
  // Returns the slots that a portal at pc may take as arguments, in ascending order.
  std::vector<unsigned> passable(Pc pc) const;
};
Liveness liveness(const Proto& proto);

// Returns the pc that consumes the MULTRES values of the instruction `maker`: the next instruction, or the target of a
// UCLO that follows (a return from a scope with captured variables; its end may lie after the function's end).
Pc taker_of(const Proto& proto, Pc maker);

// Returns whether code may be inserted before pc (facts: not after a compare, not within MULTRES pairs, not before
// ITERC, ITERN, ITERL).
bool insertable(const Proto& proto, Pc pc);

// The name that LuaJIT's messages and tracebacks give to the value in `slot` before pc. LuaJIT finds it by searching
// backwards for the last write to the slot. `index` is a slot, an upvalue or a constant.
struct ValueName {
  enum class Kind : uint8_t { kNone, kLocal, kUpvalue, kGlobal, kField, kMethod } kind = Kind::kNone;
  unsigned index = 0;
  Pc pc = 0;  // where the local has this name, or the instruction that loads the value
};
ValueName value_name(const Proto& proto, Pc pc, unsigned slot);
// "local 'x'", "field 'y'"; empty if unknown.
std::string describe(const Proto& proto, Pc pc, unsigned slot);
// Returns the name that tracebacks give to the function that the instruction at pc calls; empty if unknown.
std::string callee_name(const Proto& proto, Pc pc);
// Returns the slot of the function that the instruction calls, or -1.
int callee_slot(Ins i);
// Returns the metamethod that the instruction may call, such as "__add"; empty if none.
std::string_view metamethod_name(Ins i);

// Replace every tail call in the dump's functions by CALL and RETM, which keep the caller's frame; and the reverse.
// Return false if there is nothing to replace.
bool expand_tail_calls(Dump& dump);
bool restore_tail_calls(Dump& dump);

// Returns an empty string if the prototype is well formed, else the first error. With `dump` (optional) it also checks
// children.
std::string verify(const Proto& proto, const Dump* dump = nullptr);

// Returns the source expression of the slot's value before pc, a local's name or for example "h:max():item()"; empty if
// unknown.
std::string expression_text(const Proto& proto, Pc pc, unsigned slot);

// Returns the listing, one line for each instruction: pc, line, opcode, operands with the names of constants, globals
// and locals.
std::string print(const Proto& proto);
std::string print_instruction(const Proto& proto, Pc pc);

}  // namespace lutra::bc
