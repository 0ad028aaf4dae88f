// LuaJIT 2.1 instructions: decodes a 32-bit word into opcode and operands and encodes it, by the table in opcode.def.
#pragma once

#include <cstdint>

namespace lutra::bc {

using Ins = uint32_t;
using Pc = uint32_t;  // 0 is the function header, 1 the first instruction, as in jit.util.funcbc

enum class Op : uint8_t {
#define OP(name, a, b, c, traits) name,
#include "vm/bytecode/opcode.def"
#undef OP
  kCount
};

enum class Mode : uint8_t {
  None,
  Dst,    // slot written
  Base,   // first slot of a range (calls, loops, KNIL)
  Var,    // slot read
  Rbase,  // first slot of a range that is only read, or first of the slots that become dead
  Uv,     // upvalue index
  Lit,    // unsigned literal
  Lits,   // signed literal
  Pri,    // 0 nil, 1 false, 2 true
  Num,    // index into Proto::knum
  Str,    // index into Proto::kgc, a string
  Tab,    // ... a template table
  Func,   // ... a child prototype
  Cdata,  // ... a 64 bit integer or complex
  Jump,   // D - 0x8000 relative to the next instruction
};

enum Trait : uint8_t { kCompare = 1, kJump = 2, kEnds = 4, kMakes = 8, kTakes = 16, kNever = 32 };

struct OpInfo {
  const char* name;
  Mode a, b, c;  // c is the mode of D where b is None
  uint8_t traits;
};
extern const OpInfo kOps[static_cast<int>(Op::kCount)];

inline Op op(Ins i) { return static_cast<Op>(i & 0xff); }
inline unsigned op_a(Ins i) { return (i >> 8) & 0xff; }
inline unsigned op_b(Ins i) { return i >> 24; }
inline unsigned op_c(Ins i) { return (i >> 16) & 0xff; }
inline unsigned op_d(Ins i) { return i >> 16; }
inline bool known(Ins i) { return (i & 0xff) < static_cast<unsigned>(Op::kCount); }
inline const OpInfo& info(Ins i) { return kOps[i & 0xff]; }  // only for a known opcode
inline bool has(Ins i, Trait t) { return (info(i).traits & t) != 0; }
inline bool makes_multres(Ins i) { return has(i, kMakes) && op_b(i) == 0; }

inline Ins ins_ad(Op o, unsigned a, unsigned d) { return static_cast<Ins>(o) | (a & 0xff) << 8 | (d & 0xffff) << 16; }
inline Ins ins_abc(Op o, unsigned a, unsigned b, unsigned c) {
  return static_cast<Ins>(o) | (a & 0xff) << 8 | (b & 0xff) << 24 | (c & 0xff) << 16;
}
inline Pc jump_target(Pc pc, Ins i) { return pc + 1 + static_cast<int>(op_d(i)) - 0x8000; }
inline bool jump_fits(Pc pc, Pc target) {
  const int64_t d = static_cast<int64_t>(target) - pc - 1;
  return d >= -0x8000 && d <= 0x7fff;
}
inline Ins ins_jump(Op o, unsigned a, Pc pc, Pc target) { return ins_ad(o, a, target - pc - 1 + 0x8000u); }
inline int lits(Ins i) { return static_cast<int16_t>(op_d(i)); }

}  // namespace lutra::bc
