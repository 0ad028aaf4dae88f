// Runs a decoded kernel: one flat array of steps; loops are ranges of it.
#include "jit/loop/interp.h"

#include "jit/loop/abi.h"
#include "jit/loop/interp_ops.h"
#include "jit/loop/look.h"

namespace lutra::loop {

struct DecodedKernel::DecodedInst {
  Op op = Op::kCount;                              // kCount: a loop
  DType type = DType::kNone, from = DType::kNone;  // from: of operand a
  int32_t loop = -1;                               // index into loops_, for loops and kAccum (the loop that declares)
  int32_t acc = -1;                                // kAccum: which of its accumulators
  int32_t lane = -1;                               // kAccum: id of the lanes loop
  Inst inst;
};

struct DecodedKernel::DecodedLoop {
  int32_t id;
  Coef size;
  bool parallel;  // parallel and outermost
  std::vector<Accumulator> accs;
  size_t begin = 0, end = 0;  // the body's steps; the step after the loop is `end`
};

DecodedKernel::~DecodedKernel() = default;

DecodedKernel::DecodedKernel(const Kernel& k)
    : params_(k.params.size()), ints_(size_t(k.ints)), values_(size_t(k.values)), loop_ids_(size_t(k.loops)) {
  types_.assign(values_, DType::kNone);
  decode(k.body);
}

void DecodedKernel::decode(const std::vector<Stmt>& body) {
  for (const Stmt& s : body) {
    DecodedInst step;
    if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s)) {
      const Loop& loop = **l;
      step.loop = int32_t(loops_.size());
      loops_.push_back({loop.id, loop.size, loop.parallel && loops_.empty(), loop.accs});
      const size_t at = loops_.size() - 1;
      for (const Accumulator& a : loop.accs) {
        types_[size_t(a.id)] = is_position(a.op) ? DType::kInt64 : a.type;
      }
      steps_.push_back(step);
      const size_t begin = steps_.size();
      decode(loop.body);
      loops_[at].begin = begin, loops_[at].end = steps_.size();
      for (size_t i = begin; i < steps_.size(); i++) {
        if (steps_[i].op == Op::kAccum && steps_[i].lane < 0) steps_[i].lane = loop.id;
        if (steps_[i].op != Op::kAccum || steps_[i].loop >= 0) continue;
        for (size_t a = 0; a < loop.accs.size(); a++) {
          if (loop.accs[a].id == steps_[i].inst.arg) steps_[i].loop = int32_t(at), steps_[i].acc = int32_t(a);
        }
      }
    } else {
      step.inst = std::get<Inst>(s);
      step.op = step.inst.op, step.type = step.inst.type;
      step.from = step.inst.a >= 0 ? types_[size_t(step.inst.a)] : DType::kNone;
      if (step.inst.id >= 0) types_[size_t(step.inst.id)] = step.type;
      steps_.push_back(step);
    }
  }
}

namespace {

// The compensated sum of a partial's earlier blocks: the sum, and what was rounded off it.
struct Blocks {
  Cell sum, rest;
};

struct AccState {
  std::vector<Partial> partial;  // one for each lane
  int64_t count = 0;
  std::vector<Blocks> blocks;  // one for each lane; for sums in blocks
  int32_t left = 0;            // remaining feeds of this block
  bool first = true;           // no block is complete
};

template <bool kWide>
void add_block(DType t, Blocks& b, const Cell& p, bool first) {
  if (first) {
    b = {p, Cell{}};
    return;
  }
  const auto add = [t](const Cell& x, const Cell& y) { return arithmetic<kWide>(Op::kAdd, t, x, y); };
  const auto sub = [t](const Cell& x, const Cell& y) { return arithmetic<kWide>(Op::kSub, t, x, y); };
  const Cell sum = add(b.sum, p);
  b.rest = add(b.rest, sub(p, sub(sum, b.sum)));
  b.sum = sum;
}

template <bool kWide>
class KernelRun {
 public:
  KernelRun(const std::vector<DecodedKernel::DecodedInst>& steps, const std::vector<DecodedKernel::DecodedLoop>& loops,
            void* block, size_t params, size_t ints, size_t values, size_t loop_ids, int look_after)
      : steps_(steps),
        loops_(loops),
        look_after_(look_after),
        head_(*static_cast<BlockHead*>(block)),
        values_(values),
        index_(loop_ids) {
    char* p = static_cast<char*>(block) + sizeof(BlockHead);
    pointers_ = reinterpret_cast<char**>(p);
    ints_ = reinterpret_cast<const int64_t*>(p + 8 * params);
    scalars_ = reinterpret_cast<const double*>(p + 8 * (params + ints));
    states_.resize(loops.size());
    for (size_t i = 0; i < loops.size(); i++) {
      for (const Accumulator& a : loops[i].accs) {
        states_[i].push_back({std::vector<Partial>(size_t(a.lanes))});
        if (a.block) states_[i].back().blocks.resize(size_t(a.lanes));
      }
    }
  }

  // Returns false if a check has failed or the kernel shall stop.
  bool body(size_t at, size_t end) {
    while (at < end) {
      const DecodedKernel::DecodedInst& s = steps_[at];
      if (s.op == Op::kCount) {
        if (!loop(size_t(s.loop))) return false;
        at = loops_[size_t(s.loop)].end;
      } else {
        if (!step(s)) return false;
        at++;
      }
    }
    return true;
  }

 private:
  int64_t coef(const Coef& c) const { return c.arg >= 0 ? ints_[c.arg] : c.literal; }
  Cell& value(int32_t id) { return values_[size_t(id)]; }

  bool loop(size_t n) {
    const DecodedKernel::DecodedLoop& l = loops_[n];
    for (size_t a = 0; a < l.accs.size(); a++) {
      AccState& s = states_[n][a];
      s.count = 0, s.left = l.accs[a].block, s.first = true;
      for (int j = 0; j < l.accs[a].lanes; j++) s.partial[size_t(j)] = {identity(l.accs[a].op, l.accs[a].type)};
    }
    const int64_t begin = l.parallel ? head_.begin : 0, end = l.parallel ? head_.end : coef(l.size);
    for (int64_t i = begin; i < end; i++) {
      index_[size_t(l.id)] = i;
      if (!body(l.begin, l.end)) return false;
      if (look_after_ && ++iterations_ % look_after_ == 0 && look_in_kernel()) return false;
    }
    for (size_t a = 0; a < l.accs.size(); a++) {
      const Accumulator& acc = l.accs[a];
      auto& p = states_[n][a].partial;
      if (acc.block) add_blocks(acc, states_[n][a]);
      for (int w = acc.lanes / 2; w >= 1; w /= 2) {
        for (int j = 0; j < w; j++) combine<kWide>(acc.op, acc.type, p[size_t(j)], p[size_t(j + w)]);
      }
      if (is_position(acc.op))
        value(acc.id).i = p[0].position;
      else
        value(acc.id) = p[0].value;
    }
    return true;
  }

  // Ends the block of each partial.
  void end_block(const Accumulator& acc, AccState& s) {
    for (size_t j = 0; j < s.partial.size(); j++) {
      add_block<kWide>(acc.type, s.blocks[j], s.partial[j].value, s.first);
      s.partial[j] = {identity(acc.op, acc.type)};
    }
    s.first = false, s.left = acc.block;
  }

  // Replaces the partials by the sums of their blocks.
  void add_blocks(const Accumulator& acc, AccState& s) {
    if (s.first) return;
    end_block(acc, s);
    for (size_t j = 0; j < s.partial.size(); j++) {
      const Blocks& b = s.blocks[j];
      const bool exact = b.rest.f == b.rest.f;
      s.partial[j].value = exact ? arithmetic<kWide>(Op::kAdd, acc.type, b.sum, b.rest) : b.sum;
    }
  }

  char* address(const Inst& in) {
    const Access& a = in.access;
    int64_t at = coef(a.offset);
    for (const Access::Term& t : a.terms) {
      at += (t.is_value ? value(t.id).i : index_[size_t(t.id)]) * coef(t.stride);
    }
    return pointers_[a.ptr] + at * int64_t(size_of(in.type));
  }

  void accumulate(const DecodedKernel::DecodedInst& s) {
    const Accumulator& acc = loops_[size_t(s.loop)].accs[size_t(s.acc)];
    AccState& state = states_[size_t(s.loop)][size_t(s.acc)];
    const size_t lane = acc.lanes > 1 ? size_t(index_[size_t(s.lane)] & (acc.lanes - 1)) : 0;
    if (acc.block && lane == 0) {
      if (state.left == 0) end_block(acc, state);
      state.left--;
    }
    combine<kWide>(acc.op, acc.type, state.partial[lane], {value(s.inst.a), state.count++});
  }

  bool check(const Inst& in) {
    const int64_t v = value(in.a).i;
    if (v >= 0 && v < ints_[in.arg]) return true;
    if (head_.fault && !__atomic_exchange_n(&head_.fault->set, 1, __ATOMIC_RELAXED)) {
      head_.fault->arg = in.arg, head_.fault->index = v;
    }
    return false;
  }

  bool step(const DecodedKernel::DecodedInst& s) {
    const Inst& in = s.inst;
    switch (s.op) {
      case Op::kConst:
        if (is_float(s.type))
          value(in.id).f = round_to<kWide>(s.type, in.imm);
        else
          value(in.id).i = wrap(s.type, in.iimm);
        return true;
      case Op::kScalar: {
        Cell c;
        c.f = scalars_[in.arg];
        value(in.id) = cast<kWide>(DType::kFloat64, s.type, c);
        return true;
      }
      case Op::kIntArg: value(in.id).i = ints_[in.arg]; return true;
      case Op::kIndex: value(in.id).i = index_[size_t(in.arg)]; return true;
      case Op::kLoad: value(in.id) = load(s.type, address(in)); return true;
      case Op::kStore: store(s.type, address(in), value(in.a)); return true;
      case Op::kStoreAdd: {
        char* p = address(in);
        store(s.type, p, arithmetic<kWide>(Op::kAdd, s.type, load(s.type, p), value(in.a)));
        return true;
      }
      case Op::kAccum: accumulate(s); return true;
      case Op::kCheck: return check(in);
      case Op::kSelect: value(in.id) = value(value(in.a).i ? in.b : in.c); return true;
      case Op::kCast: value(in.id) = cast<kWide>(s.from, s.type, value(in.a)); return true;
      default: break;
    }
    const OpInfo& op = info(s.op);
    if (op.rule == TypeRule::kRandom) {
      value(in.id) = random<kWide>(s.op, s.type, value(in.a).i, head_.call + uint64_t(in.arg), head_.seed);
    } else if (op.rule == TypeRule::kCompare) {
      const Cell a = value(in.a), b = value(in.b);
      value(in.id).i = is_float(s.from) ? compare(s.op, a.f, b.f) : compare(s.op, a.i, b.i);
    } else {
      value(in.id) = arithmetic<kWide>(s.op, s.type, value(in.a), op.operands > 1 ? value(in.b) : Cell{});
    }
    return true;
  }

  const std::vector<DecodedKernel::DecodedInst>& steps_;
  const std::vector<DecodedKernel::DecodedLoop>& loops_;
  const int64_t look_after_;
  int64_t iterations_ = 0;
  const BlockHead& head_;
  char** pointers_;
  const int64_t* ints_;
  const double* scalars_;
  std::vector<Cell> values_;
  std::vector<int64_t> index_;
  std::vector<std::vector<AccState>> states_;
};

}  // namespace

void DecodedKernel::run(void* block, bool wide, int look_after) const {
  if (wide)
    KernelRun<true>(steps_, loops_, block, params_, ints_, values_, loop_ids_, look_after).body(0, steps_.size());
  else
    KernelRun<false>(steps_, loops_, block, params_, ints_, values_, loop_ids_, look_after).body(0, steps_.size());
}

void interpret(const Kernel& k, void* block, bool wide) { DecodedKernel(k).run(block, wide); }

}  // namespace lutra::loop
