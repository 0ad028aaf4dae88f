// Loads constants into registers.
#pragma once
#include <asmjit/arm.h>
#include <asmjit/arm/a64operand.h>

namespace lutra::arm64 {

namespace a64 = asmjit::a64;

// Sets a register in pieces of 16 bits, from the number or its complement. Emitter: an asmjit assembler or compiler.
template <class Emitter>
void set_number(Emitter& e, const a64::Gp& to, uint64_t value) {
  const bool negative = int64_t(value) < 0;
  const uint64_t bits = negative ? ~value : value;
  const auto piece = [](uint64_t v, int i) { return uint32_t(v >> 16 * i & 0xffff); };
  int first = 0;
  while (first < 3 && piece(bits, first) == 0) first++;
  if (negative)
    e.movn(to, piece(bits, first), 16 * first);
  else
    e.movz(to, piece(bits, first), 16 * first);
  for (int i = first + 1; i < 4; i++) {
    if (piece(bits, i)) e.movk(to, piece(value, i), 16 * i);
  }
}

}  // namespace lutra::arm64
