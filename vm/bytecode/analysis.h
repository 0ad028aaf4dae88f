// A prototype in; what its instructions read and write, which slots are live where, whether it is well formed, and its
// listing out. Everything is computed from the code, so stripped functions are served as well.
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
// Slots that the instruction at pc reads and writes. Of MULTRES values only the first slot is known; all slots from
// there on are dead before the producer and after the consumer.
Effects effects(const Proto& proto, Pc pc);

// Slots that FNEW of constant `index` captures by reference.
Slots captures(const Proto& proto, unsigned index);

// Where control can go after pc (the function's end has none).
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
  // Before head where the condition of a `while` stands there, which the loop jumps back to.
  Pc first(const Proto& proto) const;
};
std::vector<Loop> loops(const Proto& proto);  // outer before inner

// The innermost loop around `at`, whatever it is made of, and the slots that nothing in it writes but to add a whole
// number. last is 0 where there is no loop.
struct Counters {
  Pc first = 0, last = 0;
  Slots slots;
};
Counters counters(const Proto& proto, Pc at);

struct Liveness {
  std::vector<Slots> before;  // before[pc]: slots whose values may still be read (hidden ones included)
  std::vector<Slots> hidden;  // hidden[pc]: FOR limit and step, ITERN control: never pass them to a portal
  std::vector<Slots>
      open;  // open[pc]: slots that a closure made by FNEW may hold as an open upvalue (subset of before)
  std::vector<bool> reached;  // reached[pc]: some path leads here
  // Slots a portal at pc may take as arguments, ascending.
  std::vector<unsigned> passable(Pc pc) const;
};
Liveness liveness(const Proto& proto);

// Where the MULTRES values of the maker at pc go: to the instruction behind it, or to where a UCLO behind it leads (a
// return from among variables that closures share; its end may stand behind the function's).
Pc taker_of(const Proto& proto, Pc maker);

// May code be inserted before pc (facts: not after a compare, inside MULTRES pairs, before ITERC, ITERN, ITERL)?
bool insertable(const Proto& proto, Pc pc);

// What LuaJIT calls the value in `slot` before pc in its messages and tracebacks: it reads backwards what was written
// there last. `index` is a slot, an upvalue or a constant.
struct ValueName {
  enum class Kind : uint8_t { kNone, kLocal, kUpvalue, kGlobal, kField, kMethod } kind = Kind::kNone;
  unsigned index = 0;
  Pc pc = 0;  // where a local has this name, or what reads the value
};
ValueName value_name(const Proto& proto, Pc pc, unsigned slot);
// "local 'x'", "field 'y'"; empty if unknown.
std::string describe(const Proto& proto, Pc pc, unsigned slot);
// How tracebacks name the function that the instruction at pc calls; empty if unknown.
std::string callee_name(const Proto& proto, Pc pc);
// The slot whose value the instruction at pc calls, or -1.
int callee_slot(Ins i);
// "__add": the metamethod that the instruction asks for; empty if it asks for none.
std::string_view metamethod_name(Ins i);

// Every tail call of the dump's functions as CALL and RETM, whose frame stays; false where there is none. And back.
bool expand_tail_calls(Dump& dump);
bool restore_tail_calls(Dump& dump);

// Empty if the prototype is well formed, else what is wrong. `dump` (optional) lets children be checked as well.
std::string verify(const Proto& proto, const Dump* dump = nullptr);

// What the slot holds before pc as the source has it, a local's name or an expression: "h:max():item()"; empty if
// unknown.
std::string expression_text(const Proto& proto, Pc pc, unsigned slot);

// The listing: pc, line, opcode, operands with the names of constants, globals, locals. One line an instruction.
std::string print(const Proto& proto);
std::string print_instruction(const Proto& proto, Pc pc);

}  // namespace lutra::bc
