// Random kernels from a seed: nests of all loop modes over random instructions, accesses and reductions.
#pragma once
#include "tests/codegen/support.h"

namespace lutra {

inline const DType kRandomTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt64,   DType::kInt32,
                                     DType::kUInt8,   DType::kBool,    DType::kFloat32, DType::kFloat32,
                                     DType::kInt16,   DType::kInt8,    DType::kFloat16, DType::kBFloat16};

// Makes a verified kernel and arguments that keep every access within its buffer.
// gpu: with what only kernels for GPUs have: more lanes, lanes loops in vector loops, nested parallel loops.
class KernelGenerator {
  using Access = loop::Access;
  using Accumulator = loop::Accumulator;
  using Coef = loop::Coef;
  using Inst = loop::Inst;
  using Kernel = loop::Kernel;
  using Loop = loop::Loop;
  using LoopMode = loop::LoopMode;
  using Op = loop::Op;
  using RedOp = loop::RedOp;

 public:
  explicit KernelGenerator(uint64_t seed, bool gpu = false) : rng_(seed), gpu_(gpu) {
    k_.name = "random";
    heavy_ = seed % 10 == 0;  // many live values: the register allocator spills
    visible_.resize(size_t(DType::kNone));
  }

  Case run() {
    const int64_t n = size();
    const int kind = pick(4);
    auto top = std::make_unique<Loop>();
    open(*top, n);
    top->parallel = pick(2);
    std::unique_ptr<Loop> nested;
    Loop* body = top.get();
    if (gpu_ && pick(3) == 0) {
      top->parallel = true;
      if (pick(2)) elementwise(*top, pick(3));
      nested = std::make_unique<Loop>();
      open(*nested, size());
      nested->parallel = true;
      body = nested.get();
    }
    if (kind == 0) {
      body->mode = LoopMode::kVector;
      columns_ = gpu_ && pick(2);
      elementwise(*body, 2 + pick(8));
      if (columns_ || pick(2)) reduce(*body, columns_);
      store(*body);
    } else {
      elementwise(*body, pick(4));
      const int parts = 1 + pick(3);
      for (int i = 0; i < parts; i++) part(*body);
      store(*body);
    }
    end_ = n;
    if (nested) {
      close(*nested);
      top->body.push_back(std::move(nested));
    }
    close(*top);
    k_.body.push_back(std::move(top));
    Case c(std::move(k_));
    for (size_t i = 0; i < c.kernel.params.size(); i++) c.buffer(c.kernel.params[i].type, size_t(spans_[i]));
    c.ints = ints_;
    c.scalars = scalars_;
    c.kernel.ints = int32_t(ints_.size());
    c.kernel.scalars = int32_t(scalars_.size());
    c.begin = 0, c.end = end_;
    std::uniform_real_distribution<double> chance(0, 1);
    c.fill_all(rng_(), chance(rng_) < 0.5 ? 0.0 : 0.15);
    return c;
  }

 private:
  int pick(int n) { return int(rng_() % uint64_t(n)); }
  int64_t size() {
    static const int64_t kSizes[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 40, 64, 67, 130};
    return kSizes[pick(16)];
  }
  int32_t int_arg(int64_t v) {
    ints_.push_back(v);
    return int32_t(ints_.size()) - 1;
  }

  struct Scope {
    std::vector<std::vector<int32_t>> visible;
  };
  void open(Loop& l, int64_t n) {
    l.id = k_.loops++;
    l.size = Coef::of_arg(int_arg(n));
    loops_.push_back({l.id, n});
    saved_.push_back(visible_);
  }
  void close(Loop&) {
    loops_.pop_back();
    visible_ = saved_.back();
    saved_.pop_back();
  }
  int32_t define(Loop& l, Inst in) {
    in.id = k_.values++;
    visible_[size_t(in.type)].push_back(in.id);
    l.body.push_back(in);
    return in.id;
  }
  static Inst make(Op op, DType t, int32_t a = -1, int32_t b = -1, int32_t c = -1, int32_t arg = -1) {
    Inst i{};
    i.op = op, i.type = t, i.a = a, i.b = b, i.c = c, i.arg = arg;
    return i;
  }

  // An index into a parameter of its own, with strides of every class.
  Access access(DType t, bool written, bool injective) {
    Access a;
    a.ptr = int32_t(k_.params.size());
    k_.params.push_back({t, written});
    int64_t low = 0, high = 0, dense = 1;
    for (size_t i = loops_.size(); i-- > 0;) {
      const auto [id, n] = loops_[i];
      Access::Term term;
      term.id = id;
      int64_t stride;
      if (injective) {
        stride = dense * (1 + (pick(4) == 0));
        dense = stride * std::max<int64_t>(n, 1);
      } else {
        static const int64_t kStrides[] = {1, 1, 1, 0, 2, 3, -1, 5};
        stride = kStrides[pick(8)];
        if (stride == 0 && pick(2)) continue;
      }
      const bool literal = (stride == 1 || stride == 0) && pick(4);
      term.stride = literal ? Coef::of(stride) : Coef::of_arg(int_arg(stride));
      const int64_t reach = stride * std::max<int64_t>(n - 1, 0);
      (reach < 0 ? low : high) += reach;
      a.terms.push_back(term);
    }
    if (!injective && !visible_[size_t(DType::kInt64)].empty() && pick(4) == 0) {
      const int64_t n = 1 + pick(9), stride = 1 + pick(3);
      pending_index_ = {int_arg(n), Coef::of_arg(int_arg(stride))};
      high += (n - 1) * stride;
      gathered_ = true;
    }
    if (low != 0 || pick(6) == 0) {
      const int64_t offset = -low + pick(3);
      a.offset = Coef::of_arg(int_arg(offset));
      high += offset;
    }
    spans_.push_back(high + 1);
    return a;
  }

  int32_t load(Loop& l, DType t) {
    gathered_ = false;
    Inst in = make(Op::kLoad, t);
    in.access = access(t, false, false);
    if (gathered_) {
      const auto& ids = visible_[size_t(DType::kInt64)];
      const int32_t v = ids[size_t(pick(int(ids.size())))];
      const int32_t n = define(l, make(Op::kIntArg, DType::kInt64, -1, -1, -1, pending_index_.first));
      const int32_t at = define(l, make(Op::kRem, DType::kInt64, v, n));
      l.body.push_back(make(Op::kCheck, DType::kInt64, at, -1, -1, pending_index_.first));
      in.access.terms.push_back({true, at, pending_index_.second});
    }
    return define(l, in);
  }

  int32_t value(Loop& l, DType t) {
    auto& ids = visible_[size_t(t)];
    if (!ids.empty() && pick(4)) return ids[size_t(pick(int(ids.size())))];
    switch (pick(6)) {
      case 0: {
        Inst c = make(Op::kConst, t);
        c.imm = pick(9) - 4, c.iimm = t == DType::kBool ? pick(2) : pick(9) - 4;
        return define(l, c);
      }
      case 1:
        if (t == DType::kInt64)
          return define(l, make(Op::kIndex, t, -1, -1, -1, loops_[size_t(pick(int(loops_.size())))].first));
        scalars_.push_back(pick(100) * 0.37 - 18);
        return define(l, make(Op::kScalar, t, -1, -1, -1, int32_t(scalars_.size()) - 1));
      case 2: {
        std::vector<DType> from;
        for (DType f : kRandomTypes) {
          if (!visible_[size_t(f)].empty()) from.push_back(f);
        }
        if (!from.empty()) {
          const auto& source = visible_[size_t(from[size_t(pick(int(from.size())))])];
          return define(l, make(Op::kCast, t, source[size_t(pick(int(source.size())))]));
        }
        return load(l, t);
      }
      default: return load(l, t);
    }
  }

  void elementwise(Loop& l, int count) {
    if (heavy_) count *= 30;
    for (int i = 0; i < count; i++) {
      const Op op = Op(pick(int(Op::kCount)));
      const DType t = kRandomTypes[pick(int(std::size(kRandomTypes)))];
      const loop::OpInfo& row = loop::info(op);
      if (row.rule == loop::TypeRule::kSame && loop::accepts(row.types, t)) {
        const int32_t a = value(l, t), b = row.operands > 1 ? value(l, t) : -1;
        define(l, make(op, t, a, b));
      } else if (row.rule == loop::TypeRule::kCompare && loop::accepts(row.types, t)) {
        const int32_t a = value(l, t), b = value(l, t);
        define(l, make(op, DType::kBool, a, b));
      } else if (row.rule == loop::TypeRule::kSelect) {
        const int32_t a = value(l, DType::kBool), b = value(l, t), c = value(l, t);
        define(l, make(op, t, a, b, c));
      } else if (row.rule == loop::TypeRule::kRandom && pick(3) == 0) {
        const DType r = op == Op::kRandBits ? DType::kInt64 : pick(2) ? DType::kFloat32 : DType::kFloat64;
        define(l, make(op, r, value(l, DType::kInt64), -1, -1, pick(3)));
      } else {
        value(l, t);
      }
    }
  }

  // Heavy kernels store everything there is, so all of it stays alive.
  void store(Loop& l) {
    const DType t = kRandomTypes[pick(int(std::size(kRandomTypes)))];
    int32_t v = value(l, t);
    if (heavy_) {
      const std::vector<int32_t> all = visible_[size_t(t)];
      for (int32_t other : all) v = define(l, make(t == DType::kBool ? Op::kXor : Op::kAdd, t, v, other));
    }
    Inst in = make(Op::kStore, t, v);
    in.access = access(t, true, true);
    l.body.push_back(in);
  }

  void part(Loop& l) {
    if (pick(2)) {
      reduce(l, true);
      return;
    }
    auto inner = std::make_unique<Loop>();
    inner->mode = pick(4) ? LoopMode::kVector : LoopMode::kSerial;
    open(*inner, size());
    elementwise(*inner, 1 + pick(6));
    if (pick(3) == 0) reduce(*inner, false);
    store(*inner);
    if (inner->mode == LoopMode::kSerial && pick(2)) store_add(*inner);
    close(*inner);
    l.body.push_back(std::move(inner));
  }

  void store_add(Loop& l) {
    const DType t = kRandomTypes[pick(int(std::size(kRandomTypes)))];
    if (t == DType::kBool) return;
    const int32_t v = value(l, t);
    Inst in = make(Op::kStoreAdd, t, v);
    in.access = access(t, true, false);
    k_.params[size_t(in.access.ptr)].written = true;
    l.body.push_back(in);
  }

  // A reduction within l: a serial loop, or (lanes allowed) a lanes loop, maybe in an outer serial one that declares.
  void reduce(Loop& l, bool lanes_allowed) {
    const bool lanes = lanes_allowed && pick(4), nested = pick(3) == 0;
    auto outer = std::make_unique<Loop>(), inner = std::make_unique<Loop>();
    const int32_t width = !lanes ? 1 : columns_ ? 32 : gpu_ && pick(2) ? 1024 : 2 << pick(6);
    std::vector<Accumulator> accs;
    for (int i = 0, n = 1 + pick(3); i < n; i++) {
      Accumulator a;
      a.op = RedOp(pick(8));
      a.type = kRandomTypes[pick(int(std::size(kRandomTypes)))];
      const bool logic = a.op == RedOp::kAny || a.op == RedOp::kAll;
      if (logic) a.type = DType::kBool;
      if (!logic && a.type == DType::kBool) a.type = DType::kFloat32;
      a.id = k_.values++;
      a.lanes = width;
      const bool sum = a.op == RedOp::kSum && (a.type == DType::kFloat32 || a.type == DType::kFloat64);
      if (sum && !gpu_ && pick(2)) a.block = 1 + pick(4);
      accs.push_back(a);
    }
    if (nested) open(*outer, pick(4));
    open(*inner, size());
    inner->mode = lanes ? LoopMode::kLanes : LoopMode::kSerial;
    elementwise(*inner, pick(4));
    for (const Accumulator& a : accs) {
      const int32_t v = value(*inner, a.type);
      inner->body.push_back(make(Op::kAccum, a.type, v, -1, -1, a.id));
    }
    close(*inner);
    Loop* declares = nested ? outer.get() : inner.get();
    declares->accs = accs;
    if (nested) {
      outer->body.push_back(std::move(inner));
      close(*outer);
      l.body.push_back(std::move(outer));
    } else {
      l.body.push_back(std::move(inner));
    }
    for (const Accumulator& a : accs) {
      const bool position = a.op == RedOp::kArgMax || a.op == RedOp::kArgMin;
      visible_[size_t(position ? DType::kInt64 : a.type)].push_back(a.id);
    }
  }

  std::mt19937_64 rng_;
  Kernel k_;
  std::vector<std::vector<int32_t>> visible_;
  std::vector<std::vector<std::vector<int32_t>>> saved_;
  std::vector<std::pair<int32_t, int64_t>> loops_;
  std::vector<int64_t> ints_, spans_;
  std::vector<double> scalars_;
  std::pair<int32_t, Coef> pending_index_;
  bool gathered_ = false, heavy_ = false, columns_ = false;
  const bool gpu_;
  int64_t end_ = 0;
};

}  // namespace lutra
