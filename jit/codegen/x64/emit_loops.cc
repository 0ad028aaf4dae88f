// Control flow: bodies, serial loops, vector loops in strips with masked tails, lanes loops.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "jit/codegen/x64/emitter.h"
#include "jit/loop/abi.h"
#include "ops/core/error.h"

namespace lutra::x64 {

namespace {
// Bodies up to these costs are unrolled, or get a separate tail.
constexpr int kUnroll4 = 10, kUnroll2 = 30, kOwnTail = 60;
// A body with one heavy function is emitted for two vectors up to this cost.
constexpr int kInterleave = 220;
// The time of a gather in vector instructions: its elements may miss all caches.
constexpr int kGather = 64;
}  // namespace

KernelEmitter::KernelEmitter(x86::Compiler& cc, const Kernel& k, Isa isa, int look_after)
    : cc_(cc),
      k_(k),
      info_(k, isa == Isa::kAvx512 ? 16 : 8),
      vectors_(isa == Isa::kAvx512 ? make_avx512(cc, info_.lanes) : make_avx2(cc, info_.lanes)),
      v_(*vectors_),
      values_(size_t(k.values)),
      varying_(size_t(k.values), false),
      loop_regs_(size_t(k.loops)),
      loop_live_(size_t(k.loops), false),
      look_after_(look_after) {}

void KernelEmitter::emit() {
  t_vectors = &v_;
  asmjit::FuncNode* f = cc_.addFunc(asmjit::FuncSignatureT<void, void*>());
  if (v_.bytes == 64) f->frame().setAvx512Enabled();
  f->frame().setAvxEnabled();
  f->frame().setAvxCleanup();
  block_ = cc_.newUIntPtr("block");
  f->setArg(0, block_);
  const asmjit::Label exit = cc_.newLabel();
  if (look_after_) {
    f->frame().setFuncCalls();
    left_ = cc_.newInt64("left");
    cc_.mov(left_, look_after_);
  }
  open_scope();
  parameters();
  LaneGroup group;
  group.per_vector = v_.lanes;
  body(k_.body, group);
  cc_.bind(exit);
  cc_.ret();
  cold_checks(exit);
  cold_looks(exit);
  emit_block_ends();
  cc_.endFunc();
  t_vectors = nullptr;
}

// Loads scalars and integer arguments into registers once, at the top.
void KernelEmitter::parameters() {
  for (const Inst* in : info_.parameters) {
    Value v;
    if (in->op == Op::kIntArg) {
      v.reg = v_.broadcast_memory(int_arg(in->arg), true);
    } else {
      Value d;
      d.reg = v_.broadcast_memory(scalar_arg(in->arg), true);
      v = cast(DType::kFloat64, in->type, d);
    }
    parameters_.emplace_back(in, v);
  }
}

void KernelEmitter::set_values(int32_t id, bool varying, std::vector<Value> values) {
  values_[size_t(id)] = std::move(values);
  varying_[size_t(id)] = varying;
  scopes_.back().defined.push_back(id);
}

void KernelEmitter::close_scope() {
  for (int32_t id : scopes_.back().defined) values_[size_t(id)].clear();
  scopes_.pop_back();
}

void KernelEmitter::body(const std::vector<Stmt>& stmts, LaneGroup& group) {
  for (const Stmt& s : stmts) {
    if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s))
      loop(**l, group);
    else
      inst(std::get<Inst>(s), group);
  }
}

void KernelEmitter::loop(const Loop& l, LaneGroup& group) {
  if (const auto nest = tiled_nest(l); !nest.empty()) return tile_loop(nest);
  begin_accumulators(l, group);
  const size_t outer = bound_.size();
  bind_accesses(l);
  switch (l.mode) {
    case LoopMode::kSerial: serial_loop(l, group); break;
    case LoopMode::kVector: vector_loop(l); break;
    case LoopMode::kLanes: lanes_loop(l); break;
  }
  bound_.resize(outer);
  finish_accumulators(l, group);
}

x86::Gp KernelEmitter::loop_begin(const Loop& l) {
  x86::Gp i = cc_.newInt64();
  if (l.parallel)
    cc_.mov(i, head(offsetof(BlockHead, begin)));
  else
    cc_.xor_(i.r32(), i.r32());
  return i;
}

x86::Gp KernelEmitter::loop_end(const Loop& l) {
  x86::Gp n = cc_.newInt64();
  if (l.parallel)
    cc_.mov(n, head(offsetof(BlockHead, end)));
  else if (l.size.arg >= 0)
    cc_.mov(n, int_arg(l.size.arg));
  else
    cc_.mov(n, l.size.literal);
  return n;
}

void KernelEmitter::serial_loop(const Loop& l, LaneGroup& group) {
  x86::Gp i = loop_begin(l), n = loop_end(l);
  const asmjit::Label top = cc_.newLabel(), end = cc_.newLabel();
  loop_regs_[size_t(l.id)] = i;
  cc_.cmp(i, n);
  cc_.jge(end);
  cc_.bind(top);
  loop_live_[size_t(l.id)] = true;
  open_scope();
  const bool nested = std::exchange(group.nested, true);
  body(l.body, group);
  group.nested = nested;
  close_scope();
  loop_live_[size_t(l.id)] = false;
  spend(l, group.vectors);
  look_if_spent();
  cc_.inc(i);
  cc_.cmp(i, n);
  cc_.jl(top);
  cc_.bind(end);
}

// Runs the loop in strips of `step` iterations, as `vectors` vectors. Emits full strips while they fit, or one masked
// partial strip (`repeat`: several).
void KernelEmitter::strip(const Loop& l, const x86::Gp& i, const x86::Gp& end, int step, int vectors, bool masked,
                          bool repeat) {
  const asmjit::Label top = cc_.newLabel(), done = cc_.newLabel();
  const int per_vector = std::min(step, v_.lanes);
  x86::Gp limit = end;
  if (!masked) {
    limit = cc_.newInt64();
    cc_.lea(limit, x86::ptr(end, -(step - 1)));
  }
  cc_.cmp(i, limit);
  cc_.jge(done);
  cc_.bind(top);
  feed_first(l, true);
  LaneGroup s;
  s.lane_loop = &l;
  s.vectors = vectors;
  s.per_vector = per_vector;
  if (masked) {
    x86::Gp left = cc_.newInt64();
    cc_.mov(left, end);
    cc_.sub(left, i);
    s.masks = v_.first_lanes(left, step, vectors, per_vector);
  } else if (per_vector < v_.lanes) {
    x86::Gp all = cc_.newInt64();
    cc_.mov(all, per_vector);
    s.masks = v_.first_lanes(all, per_vector, 1, per_vector);
  }
  loop_live_[size_t(l.id)] = true;
  open_scope();
  body(l.body, s);
  close_scope();
  feed_first(l, false);
  loop_live_[size_t(l.id)] = false;
  spend(l, vectors);
  if (repeat || !masked) {
    look_if_spent();
    cc_.add(i, step);
    cc_.cmp(i, limit);
    cc_.jl(top);
  }
  cc_.bind(done);
}

namespace {
// Returns for how many vectors a function's instructions are interleaved. Each waits for the one before, and the
// processor looks ahead only some iterations. The values of some functions fit in the registers four times.
int interleaved_by(Op op) {
  switch (op) {
    case Op::kErf:
    case Op::kErfinv:
    case Op::kExp:
    case Op::kExpm1:
    case Op::kNormalCdf:
    case Op::kTan:
    case Op::kTanh: return 4;
    default: return loop::is_heavy(op) ? 2 : 0;
  }
}
}  // namespace

// Returns for how many vectors the body is emitted, whose instructions alternate; 0 if that does not pay. It needs many
// registers, and a loop that is not short. Compiling several functions twice would cost more time than it saves.
int KernelEmitter::interleaved(const Loop& l, int cost) const {
  int heavy = 0, vectors = 0;
  for_each_inst(l.body, [&](const Inst& in) {
    if (!loop::is_heavy(in.op) || !is_float(in.type)) return;
    heavy++, vectors = interleaved_by(in.op);
  });
  return l.parallel && v_.bytes == 64 && heavy == 1 && cost <= kInterleave && !info_.gathers(l) ? vectors : 0;
}

void KernelEmitter::vector_loop(const Loop& l) {
  const int cost = info_.cost(l);
  int hot = cost;  // inner bodies run more often, so they decide as long as the whole stays small
  for (const Stmt& s : l.body) {
    if (const auto* inner = std::get_if<std::unique_ptr<Loop>>(&s)) {
      const int c = info_.cost(**inner);
      hot = hot == cost ? c : std::max(hot, c);
    }
  }
  if (cost > kOwnTail) hot = cost;
  int unroll = hot <= kUnroll4 ? 4 : hot <= kUnroll2 ? 2 : 1;
  if (info_.gathers(l)) unroll = 1;
  const int vectors = interleaved(l, cost);
  unroll = std::max(unroll, vectors);
  x86::Gp i = loop_begin(l), n = loop_end(l);
  loop_regs_[size_t(l.id)] = i;
  hoist_lane_indices(l, 1);
  if (packs(l)) {
    packed_strip(l, i, n, 4);
    packed_strip(l, i, n, 1);
  }
  if (vectors && cost > kOwnTail) return strip(l, i, n, vectors * v_.lanes, vectors, true, true);
  if (unroll > 1 || cost <= kOwnTail) strip(l, i, n, unroll * v_.lanes, unroll, false, true);
  // Short rows are mostly tail, so whole vectors in it go without masks.
  const bool rows = !l.parallel && unroll > 1;
  if (rows) strip(l, i, n, v_.lanes, 1, false, true);
  strip(l, i, n, v_.lanes, 1, true, !rows);
}

// Returns the lanes of the accumulators that a lanes loop feeds (the same for all).
int KernelEmitter::lanes_of(const Loop& l) const {
  int lanes = 0;
  for (const Stmt& s : l.body) {
    const Inst* in = std::get_if<Inst>(&s);
    if (!in || in->op != Op::kAccum) continue;
    for (const AccState& a : accs_) {
      if (a.acc->id == in->arg) lanes = a.acc->lanes;
    }
  }
  return lanes ? lanes : v_.lanes;
}

void KernelEmitter::lanes_loop(const Loop& l) {
  const int lanes = lanes_of(l), vectors = std::max(1, lanes / v_.lanes);
  const bool two_bodies = info_.cost(l) * vectors <= kOwnTail;
  x86::Gp i = loop_begin(l), n = loop_end(l);
  loop_regs_[size_t(l.id)] = i;
  hoist_lane_indices(l, vectors);
  if (two_bodies) strip(l, i, n, lanes, vectors, false, true);
  strip(l, i, n, lanes, vectors, true, !two_bodies);
  for (AccState& s : accs_) {
    bool fed = false;
    for_each_inst(l.body, [&](const Inst& in) { fed |= in.op == Op::kAccum && in.arg == s.acc->id; });
    if (fed && s.count.isValid()) cc_.add(s.count, n);
  }
}

// Counts the work of an iteration of l: its own instructions, since inner loops count theirs.
void KernelEmitter::spend(const Loop& l, int vectors) {
  if (!look_after_) return;
  int work = 1;
  for (const Stmt& s : l.body) {
    const Inst* in = std::get_if<Inst>(&s);
    if (in) work += std::max(1, loop::cost(in->op, in->type));
  }
  if (info_.gathers(l)) work += kGather;
  cc_.sub(left_, work * vectors);
}

void KernelEmitter::look_if_spent() {
  if (!look_after_) return;
  cc_.test(left_, left_);
  look_sites_.push_back({cc_.newLabel(), cc_.newLabel()});
  cc_.js(look_sites_.back().at);
  cc_.bind(look_sites_.back().back);
}

void KernelEmitter::cold_looks(const asmjit::Label& exit) {
  for (const Look& l : look_sites_) {
    cc_.bind(l.at);
    x86::Mem entry = head(offsetof(BlockHead, look));
    cc_.emit(Ids::kIdCall, entry);
    cc_.jnz(exit);
    cc_.mov(left_, look_after_);
    cc_.jmp(l.back);
  }
}

// Out of line: records the first failing lane, then leaves the kernel.
void KernelEmitter::cold_checks(const asmjit::Label& exit) {
  for (const ColdCheck& c : checks_) {
    cc_.bind(c.at);
    x86::Gp fault = cc_.newUIntPtr(), one = cc_.newInt32(), index = c.number;
    if (!index.isValid()) {
      x86::Gp lane = cc_.newInt64();
      x86::Mem spill = cc_.newStack(64, 64);
      cc_.emit(Ids::kIdVmovups, spill, c.index);
      v_.mask_bits(lane, c.failing);
      cc_.tzcnt(lane.r32(), lane.r32());
      spill.setIndex(lane, 3);
      spill.setSize(8);
      index = cc_.newInt64();
      cc_.mov(index, spill);
    }
    cc_.mov(fault, head(offsetof(BlockHead, fault)));
    cc_.test(fault, fault);
    cc_.jz(exit);
    cc_.mov(one, 1);
    cc_.xchg(x86::dword_ptr(fault, offsetof(LaunchFault, set)), one);
    cc_.test(one, one);
    cc_.jnz(exit);
    cc_.mov(x86::dword_ptr(fault, offsetof(LaunchFault, arg)), c.inst->arg);
    cc_.mov(x86::qword_ptr(fault, offsetof(LaunchFault, index)), index);
    cc_.jmp(exit);
  }
}

}  // namespace lutra::x64
