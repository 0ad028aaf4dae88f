// Accumulators: partial results in registers, fed under masks, combined as the halving tree of loop.h.
#include <algorithm>
#include <limits>

#include "jit/codegen/x64/emitter.h"
#include "jit/loop/cell.h"
#include "ops/core/error.h"

namespace lutra::x64 {

KernelEmitter::AccState& KernelEmitter::accumulator(int32_t id) {
  for (AccState& s : accs_) {
    if (s.acc->id == id) return s;
  }
  fail_internal("codegen: no accumulator %", id);
}

// Returns the bits of the identity in a lane.
int64_t KernelEmitter::identity_bits(const Accumulator& a) const {
  const loop::Cell c = loop::identity(a.op, a.type);
  if (!is_float(a.type)) return is_wide(a.type) ? c.i : int64_t(uint32_t(c.i));
  return int64_t(is_wide(a.type) ? F64::pattern_of(c.f) : F32::pattern_of(c.f));
}

void KernelEmitter::begin_accumulators(const Loop& l, const LaneGroup& group) {
  for (const Accumulator& a : l.accs) {
    AccState s;
    s.acc = &a;
    LUTRA_CHECK(a.lanes <= loop::kMaxCpuLanes, "a kernel for a GPU");
    const int n = a.lanes > 1 ? std::max(1, a.lanes / v_.lanes) : group.lane_loop ? group.vectors : 1;
    for (int i = 0; i < n; i++) {
      Value v;
      if (is_mask(a.type))
        v.mask = v_.mask_constant(a.op == RedOp::kAll);
      else
        v.reg = v_.materialise(is_wide(a.type), uint64_t(identity_bits(a)));
      s.partial.push_back(v);
      if (is_position(a.op)) s.position.push_back(v_.materialise(true, uint64_t(loop::kNoPosition)));
    }
    if (is_position(a.op)) {
      s.count = cc_.newInt64();
      cc_.xor_(s.count.r32(), s.count.r32());
    }
    if (a.block) begin_blocks(s);
    accs_.push_back(std::move(s));
  }
}

// partial[at] = op(partial[at], x) where the mask is set.
void KernelEmitter::take(AccState& s, size_t at, const Value& x, const Mask* mask) {
  const DType t = s.acc->type;
  const bool wide = is_wide(t), real = is_float(t);
  Value& p = s.partial[at];
  const bool max = s.acc->op == RedOp::kMax;
  switch (s.acc->op) {
    case RedOp::kAny:
      v_.mask_op_into(MaskOp::kOr, p.mask, p.mask, mask ? v_.mask_op(MaskOp::kAnd, x.mask, *mask) : x.mask);
      return;
    case RedOp::kAll: {
      Mask fails = mask ? v_.mask_op(MaskOp::kAndNot, x.mask, *mask) : v_.mask_not(x.mask);
      v_.mask_op_into(MaskOp::kAndNot, p.mask, fails, p.mask);
      return;
    }
    case RedOp::kSum:
    case RedOp::kProd: {
      const bool sum = s.acc->op == RedOp::kSum;
      const Vop op = real ? (sum ? Vop::kAddF : Vop::kMulF) : sum ? Vop::kAddI : Vop::kMulI;
      v_.binary_into(op, wide, p.reg, p.reg, operand(t, x), mask);
      if (is_small(t)) cc_.emit(Ids::kIdVmovaps, p.reg, real ? rounded(t, p.reg) : wrapped(t, p.reg).reg);
      return;
    }
    case RedOp::kMax:
    case RedOp::kMin: {
      if (!real) return v_.binary_into(max ? Vop::kMaxI : Vop::kMinI, wide, p.reg, p.reg, operand(t, x), mask);
      x86::Vec v = reg(t, x);
      Mask nan = v_.compare_floats(Cmp::kUnordered, wide, v, v, mask);
      v_.binary_into(max ? Vop::kMaxF : Vop::kMinF, wide, p.reg, v, p.reg, mask);
      v_.move_where(wide, nan, p.reg, v);
      return;
    }
    case RedOp::kArgMax:
    case RedOp::kArgMin: fail_internal("codegen: argmax has positions");
  }
}

// Combines (x, position) into a partial. NaN is before all, then the greater (less) value, then the first.
void KernelEmitter::take_position(AccState& s, size_t at, const x86::Vec& x, const x86::Vec& position,
                                  const Mask* mask) {
  const DType t = s.acc->type;
  const bool wide = is_wide(t);
  const Cmp order = s.acc->op == RedOp::kArgMax ? Cmp::kGt : Cmp::kLt;
  x86::Vec best = s.partial[at].reg, best_position = s.position[at];
  Mask better, same;
  if (is_float(t)) {
    Mask nan = v_.compare_floats(Cmp::kUnordered, wide, x, x, mask);
    Mask best_nan = v_.compare_floats(Cmp::kUnordered, wide, best, best);
    better = v_.mask_op(MaskOp::kOr, v_.compare_floats(order, wide, x, best, mask),
                        v_.mask_op(MaskOp::kAndNot, best_nan, nan));
    same = v_.mask_op(MaskOp::kOr, v_.compare_floats(Cmp::kEq, wide, x, best, mask),
                      v_.mask_op(MaskOp::kAnd, nan, best_nan));
  } else {
    better = v_.compare_ints(order, wide, x, best, mask);
    same = v_.compare_ints(Cmp::kEq, wide, x, best, mask);
  }
  Mask first = v_.compare_ints(Cmp::kLt, true, position, best_position);
  better = v_.mask_op(MaskOp::kOr, better, v_.mask_op(MaskOp::kAnd, same, first));
  v_.move_where(wide, better, best, x);
  v_.move_where(true, better, best_position, position);
}

// Starts the blocks of a sum. Their sums are on the stack, since they are rarely accessed; the loop needs the
// registers.
void KernelEmitter::begin_blocks(AccState& s) {
  s.left = cc_.newInt32(), s.complete = cc_.newInt32();
  cc_.mov(s.left, s.acc->block);
  cc_.xor_(s.complete, s.complete);
  s.blocks = cc_.newStack(uint32_t(2 * s.partial.size()) * uint32_t(v_.bytes), uint32_t(v_.bytes));
  s.end = block_ends_.size();
  block_ends_.push_back({s});
}

KernelEmitter::BlockEnd::Site KernelEmitter::block_end(const AccState& s) {
  return block_ends_[s.end].from.emplace_back(BlockEnd::Site{cc_.newLabel(), cc_.newLabel()});
}

// Ends a full block before a feed.
void KernelEmitter::feed_block(AccState& s) {
  const BlockEnd::Site end = block_end(s);
  cc_.sub(s.left, 1);
  cc_.js(end.at);
  cc_.bind(end.back);
}

// Ends full blocks before the body of a lanes loop that feeds each of them once. Later, the values of the body would be
// kept on the stack, since all feeds share the code that ends a block.
void KernelEmitter::feed_first(const Loop& l, bool begin) {
  for (AccState& s : accs_) {
    if (!s.acc->block) continue;
    const auto feeds = [&](const Inst& in) { return in.op == Op::kAccum && in.arg == s.acc->id; };
    int direct = 0, all = 0;
    for (const Stmt& stmt : l.body) {
      const Inst* in = std::get_if<Inst>(&stmt);
      direct += in && feeds(*in);
    }
    for_each_inst(l.body, [&](const Inst& in) { all += feeds(in); });
    if (direct != 1 || all != 1) continue;
    if (begin) feed_block(s);
    s.fed = begin;
  }
}

void KernelEmitter::emit_block_ends() {
  for (BlockEnd& b : block_ends_) {
    if (b.from.empty()) continue;
    const asmjit::Label begin = cc_.newLabel();
    const x86::Gp from = cc_.newInt32();
    const size_t last = b.from.size() - 1;
    for (size_t i = 0; i <= last; i++) {
      cc_.bind(b.from[i].at);
      cc_.mov(from, i);
      if (i < last) cc_.jmp(begin);
    }
    cc_.bind(begin);
    end_block(b.state);
    cc_.mov(b.state.left, b.state.acc->block - 1);
    for (size_t i = 0; i < last; i++) {
      cc_.cmp(from, i);
      cc_.je(b.from[i].back);
    }
    cc_.jmp(b.from[last].back);
  }
}

// Adds each partial to the sum of its blocks and sets it to 0. A few registers serve all partials in turn, since
// register allocation takes time in proportion to the number of registers.
void KernelEmitter::end_block(AccState& s) {
  const bool wide = is_wide(s.acc->type);
  const asmjit::Label first = cc_.newLabel(), done = cc_.newLabel();
  const x86::Vec zero = v_.zero(wide), t = v_.zero(wide), lost = v_.zero(wide);
  cc_.test(s.complete, s.complete);
  cc_.jz(first);
  for (size_t i = 0; i < s.partial.size(); i++) {
    const x86::Vec p = s.partial[i].reg;
    const x86::Mem sum = s.sum(i, v_.bytes), rest = s.rest(i, v_.bytes);
    cc_.emit(Ids::kIdVmovups, lost, sum);
    v_.binary_into(Vop::kAddF, wide, t, lost, p, nullptr);
    v_.binary_into(Vop::kSubF, wide, lost, t, lost, nullptr);
    v_.binary_into(Vop::kSubF, wide, lost, p, lost, nullptr);
    v_.binary_into(Vop::kAddF, wide, lost, lost, rest, nullptr);
    cc_.emit(Ids::kIdVmovups, rest, lost);
    cc_.emit(Ids::kIdVmovups, sum, t);
    cc_.emit(Ids::kIdVmovaps, p, zero);
  }
  cc_.jmp(done);
  cc_.bind(first);
  for (size_t i = 0; i < s.partial.size(); i++) {
    const x86::Vec p = s.partial[i].reg;
    cc_.emit(Ids::kIdVmovups, s.sum(i, v_.bytes), p);
    cc_.emit(Ids::kIdVmovups, s.rest(i, v_.bytes), zero);
    cc_.emit(Ids::kIdVmovaps, p, zero);
  }
  cc_.mov(s.complete, 1);
  cc_.bind(done);
}

// Replaces the partials by the sums of their blocks. A single block is the partial itself.
void KernelEmitter::add_blocks(AccState& s) {
  const bool wide = is_wide(s.acc->type);
  const asmjit::Label single = cc_.newLabel();
  cc_.test(s.complete, s.complete);
  cc_.jz(single);
  const BlockEnd::Site end = block_end(s);
  cc_.jmp(end.at);
  cc_.bind(end.back);
  const x86::Vec sum = v_.zero(wide), rest = v_.zero(wide);
  for (size_t i = 0; i < s.partial.size(); i++) {
    cc_.emit(Ids::kIdVmovups, sum, s.sum(i, v_.bytes));
    cc_.emit(Ids::kIdVmovups, rest, s.rest(i, v_.bytes));
    const Mask lost = v_.compare_floats(Cmp::kUnordered, wide, rest, rest);
    v_.binary_into(Vop::kAddF, wide, s.partial[i].reg, sum, rest, nullptr);
    v_.move_where(wide, lost, s.partial[i].reg, sum);
  }
  cc_.bind(single);
}

void KernelEmitter::accumulate(const Inst& in, const LaneGroup& group) {
  AccState& s = accumulator(in.arg);
  if (s.acc->block && !s.fed) feed_block(s);
  const bool lanes = s.acc->lanes > 1;
  for (size_t u = 0; u < s.partial.size(); u++) {
    const Value& x = value(in.a, int(u));
    const Mask* mask = lanes ? group.mask(int(u)) : nullptr;
    if (!is_position(s.acc->op)) {
      take(s, u, x, mask);
      continue;
    }
    x86::Vec position;
    if (lanes) {
      x86::Gp first = cc_.newInt64();
      cc_.mov(first, s.count);
      cc_.add(first, loop_regs_[size_t(group.lane_loop->id)]);
      position = v_.binary(Vop::kAddI, true, v_.broadcast(first, true), v_.iota(int64_t(u) * v_.lanes));
    } else {
      position = v_.broadcast(s.count, true);
    }
    take_position(s, u, reg(in.type, x), position, mask);
  }
  if (is_position(s.acc->op) && !lanes) cc_.inc(s.count);
}

Value KernelEmitter::finish_masks(AccState& s) {
  const bool any = s.acc->op == RedOp::kAny;
  Mask all = s.partial[0].mask;
  for (size_t i = 1; i < s.partial.size(); i++) {
    all = v_.mask_op(any ? MaskOp::kOr : MaskOp::kAnd, all, s.partial[i].mask);
  }
  const int bits = (1 << std::min(s.acc->lanes, v_.lanes)) - 1;
  x86::Gp r = cc_.newInt32(), set = cc_.newInt32();
  cc_.xor_(set, set);
  v_.mask_bits(r, all);
  cc_.and_(r, bits);
  cc_.cmp(r, any ? 0 : bits);
  if (any)
    cc_.setne(set.r8());
  else
    cc_.sete(set.r8());
  cc_.neg(set);
  Value v;
  v.mask = v_.mask_broadcast(set);
  return v;
}

Value KernelEmitter::halving_tree(AccState& s) {
  if (is_mask(s.acc->type)) return finish_masks(s);
  const bool wide = is_wide(s.acc->type), positions = is_position(s.acc->op);
  for (size_t n = s.partial.size() / 2; n >= 1; n /= 2) {
    for (size_t j = 0; j < n; j++) {
      if (positions)
        take_position(s, j, s.partial[j + n].reg, s.position[j + n], nullptr);
      else
        take(s, j, s.partial[j + n], nullptr);
    }
  }
  for (int w = std::min(s.acc->lanes, v_.lanes) / 2; w >= 1; w /= 2) {
    Value other;
    other.reg = v_.rotate(s.partial[0].reg, wide, w);
    if (positions)
      take_position(s, 0, other.reg, v_.rotate(s.position[0], true, w), nullptr);
    else
      take(s, 0, other, nullptr);
  }
  Value v;
  v.reg = positions ? v_.broadcast_lane0(s.position[0], true) : v_.broadcast_lane0(s.partial[0].reg, wide);
  return v;
}

void KernelEmitter::finish_accumulators(const Loop& l, const LaneGroup& group) {
  const size_t first = accs_.size() - l.accs.size();
  for (size_t i = 0; i < l.accs.size(); i++) {
    AccState& s = accs_[first + i];
    std::vector<Value> results;
    if (s.acc->block) add_blocks(s);
    if (s.acc->lanes > 1) {
      results.push_back(halving_tree(s));
    } else if (is_position(s.acc->op)) {
      for (const x86::Vec& p : s.position) {
        results.emplace_back();
        results.back().reg = p;
      }
    } else {
      results = s.partial;
    }
    set_values(s.acc->id, group.lane_loop != nullptr, std::move(results));
  }
  accs_.resize(first);
}

}  // namespace lutra::x64
