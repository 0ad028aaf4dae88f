// Classification of instructions: those that call, and those that take or keep a list of results.
#pragma once
#include "vm/bytecode/analysis.h"

namespace lutra {

inline bool is_call(bc::Op op) {
  return op == bc::Op::CALL || op == bc::Op::CALLM || op == bc::Op::CALLT || op == bc::Op::CALLMT;
}
// Returns whether a frame can continue after the instruction with a result of its metamethod, iterator or callee.
inline bool calls(bc::Op op) {
  switch (op) {
    case bc::Op::TGETV:
    case bc::Op::TGETS:
    case bc::Op::TGETB:
    case bc::Op::UNM:
    case bc::Op::ITERC: return true;
    default: return is_call(op) || (op >= bc::Op::ADDVN && op <= bc::Op::POW);
  }
}
inline bool takes_multres(bc::Op op) {
  return op == bc::Op::CALLM || op == bc::Op::CALLMT || op == bc::Op::RETM || op == bc::Op::TSETM;
}

// Returns whether the instruction is a UCLO before the return of a list of results.
inline bool keeps_multres(const bc::Proto& proto, bc::Pc pc) {
  return bc::op(proto.code[pc]) == bc::Op::UCLO && takes_multres(bc::op(proto.code[bc::successors(proto, pc)[0]]));
}

}  // namespace lutra
