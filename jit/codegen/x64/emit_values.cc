// Instructions without control flow: arithmetic, comparisons, casts, random numbers. Loads and stores are dispatched
// from here.
#include <cstddef>

#include "jit/codegen/machine/float_ops.h"
#include "jit/codegen/x64/emitter.h"
#include "jit/loop/abi.h"
#include "ops/core/error.h"
#include "ops/core/half.h"

namespace lutra::x64 {

using loop::info;
using loop::TypeRule;

const Value& KernelEmitter::value(int32_t id, int u) const {
  const auto& v = values_[size_t(id)];
  LUTRA_CHECK(!v.empty(), "%", id, " has no code");
  return v.size() == 1 ? v[0] : v[size_t(u)];
}
x86::Vec KernelEmitter::reg(DType t, const Value& v) {
  return v.constant ? v_.materialise(is_wide(t), v.pattern) : v.reg;
}
asmjit::Operand KernelEmitter::operand(DType t, const Value& v) {
  if (v.constant) return v_.constant(is_wide(t), v.pattern);
  return v.reg;
}

// Brings a small integer in a 32-bit lane back to its type's range.
Value KernelEmitter::wrapped(DType t, const x86::Vec& v) {
  Value r;
  auto shifts = [&](int n) { return v_.shift_right_signed(v_.shift_left(false, v, n), n); };
  switch (t) {
    case DType::kUInt8: r.reg = v_.binary(Vop::kAnd, false, v, v_.constant(false, 0xff)); break;
    case DType::kInt8: r.reg = shifts(24); break;
    case DType::kInt16: r.reg = shifts(16); break;
    default: r.reg = v;
  }
  return r;
}

// Rounds floats in 32-bit lanes to t; NaN stays NaN. `stored`: only a store reads the result. A store rounds to float16
// itself, and takes the upper half of a bfloat16's lane.
x86::Vec KernelEmitter::rounded(DType t, const x86::Vec& v, bool stored) {
  if (t == DType::kFloat16) return stored ? v : v_.from_half(v_.to_half(v));
  if (t != DType::kBFloat16) return v;
  Mask nan = v_.compare_floats(Cmp::kUnordered, false, v, v);
  x86::Vec odd = v_.binary(Vop::kAnd, false, v_.shift_right(false, v, 16), v_.constant(false, 1));
  x86::Vec up = v_.binary(Vop::kAddI, false, v, v_.constant(false, 0x7fff));
  up = v_.binary(Vop::kAddI, false, up, odd);
  v_.binary_into(Vop::kOr, false, up, v, v_.constant(false, 0x400000), &nan);  // a quiet NaN
  return stored ? up : v_.binary(Vop::kAnd, false, up, v_.constant(false, 0xffff0000u));
}

// Returns true if all lanes are equal.
bool KernelEmitter::uniform(const Inst& in, const LaneGroup& group) const {
  if (!group.lane_loop) return true;
  if (in.op == Op::kIndex) return in.arg != group.lane_loop->id;
  if (has_access(in.op) && varies(in.access, group)) return false;
  const int32_t operands[] = {in.a, in.b, in.c};
  for (int i = 0; i < info(in.op).operands; i++) {
    if (varying_[size_t(operands[i])]) return false;
  }
  return true;
}

// Returns true if an instruction may be reordered with those of another line. Instructions that read or write flags may
// not.
bool KernelEmitter::is_free(const asmjit::BaseNode* node) const {
  if (node->type() != asmjit::NodeType::kInst) return false;
  const auto* in = node->as<asmjit::InstNode>();
  asmjit::InstRWInfo rw;
  if (asmjit::InstAPI::queryRWInfo(cc_.arch(), in->baseInst(), in->operands(), in->opCount(), &rw)) return false;
  return rw.readFlags() == asmjit::CpuRWFlags::kNone && rw.writeFlags() == asmjit::CpuRWFlags::kNone;
}

// Interleaves the code of the vectors, as far as it is straight-line code. The code of vector u follows ends[u]. A
// processor looks only a few dozen instructions ahead, and those of one vector's function depend on each other.
void KernelEmitter::interleave(const std::vector<asmjit::BaseNode*>& ends) {
  std::vector<std::vector<asmjit::BaseNode*>> lines;
  size_t most = 0;
  for (size_t u = 0; u + 1 < ends.size(); u++) {
    std::vector<asmjit::BaseNode*> line;
    for (asmjit::BaseNode* n = ends[u]; n != ends[u + 1] && is_free(n->next());) line.push_back(n = n->next());
    most = std::max(most, line.size());
    lines.push_back(line);
  }
  asmjit::BaseNode *const after = ends.back()->next(), *at = ends[0];
  for (const auto& line : lines) {
    for (asmjit::BaseNode* n : line) cc_.removeNode(n);
  }
  for (size_t i = 0; i < most; i++) {
    for (const auto& line : lines) {
      if (i < line.size()) at = cc_.addAfter(line[i], at);
    }
  }
  cc_.setCursor(after ? after->prev() : cc_.lastNode());
}

void KernelEmitter::inst(const Inst& in, LaneGroup& group) {
  switch (in.op) {
    case Op::kAccum: return accumulate(in, group);
    case Op::kCheck: return check(in, group);
    case Op::kStore:
      for (int u = 0; u < group.vectors; u++) {
        store(in.type, value(in.a, u), place_ahead(in, group, u), group, u);
      }
      return;
    case Op::kStoreAdd: {
      const Place p = place(in.access, in.type, group, 0);
      Inst add{};
      add.op = Op::kAdd, add.type = in.type;
      const Value old = load(in.type, p, group, 0);
      return store(in.type,
                   is_float(in.type) ? float_op(add, old, value(in.a, 0)) : int_op(add, old, value(in.a, 0), group), p,
                   group, 0);
    }
    default: break;
  }
  if (info_.is_lane_index(in.id)) return;
  if (info_.compares_lanes(in)) return set_values(in.id, true, lane_comparison(in, group));
  const bool same = uniform(in, group);
  std::vector<Value> results;
  std::vector<asmjit::BaseNode*> ends{cc_.cursor()};  // before the first, then after each vector
  for (int u = 0; u < (same ? 1 : group.vectors); u++) {
    results.push_back(evaluate(in, group, u));
    ends.push_back(cc_.cursor());
  }
  if (results.size() > 1 && loop::is_heavy(in.op) && is_float(in.type)) interleave(ends);
  set_values(in.id, !same, std::move(results));
}

Value KernelEmitter::evaluate(const Inst& in, const LaneGroup& group, int u) {
  Value v;
  switch (in.op) {
    case Op::kConst:
      if (is_mask(in.type)) {
        v.mask = v_.mask_constant(in.iimm != 0);
        return v;
      }
      v.constant = true;
      if (is_float(in.type))
        v.pattern = is_wide(in.type) ? F64::pattern_of(in.imm) : F32::pattern_of(round_to_half(in.type, float(in.imm)));
      else if (in.type == DType::kInt64)
        v.pattern = uint64_t(in.iimm);
      else
        v.pattern = in.type == DType::kUInt8   ? uint8_t(in.iimm)
                    : in.type == DType::kInt8  ? uint32_t(int8_t(in.iimm))
                    : in.type == DType::kInt16 ? uint32_t(int16_t(in.iimm))
                                               : uint32_t(in.iimm);
      return v;
    case Op::kScalar:
    case Op::kIntArg:
      for (const auto& p : parameters_) {
        if (p.first->op == in.op && p.first->arg == in.arg && p.first->type == in.type) return p.second;
      }
      fail_internal("codegen: unknown parameter");
    case Op::kIndex: return index_of(in, group, u);
    case Op::kLoad:
      if (const x86::Mem* tile = tile_of(in)) return load_tile(in.type, *tile);
      return load(in.type, place_ahead(in, group, u), group, u);
    default: break;
  }
  const int n = info(in.op).operands;
  const Value &a = value(in.a, u), &b = n > 1 ? value(in.b, u) : a, &c = n > 2 ? value(in.c, u) : a;
  if (info(in.op).rule == TypeRule::kRandom) return random(in, a);
  if (info(in.op).rule == TypeRule::kCompare) return comparison(in, a, b);
  if (in.op == Op::kSelect) return selection(in, a, b, c);
  if (in.op == Op::kCast) return cast(info_.types[size_t(in.a)], in.type, a, info_.is_stored_only(in));
  if (is_mask(in.type)) return mask_op(in, a, b);
  return is_float(in.type) ? float_op(in, a, b, uniform(in, group)) : int_op(in, a, b, group);
}

x86::Vec KernelEmitter::maximum(DType t, bool max, const Value& a, const Value& b) {
  const bool wide = is_wide(t);
  x86::Vec y = reg(t, b);
  x86::Vec r = v_.binary(max ? Vop::kMaxF : Vop::kMinF, wide, y, operand(t, a));
  double v = 0;
  if (b.constant) {
    if (wide) {
      memcpy(&v, &b.pattern, 8);
    } else {
      float f;
      memcpy(&f, &b.pattern, 4);
      v = f;
    }
    if (v == v) return r;
  }
  v_.move_where(wide, v_.compare_floats(Cmp::kUnordered, wide, y, y), r, y);
  return r;
}

namespace {
// Returns true if the result is representable in a half type whenever the operands are.
bool is_exact(Op op) {
  switch (op) {
    case Op::kMin:
    case Op::kMax:
    case Op::kNeg:
    case Op::kAbs:
    case Op::kFloor:
    case Op::kCeil: return true;
    default: return false;
  }
}
}  // namespace

// A root or quotient with equal lanes. Computing it in one block takes a quarter of a register's time.
x86::Vec KernelEmitter::slow_op_once(const Inst& in, const Value& a, const Value& b) {
  const bool wide = is_wide(in.type);
  const x86::Vec x = reg(in.type, a).xmm(), r = cc_.newXmm();
  if (in.op == Op::kSqrt)
    cc_.emit(wide ? Ids::kIdVsqrtpd : Ids::kIdVsqrtps, r, x);
  else
    cc_.emit(wide ? Ids::kIdVdivpd : Ids::kIdVdivps, r, x, reg(in.type, b).xmm());
  return v_.broadcast_lane0(r, wide);
}

Value KernelEmitter::float_op(const Inst& in, const Value& a, const Value& b, bool once) {
  Value v;
  if (once && (in.op == Op::kSqrt || in.op == Op::kDiv))
    v.reg = slow_op_once(in, a, b);
  else if (in.op == Op::kMax || in.op == Op::kMin)
    v.reg = maximum(in.type, in.op == Op::kMax, a, b);
  else if (is_wide(in.type))
    static_cast<Piece&>(v) = apply_float(in.op, F64(a), F64(b));
  else
    static_cast<Piece&>(v) = apply_float(in.op, F32(a), F32(b));
  if (is_half(in.type) && !is_exact(in.op))
    v.reg = rounded(in.type, reg(in.type, v), info_.is_stored_only(in)), v.constant = false;
  return v;
}

namespace {
struct IntRow {
  Op op;
  Vop vop;
};
const IntRow kIntRows[] = {{Op::kAdd, Vop::kAddI}, {Op::kSub, Vop::kSubI}, {Op::kMul, Vop::kMulI},
                           {Op::kMin, Vop::kMinI}, {Op::kMax, Vop::kMaxI}, {Op::kAnd, Vop::kAnd},
                           {Op::kOr, Vop::kOr},    {Op::kXor, Vop::kXor}};
}  // namespace

Value KernelEmitter::int_op(const Inst& in, const Value& a, const Value& b, const LaneGroup& group) {
  const DType t = in.type;
  const bool wide = is_wide(t);
  for (const IntRow& row : kIntRows) {
    if (row.op == in.op) return wrapped(t, v_.binary(row.vop, wide, reg(t, a), operand(t, b)));
  }
  switch (in.op) {
    case Op::kNeg: return wrapped(t, v_.binary(Vop::kSubI, wide, v_.zero(wide), operand(t, a)));
    case Op::kNot: return wrapped(t, v_.binary(Vop::kXor, wide, reg(t, a), v_.constant(wide, ~0ull)));
    case Op::kAbs: return wrapped(t, v_.abs_int(wide, operand(t, a)));
    case Op::kPow: return wrapped(t, int_power(t, reg(t, a), reg(t, b)));
    case Op::kGcd: return wrapped(t, gcd(t, reg(t, a), reg(t, b), group.lane_loop ? v_.lanes : 1));
    case Op::kDiv:
    case Op::kRem:
    case Op::kFloorDiv: return wrapped(t, divide(in.op, t, reg(t, a), reg(t, b), group.lane_loop ? v_.lanes : 1));
    default: fail_internal("codegen: ", name(in.op), " of integers");
  }
}

Value KernelEmitter::mask_op(const Inst& in, const Value& a, const Value& b) {
  Value v;
  switch (in.op) {
    case Op::kAnd: v.mask = v_.mask_op(MaskOp::kAnd, a.mask, b.mask); break;
    case Op::kOr: v.mask = v_.mask_op(MaskOp::kOr, a.mask, b.mask); break;
    case Op::kXor: v.mask = v_.mask_op(MaskOp::kXor, a.mask, b.mask); break;
    case Op::kNot: v.mask = v_.mask_not(a.mask); break;
    default: fail_internal("codegen: ", name(in.op), " of bools");
  }
  return v;
}

Value KernelEmitter::comparison(const Inst& in, const Value& a, const Value& b) {
  static const Cmp kCmp[] = {Cmp::kEq, Cmp::kNe, Cmp::kLt, Cmp::kLe, Cmp::kGt, Cmp::kGe};
  const Cmp c = kCmp[int(in.op) - int(Op::kEq)];
  const DType t = info_.types[size_t(in.a)];
  Value v;
  if (is_mask(t))
    v.mask = v_.mask_op(c == Cmp::kEq ? MaskOp::kXnor : MaskOp::kXor, a.mask, b.mask);
  else if (is_float(t))
    v.mask = v_.compare_floats(c, is_wide(t), reg(t, a), operand(t, b));
  else
    v.mask = v_.compare_ints(c, is_wide(t), reg(t, a), operand(t, b));
  return v;
}

// Compares an index of the vector loop with a uniform value. It computes the value's distance from the first lane,
// limited to -1 (before) and the number of lanes (beyond), and compares it with the lanes' positions. The index is not
// negative, so a distance from -1 on does not wrap.
std::vector<Value> KernelEmitter::lane_comparison(const Inst& in, const LaneGroup& group) {
  static const Cmp kCmp[] = {Cmp::kEq, Cmp::kNe, Cmp::kLt, Cmp::kLe, Cmp::kGt, Cmp::kGe};
  static const Cmp kTurned[] = {Cmp::kEq, Cmp::kNe, Cmp::kGt, Cmp::kGe, Cmp::kLt, Cmp::kLe};
  const bool first = info_.is_lane_index(in.a);
  const int which = int(in.op) - int(Op::kEq), most = group.vectors * v_.lanes;
  x86::Gp ahead = cc_.newInt64(), bound = cc_.newInt64();
  v_.lane0(ahead, reg(DType::kInt64, value(first ? in.b : in.a, 0)), true);
  cc_.mov(bound, -1);
  cc_.cmp(ahead, bound);
  cc_.cmovl(ahead, bound);
  cc_.sub(ahead, loop_regs_[size_t(group.lane_loop->id)]);
  cc_.cmp(ahead, bound);
  cc_.cmovl(ahead, bound);
  cc_.mov(bound, most);
  cc_.cmp(ahead, bound);
  cc_.cmovg(ahead, bound);
  const x86::Vec distance = v_.broadcast(ahead, false);
  std::vector<Value> results(size_t(group.vectors));
  for (int u = 0; u < group.vectors; u++) {
    results[size_t(u)].mask =
        v_.compare_ints((first ? kTurned : kCmp)[which], false, distance, v_.places(u * v_.lanes));
  }
  return results;
}

Value KernelEmitter::selection(const Inst& in, const Value& a, const Value& b, const Value& c) {
  Value v;
  if (is_mask(in.type)) {
    v.mask =
        v_.mask_op(MaskOp::kOr, v_.mask_op(MaskOp::kAnd, a.mask, b.mask), v_.mask_op(MaskOp::kAndNot, a.mask, c.mask));
  } else {
    v.reg = v_.blend(is_wide(in.type), a.mask, operand(in.type, b), reg(in.type, c));
  }
  return v;
}

Value KernelEmitter::cast(DType from, DType to, const Value& a, bool stored) {
  Value v;
  const bool narrow_from = !is_wide(from), narrow_to = !is_wide(to);
  if (from == to || (is_half(from) && to == DType::kFloat32)) return a;
  if (is_half(to) && !is_mask(from) && from != DType::kFloat32) {
    if (!is_half(from)) return cast(DType::kFloat32, to, cast(from, DType::kFloat32, a), stored);
    from = DType::kFloat32;
  }
  if (is_mask(from)) {
    const uint64_t one = is_float(to) ? (narrow_to ? 0x3f800000u : 0x3ff0000000000000u) : 1;
    v.reg = v_.constant_where(!narrow_to, a.mask, one);
    return v;
  }
  x86::Vec r = reg(from, a);
  if (is_mask(to)) {
    v.mask = is_float(from) ? v_.compare_floats(Cmp::kNe, !narrow_from, r, v_.constant(!narrow_from, 0))
                            : v_.test_bits(!narrow_from, r, r);
    return v;
  }
  // Selects by kind (float or not) and width of both types.
  const int kind = (is_float(from) ? 8 : 0) + (narrow_from ? 0 : 4) + (is_float(to) ? 2 : 0) + (narrow_to ? 0 : 1);
  switch (kind) {
    case 0: return wrapped(to, r);
    case 1: v.reg = v_.convert(Conv::kI32ToI64, r); return v;
    case 2: v.reg = v_.convert(Conv::kI32ToF32, r); return v;
    case 3: v.reg = v_.convert(Conv::kI32ToF64, r); return v;
    case 4: return wrapped(to, v_.convert(Conv::kI64ToI32, r));
    case 6: v.reg = v_.convert(Conv::kI64ToF32, r); return v;
    case 7: v.reg = v_.convert(Conv::kI64ToF64, r); return v;
    case 8: return wrapped(to, v_.convert(Conv::kF32ToI32, r));
    case 9: v.reg = v_.convert(Conv::kF32ToI64, r); return v;
    case 10: v.reg = rounded(to, r, stored); return v;
    case 11: v.reg = v_.convert(Conv::kF32ToF64, r); return v;
    case 12: return wrapped(to, v_.convert(Conv::kF64ToI32, r));
    case 13: v.reg = v_.convert(Conv::kF64ToI64, r); return v;
    case 14: v.reg = v_.convert(Conv::kF64ToF32, r); return v;
    default: fail_internal("codegen: cast from ", info(from).name, " to ", info(to).name);
  }
}

Value KernelEmitter::random(const Inst& in, const Value& index) {
  I64 call(v_.broadcast_memory(head(offsetof(BlockHead, call)), true));
  I64 seed(v_.broadcast_memory(head(offsetof(BlockHead, seed)), true));
  if (in.arg) call = call + I64(in.arg);
  const loop::Words<I64> w = loop::philox(I64(reg(DType::kInt64, index)), call, seed);
  Value v;
  auto put = [&](const F64& d) {
    if (is_wide(in.type))
      static_cast<Piece&>(v) = d;
    else
      v.reg = rounded(in.type, narrow(d).reg);
  };
  if (in.op == Op::kRandBits)
    static_cast<Piece&>(v) = loop::random_bits(w);
  else if (in.op == Op::kNormal && is_wide(in.type))
    put(loop::normal_double<F64>(w));
  else if (in.op == Op::kNormal)
    v.reg = rounded(in.type, loop::normal_single<F64>(w).in_register());
  else
    put(is_wide(in.type) ? loop::unit_double<F64>(w.w[0], w.w[1]) : loop::unit_single<F64>(w.word(0)));
  return v;
}

Value KernelEmitter::index_of(const Inst& in, const LaneGroup& group, int u) {
  Value v;
  v.reg = v_.broadcast(loop_regs_[size_t(in.arg)], true);
  if (group.lane_loop && in.arg == group.lane_loop->id) {
    v.reg = v_.binary(Vop::kAddI, true, v.reg, v_.iota(int64_t(u) * v_.lanes));
  }
  return v;
}

void KernelEmitter::check(const Inst& in, const LaneGroup& group) {
  if (!varying_[size_t(in.a)]) {
    const x86::Gp index = number_of(in.a);
    cc_.cmp(index, int_arg(in.arg));
    checks_.push_back({cc_.newLabel(), &in, {}, {}, index});
    cc_.jae(checks_.back().at);
    return;
  }
  for (int u = 0; u < group.vectors; u++) {
    x86::Vec index = reg(DType::kInt64, value(in.a, u));
    Mask failing = v_.compare_unsigned_ge(index, v_.repeated(int_arg(in.arg), true), group.mask(u));
    checks_.push_back({cc_.newLabel(), &in, failing, index, {}});
    v_.jump_if_any(failing, checks_.back().at);
  }
}

}  // namespace lutra::x64
