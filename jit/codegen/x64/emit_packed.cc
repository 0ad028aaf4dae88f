// Vector loops that compute only in integers of 8 or 16 bits, or only in bools. Full strips use whole registers of them
// instead of 32-bit lanes. The loop's ordinary code handles the rest.
#include <algorithm>

#include "jit/codegen/x64/emitter.h"

namespace lutra::x64 {

namespace {

struct PackedRow {
  Op op;
  InstId of_int8, of_uint8, of_int16;
};
// 0: no such instruction.
const PackedRow kRows[] = {
    {Op::kAdd, Ids::kIdVpaddb, Ids::kIdVpaddb, Ids::kIdVpaddw},
    {Op::kSub, Ids::kIdVpsubb, Ids::kIdVpsubb, Ids::kIdVpsubw},
    {Op::kMul, 0, 0, Ids::kIdVpmullw},
    {Op::kMin, Ids::kIdVpminsb, Ids::kIdVpminub, Ids::kIdVpminsw},
    {Op::kMax, Ids::kIdVpmaxsb, Ids::kIdVpmaxub, Ids::kIdVpmaxsw},
};

InstId instruction(Op op, DType t) {
  for (const PackedRow& r : kRows) {
    if (r.op == op && !is_bool(t)) return size_of(t) == 2 ? r.of_int16 : least_integer(t) == 0 ? r.of_uint8 : r.of_int8;
  }
  return 0;
}

bool is_bitwise(Op op) { return op == Op::kAnd || op == Op::kOr || op == Op::kXor || op == Op::kNot; }

// Returns true if the access goes along the loop with stride one.
bool is_row(const Access& a, const Loop& l) {
  int rows = 0;
  for (const Access::Term& t : a.terms) {
    if (t.is_value || t.id != l.id) continue;
    if (!(t.stride == Coef::of(1))) return false;
    rows++;
  }
  return rows == 1;
}

}  // namespace

bool KernelEmitter::packs(const Loop& l) const {
  size_t size = 0;
  std::vector<int32_t> own;
  const auto is_own = [&](int32_t id) { return std::find(own.begin(), own.end(), id) != own.end(); };
  for (const Stmt& s : l.body) {
    const Inst* in = std::get_if<Inst>(&s);
    if (!in || is_float(in->type) || !is_small(in->type)) return false;
    if (size && size != size_of(in->type)) return false;
    size = size_of(in->type);
    const bool moves = in->op == Op::kLoad || in->op == Op::kStore;
    if (!moves && !is_bitwise(in->op) && !instruction(in->op, in->type)) return false;
    if (moves && !is_row(in->access, l)) return false;
    for (const Access::Term& t : in->access.terms) {
      if (t.is_value && is_own(t.id)) return false;
    }
    const int32_t operands[] = {in->a, in->b};
    for (int i = 0; i < loop::info(in->op).operands; i++) {
      if (is_mask(in->type) && !is_own(operands[i])) return false;
    }
    if (in->id >= 0) own.push_back(in->id);
  }
  return size != 0;
}

// Returns the element that all lanes of v hold, repeated.
x86::Vec KernelEmitter::packed_uniform(DType t, const Value& v) {
  x86::Vec r = v_.fresh(true);
  cc_.emit(size_of(t) == 1 ? Ids::kIdVpbroadcastb : Ids::kIdVpbroadcastw, r, reg(t, v).xmm());
  return r;
}

x86::Vec KernelEmitter::packed(const Inst& in, const x86::Vec& a, const x86::Vec& b) {
  switch (in.op) {
    case Op::kAnd: return v_.binary(Vop::kAnd, true, a, b);
    case Op::kOr: return v_.binary(Vop::kOr, true, a, b);
    case Op::kXor: return v_.binary(Vop::kXor, true, a, b);
    case Op::kNot: {
      const uint64_t ones = is_mask(in.type) ? 0x0101010101010101u : ~uint64_t(0);
      return v_.binary(Vop::kXor, true, a, v_.constant(true, ones));
    }
    default: return v_.binary(instruction(in.op, in.type), true, a, b);
  }
}

void KernelEmitter::packed_body(const Loop& l, const LaneGroup& group) {
  std::vector<std::vector<x86::Vec>> own(values_.size());
  for (const Stmt& s : l.body) {
    const Inst& in = std::get<Inst>(s);
    const int n = loop::info(in.op).operands;
    const Place p = has_access(in.op) ? place(in.access, in.type, group, 0) : Place();
    const auto operand_of = [&](int32_t id, int u) {
      if (own[size_t(id)].empty()) own[size_t(id)].assign(size_t(group.vectors), packed_uniform(in.type, value(id, 0)));
      return own[size_t(id)][size_t(u)];
    };
    for (int u = 0; u < group.vectors; u++) {
      x86::Mem m = p.mem;
      m.addOffset(int64_t(u) * v_.bytes);
      if (has_access(in.op)) fetch_ahead(in, m, group, int64_t(u) * v_.bytes);
      if (in.op == Op::kStore) {
        cc_.emit(Ids::kIdVmovups, m, operand_of(in.a, u));
      } else if (in.op == Op::kLoad) {
        x86::Vec v = v_.unary(Ids::kIdVmovups, true, m);
        // any byte other than 0 is true
        if (is_mask(in.type)) v = v_.binary(Ids::kIdVpminub, true, v, v_.materialise(true, 0x0101010101010101u));
        own[size_t(in.id)].push_back(v);
      } else {
        const x86::Vec a = operand_of(in.a, u), b = n > 1 ? operand_of(in.b, u) : a;
        own[size_t(in.id)].push_back(packed(in, a, b));
      }
    }
  }
}

void KernelEmitter::packed_strip(const Loop& l, const x86::Gp& i, const x86::Gp& end, int vectors) {
  const Inst& first = std::get<Inst>(l.body[0]);
  const int step = vectors * v_.bytes / int(size_of(first.type));
  const asmjit::Label top = cc_.newLabel(), done = cc_.newLabel();
  x86::Gp limit = cc_.newInt64();
  cc_.lea(limit, x86::ptr(end, -(step - 1)));
  cc_.cmp(i, limit);
  cc_.jge(done);
  cc_.bind(top);
  LaneGroup group;
  group.lane_loop = &l, group.vectors = vectors, group.per_vector = step / vectors;
  loop_live_[size_t(l.id)] = true;
  open_scope();
  packed_body(l, group);
  close_scope();
  loop_live_[size_t(l.id)] = false;
  spend(l, vectors);
  look_if_spent();
  cc_.add(i, step);
  cc_.cmp(i, limit);
  cc_.jl(top);
  cc_.bind(done);
}

}  // namespace lutra::x64
