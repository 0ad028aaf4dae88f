// Accumulators: partial results on the stack, combined as the halving tree of loop.h.
#include "jit/codegen/arm64/emitter.h"
#include "ops/core/error.h"

namespace lutra::arm64 {

namespace {
// Partial results of half floats are singles.
Form partial_form(Form f) { return is_half(f) ? Form::kF32 : is_real(f) ? f : Form::kI64; }
}  // namespace

KernelEmitter::AccState& KernelEmitter::accumulator(int32_t id) {
  for (AccState& s : accs_) {
    if (s.acc->id == id) return s;
  }
  fail_internal("codegen: no accumulator %", id);
}

Value KernelEmitter::load_partial(Form f, const a64::Gp& at, int32_t offset) {
  return load(partial_form(f), at, offset);
}
void KernelEmitter::store_partial(Form f, const a64::Gp& at, const Value& v, int32_t offset) {
  store(partial_form(f), at, v, offset);
}

// Emits f for the address of each of n cells, starting at base.
void KernelEmitter::each(const a64::Gp& base, int n, const std::function<void(const a64::Gp&)>& f) {
  if (n == 1) return f(base);
  const a64::Gp at = cc_.newIntPtr(), end = cc_.newIntPtr();
  const asmjit::Label top = cc_.newLabel();
  cc_.mov(at, base);
  cc_.add(end, base, 8 * n);
  cc_.bind(top);
  f(at);
  cc_.add(at, at, 8);
  cc_.cmp(at, end);
  cc_.b(CondCode::kNE, top);
}

void KernelEmitter::begin_accumulators(const Loop& l) {
  for (const Accumulator& a : l.accs) {
    AccState s{&a, form_of(a.type), cc_.newIntPtr(), {}, {}, {}};
    const int areas = is_position(a.op) ? 2 : a.block ? 3 : 1;
    cc_.loadAddressOf(s.base, cc_.newStack(uint32_t(8 * areas * a.lanes), 16));
    const loop::Cell first = loop::identity(a.op, a.type);
    const Value identity = constant(s.form, first.f, first.i);
    const a64::Gp nowhere = is_position(a.op) ? number(loop::kNoPosition) : a64::Gp();
    each(s.base, a.lanes, [&](const a64::Gp& at) {
      store_partial(s.form, at, identity);
      if (is_position(a.op)) cc_.str(nowhere, a64::ptr(at, s.positions()));
    });
    if (is_position(a.op)) s.count = number(0);
    if (a.block) s.left = number(a.block), s.first = number(1);
    accs_.push_back(s);
  }
}

void KernelEmitter::accumulate(const Inst& in) {
  const AccState& s = accumulator(in.arg);
  const int lanes = s.acc->lanes;
  a64::Gp at = s.base, lane;
  if (lanes > 1) {
    lane = cc_.newInt64(), at = cc_.newIntPtr();
    cc_.and_(lane, loop_regs_[size_t(open_.back()->id)], lanes - 1);
    cc_.add(at, s.base, lane, a64::lsl(3));
  }
  if (s.acc->block) {
    const asmjit::Label within = cc_.newLabel(), room = cc_.newLabel();
    if (lanes > 1) cc_.cbnz(lane, within);
    cc_.cbnz(s.left, room);
    end_block(s);
    cc_.bind(room);
    cc_.sub(s.left, s.left, 1);
    cc_.bind(within);
  }
  if (!is_position(s.acc->op)) return combine(s, at, value(in.a), a64::Gp());
  combine_position(s, at, value(in.a), s.count);
  cc_.add(s.count, s.count, 1);
}

// Combines x into the partial result at `at`.
void KernelEmitter::combine(const AccState& s, const a64::Gp& at, const Value& x, const a64::Gp& position) {
  const Value p = load_partial(s.form, at);
  const auto take = [&](Op op) { store_partial(s.form, at, arithmetic(op, s.form, p, x)); };
  switch (s.acc->op) {
    case RedOp::kSum: return take(Op::kAdd);
    case RedOp::kProd: return take(Op::kMul);
    case RedOp::kMax: return take(Op::kMax);
    case RedOp::kMin: return take(Op::kMin);
    case RedOp::kAny: return take(Op::kOr);
    case RedOp::kAll: return take(Op::kAnd);
    default: combine_position(s, at, x, position);
  }
}

// Combines (x, position) into a partial result. NaN is before all, then the greater (less) value, then the first.
void KernelEmitter::combine_position(const AccState& s, const a64::Gp& at, const Value& x, const a64::Gp& position) {
  const Value p = load_partial(s.form, at);
  const a64::Gp before = cc_.newInt64();
  cc_.ldr(before, a64::ptr(at, s.positions()));
  Mask better{compare(s.acc->op == RedOp::kArgMax ? Op::kGt : Op::kLt, s.form, x, p)};
  Mask same{compare(Op::kEq, s.form, x, p)};
  if (is_real(s.form)) {
    const Mask nan{compare(Op::kNe, s.form, x, x)}, old_nan{compare(Op::kNe, s.form, p, p)};
    better = better | (nan & !old_nan);
    same = same | (nan & old_nan);
  }
  cc_.cmp(position, before);
  const Mask first = set_if(CondCode::kLT);
  better = better | (same & first);
  cc_.cmp(better.reg, 0);
  store_partial(s.form, at, select(s.form, CondCode::kNE, x, p));
  cc_.cmp(better.reg, 0);
  cc_.str(choose(CondCode::kNE, position, before), a64::ptr(at, s.positions()));
}

// Adds each partial result to the sum of its blocks and sets it to 0.
void KernelEmitter::end_block(const AccState& s) {
  const asmjit::Label later = cc_.newLabel(), done = cc_.newLabel();
  const Value zero = constant(s.form, 0, 0);
  cc_.cbz(s.first, later);
  each(s.base, s.acc->lanes, [&](const a64::Gp& at) {
    store_partial(s.form, at, load_partial(s.form, at), s.sums());
    store_partial(s.form, at, zero, s.rests());
    store_partial(s.form, at, zero);
  });
  cc_.b(done);
  cc_.bind(later);
  each(s.base, s.acc->lanes, [&](const a64::Gp& at) {
    const Value p = load_partial(s.form, at), old = load_partial(s.form, at, s.sums());
    const Value sum = arithmetic(Op::kAdd, s.form, old, p);
    const Value lost = arithmetic(Op::kSub, s.form, p, arithmetic(Op::kSub, s.form, sum, old));
    const Value rest = arithmetic(Op::kAdd, s.form, load_partial(s.form, at, s.rests()), lost);
    store_partial(s.form, at, rest, s.rests());
    store_partial(s.form, at, sum, s.sums());
    store_partial(s.form, at, zero);
  });
  cc_.bind(done);
  cc_.mov(s.first, number(0));
  cc_.mov(s.left, number(s.acc->block));
}

// Replaces the partial results by the sums of their blocks. A single block is the partial result itself.
void KernelEmitter::add_blocks(const AccState& s) {
  const asmjit::Label single = cc_.newLabel();
  cc_.cbnz(s.first, single);
  end_block(s);
  each(s.base, s.acc->lanes, [&](const a64::Gp& at) {
    const Value sum = load_partial(s.form, at, s.sums()), rest = load_partial(s.form, at, s.rests());
    const Value both = arithmetic(Op::kAdd, s.form, sum, rest);
    const a64::Gp exact = compare(Op::kEq, s.form, rest, rest);
    cc_.cmp(exact, 0);
    store_partial(s.form, at, select(s.form, CondCode::kNE, both, sum));
  });
  cc_.bind(single);
}

void KernelEmitter::finish_accumulators(const Loop& l) {
  const size_t begin = accs_.size() - l.accs.size();
  for (size_t i = begin; i < accs_.size(); i++) {
    const AccState& s = accs_[i];
    const Accumulator& a = *s.acc;
    if (a.block) add_blocks(s);
    for (int w = a.lanes / 2; w >= 1; w /= 2) {
      each(s.base, w, [&](const a64::Gp& at) {
        a64::Gp position;
        if (is_position(a.op)) {
          position = cc_.newInt64();
          cc_.ldr(position, a64::ptr(at, 8 * w + s.positions()));
        }
        combine(s, at, load_partial(s.form, at, 8 * w), position);
      });
    }
    const bool position = is_position(a.op);
    const Form f = position ? Form::kI64 : s.form;
    values_[size_t(a.id)] = load_partial(f, s.base, position ? s.positions() : 0);
    forms_[size_t(a.id)] = f;
  }
  accs_.resize(begin);
}

}  // namespace lutra::arm64
