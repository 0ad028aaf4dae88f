// Finds the names that LuaJIT's messages and tracebacks give to values (lj_debug_slotname, lj_debug_funcname).
#include "vm/bytecode/analysis.h"

namespace lutra::bc {
namespace {

using Kind = ValueName::Kind;

const std::string& string_constant(const Proto& p, unsigned index) { return std::get<std::string>(p.kgc[index]); }

}  // namespace

ValueName value_name(const Proto& p, Pc pc, unsigned slot) {
  for (;;) {
    if (!local_name(p, pc, slot).empty()) return {Kind::kLocal, slot, pc};
    bool moved = false;
    while (!moved) {
      if (pc <= 1) return {};
      const Ins i = p.code[--pc];
      const unsigned a = op_a(i);
      if (info(i).a == Mode::Base && slot >= a && (op(i) != Op::KNIL || slot <= op_d(i))) return {};
      if (info(i).a != Mode::Dst || a != slot) continue;
      switch (op(i)) {
        case Op::MOV: slot = op_d(i), moved = true; break;
        case Op::GGET: return {Kind::kGlobal, op_d(i), pc};
        case Op::UGET: return {Kind::kUpvalue, op_d(i), pc};
        case Op::TGETS: {
          const Ins before = p.code[pc - 1];
          const bool method = pc > 1 && op(before) == Op::MOV && op_a(before) == a + 2 && op_d(before) == op_b(i);
          return {method ? Kind::kMethod : Kind::kField, op_c(i), pc};
        }
        default: return {};
      }
    }
  }
}

namespace {

std::string name_text(const Proto& p, const ValueName& n) {
  switch (n.kind) {
    case Kind::kNone: return {};
    case Kind::kLocal: return local_name(p, n.pc, n.index);
    case Kind::kUpvalue: return upvalue_name(p, n.index);
    default: return string_constant(p, n.index);
  }
}

}  // namespace

std::string describe(const Proto& p, Pc pc, unsigned slot) {
  static constexpr const char* kKinds[] = {"", "local", "upvalue", "global", "field", "method"};
  const ValueName n = value_name(p, pc, slot);
  if (n.kind == Kind::kNone) return {};
  return kKinds[int(n.kind)] + (" '" + name_text(p, n) + "'");
}

std::string callee_name(const Proto& p, Pc pc) {
  const int slot = callee_slot(p.code[pc]);
  if (slot < 0) return std::string(metamethod_name(p.code[pc]));
  return name_text(p, value_name(p, pc, unsigned(slot)));
}

int callee_slot(Ins i) {
  switch (op(i)) {
    case Op::CALL:
    case Op::CALLM:
    case Op::CALLT:
    case Op::CALLMT: return int(op_a(i));
    case Op::ITERC:
    case Op::ITERN: return int(op_a(i)) - 3;
    default: return -1;
  }
}

std::string_view metamethod_name(Ins i) {
  switch (op(i)) {
    case Op::ISLT:
    case Op::ISGE: return "__lt";
    case Op::ISLE:
    case Op::ISGT: return "__le";
    case Op::ISEQV:
    case Op::ISNEV: return "__eq";
    case Op::UNM: return "__unm";
    case Op::LEN: return "__len";
    case Op::CAT: return "__concat";
    case Op::POW: return "__pow";
    case Op::ADDVN:
    case Op::ADDNV:
    case Op::ADDVV: return "__add";
    case Op::SUBVN:
    case Op::SUBNV:
    case Op::SUBVV: return "__sub";
    case Op::MULVN:
    case Op::MULNV:
    case Op::MULVV: return "__mul";
    case Op::DIVVN:
    case Op::DIVNV:
    case Op::DIVVV: return "__div";
    case Op::MODVN:
    case Op::MODNV:
    case Op::MODVV: return "__mod";
    case Op::GGET:
    case Op::TGETV:
    case Op::TGETS:
    case Op::TGETB: return "__index";
    case Op::GSET:
    case Op::TSETV:
    case Op::TSETS:
    case Op::TSETB: return "__newindex";
    default: return {};
  }
}

}  // namespace lutra::bc
