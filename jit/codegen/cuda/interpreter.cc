// Writes kernels as programs, and makes the interpreter's source. device/interpreter.cuh reads the programs and
// describes their instructions.
#include "jit/codegen/cuda/interpreter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "jit/codegen/cuda/analysis.h"
#include "jit/codegen/cuda/device_text.h"
#include "ops/core/error.h"
#include "ops/core/half.h"

namespace lutra::cuda {

using namespace loop;

namespace {

constexpr size_t kHeadWords = sizeof(BlockHead) / 8, kMaxSharedBytes = 48 * 1024;
constexpr size_t kArgAbove = 128;
constexpr uint64_t kPositionNone = 0x7fffffffffffffffull;

// Instructions besides loop IR's own.
// clang-format off
#define LUTRA_INTERPRETER_EXTRA(X)                                                                    \
  X(kEnd) X(kWithin) X(kLoop) X(kNext) X(kShare) X(kShareNext) X(kArgStep) X(kAdvance) X(kFill) X(kFold) \
  X(kFeed) X(kFeedLanes) X(kOfBlocks) X(kLanesOfBlocks)
// clang-format on
#define X(e) e,
enum Extra : uint8_t { kExtraBegin = uint8_t(Op::kCount), LUTRA_INTERPRETER_EXTRA(X) };
#undef X

uint64_t float_word(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}
uint64_t double_word(double d) {
  uint64_t bits;
  std::memcpy(&bits, &d, 8);
  return bits;
}

// Returns the initial value of a reduction, as a register holds it.
uint64_t identity(RedOp op, DType t) {
  const auto number = [&](double d) {
    return t == DType::kFloat64 ? double_word(d) : is_float(t) ? float_word(float(d)) : uint64_t(int64_t(d));
  };
  switch (op) {
    case RedOp::kSum: return number(0);
    case RedOp::kProd: return number(1);
    case RedOp::kAny: return 0;
    case RedOp::kAll: return 1;
    case RedOp::kMax:
    case RedOp::kArgMax: return is_float(t) ? number(-INFINITY) : uint64_t(least_integer(t));
    default: return is_float(t) ? number(INFINITY) : uint64_t(greatest_integer(t));
  }
}

Op combine(RedOp op) {
  switch (op) {
    case RedOp::kSum: return Op::kAdd;
    case RedOp::kProd: return Op::kMul;
    case RedOp::kMax: return Op::kMax;
    case RedOp::kMin: return Op::kMin;
    case RedOp::kAny: return Op::kOr;
    default: return Op::kAnd;
  }
}

}  // namespace

std::string interpreter_source() {
  std::string names;
#define X(e, ...) names += #e ", ";
  LUTRA_LOOP_OPS(X)
#undef X
#define X(e) names += ", " #e;
  names += "kCount";
  LUTRA_INTERPRETER_EXTRA(X)
#undef X
  std::string types;
#define X(e, ...) types += #e ", ";
  LUTRA_DTYPES(X)
#undef X
  return str(device_scalars, device_math, loop_math, loop_functions, device_random, device_reduce, "enum { ", names,
             " };\nenum { ", types, "};\nenum { kWords = ", kInterpreterWords, ", kArgAbove = ", kArgAbove, " };\n",
             device_interpreter);
}

// Writes the program of a kernel. fits() returns false if it is too large for the interpreter.
class Encoder {
 public:
  Encoder(const Kernel& k, std::span<const int64_t> hints, const Machine& machine, Interpreted& out)
      : k_(k),
        m_(map_kernel(k, hints, machine)),
        o_(out),
        value_(size_t(k.values), -1),
        loop_(size_t(k.loops), -1),
        types_(size_t(k.values), DType::kNone),
        accs_(size_t(k.values)) {}

  bool run();

 private:
  struct Acc {
    const Accumulator* a = nullptr;
    int first = 0;  // register, or word of the partial results; those of earlier blocks follow
    int counter = -1;
    int left = -1;  // register with the remaining feeds of the block
  };
  int fresh() { return registers_++; }
  int of(int32_t value) const { return value_[size_t(value)]; }
  size_t arg(int32_t n) const { return 1 + kHeadWords + k_.params.size() + size_t(n); }
  size_t pointer(int32_t p) const { return 1 + kHeadWords + size_t(p); }
  size_t coef(const Coef& c);
  void emit(int op, DType type, int dst, size_t a = 0, size_t b = 0) {
    code_.push_back(uint64_t(op) | uint64_t(type) << 8 | uint64_t(uint16_t(dst)) << 16 | uint64_t(uint16_t(a)) << 32 |
                    uint64_t(b) << 48);
  }
  void emit_access(const Inst& in, int reg);
  void inst(const Inst& in);
  void accum(const Inst& in);
  void body(const std::vector<Stmt>& stmts, int work);
  void loop(const Loop& l, int work);
  void declare(const Loop& l);
  void finish(const Loop& l);

  const Kernel& k_;
  const Mapping m_;
  Interpreted& o_;
  std::vector<int> value_, loop_;  // registers
  std::vector<DType> types_;
  std::vector<Acc> accs_;
  std::vector<uint64_t> code_;
  std::vector<size_t> jumps_;  // indices of words of code_ that are positions in it
  std::map<int64_t, size_t> literals_;
  int registers_ = 0, partials_ = 0, most_partials_ = 0;
  const Loop* shared_ = nullptr;
  bool known_ = true;  // every instruction so far is one that the interpreter has
};

// Returns the word of a coefficient. Literals are stored after the code; until that is written, they are numbered down
// from the last word.
size_t Encoder::coef(const Coef& c) {
  if (c.arg >= 0) return arg(c.arg);
  return literals_.emplace(c.literal, kInterpreterWords - 1 - literals_.size()).first->second;
}

void Encoder::emit_access(const Inst& in, int reg) {
  std::vector<uint64_t> terms;
  for (const Access::Term& t : in.access.terms) {
    if (t.stride == Coef::of(0)) continue;
    const int from = t.is_value ? of(t.id) : loop_[size_t(t.id)];
    terms.push_back(uint64_t(uint16_t(from)) | uint64_t(coef(t.stride)) << 16);
  }
  const bool alone = !m_.flat && !shared_ && in.op != Op::kLoad;
  emit(int(in.op), in.type, reg, pointer(in.access.ptr), terms.size() | size_t(alone) << 8);
  code_.push_back(coef(in.access.offset));
  code_.insert(code_.end(), terms.begin(), terms.end());
}

void Encoder::accum(const Inst& in) {
  const Acc& acc = accs_[size_t(in.arg)];
  const Accumulator& a = *acc.a;
  const bool most = a.op == RedOp::kArgMax;
  if (a.lanes == 1) {
    if (is_position(a.op)) return emit(kArgStep, a.type, acc.first, size_t(of(in.a)), most);
    if (a.block) emit(kFeed, a.type, acc.first, size_t(acc.left), size_t(a.block));
    return emit(int(combine(a.op)), a.type, acc.first, size_t(acc.first), size_t(of(in.a)));
  }
  known_ &= shared_ != nullptr;
  if (a.block) {
    emit(kFeedLanes, a.type, shared_ ? loop_[size_t(shared_->id)] : 0, size_t(acc.left), size_t(a.lanes));
    code_.push_back(uint64_t(acc.first));
    code_.push_back(uint64_t(a.block));
  }
  emit(int(Op::kAccum), a.type, shared_ ? loop_[size_t(shared_->id)] : 0, size_t(of(in.a)), size_t(a.lanes));
  code_.push_back(uint64_t(acc.first));
  code_.push_back(is_position(a.op) ? kArgAbove + size_t(acc.counter) * 2 + most : size_t(combine(a.op)));
}

void Encoder::inst(const Inst& in) {
  const OpInfo& row = info(in.op);
  if (in.id >= 0) types_[size_t(in.id)] = in.type;
  if (in.op == Op::kAccum) return accum(in);
  if (in.op == Op::kStore || in.op == Op::kStoreAdd) return emit_access(in, of(in.a));
  if (in.op == Op::kCheck) return emit(int(in.op), in.type, of(in.a), arg(in.arg), size_t(in.arg));
  // It is in a register already.
  if (in.op == Op::kIndex) return void(value_[size_t(in.id)] = loop_[size_t(in.arg)]);
  const int dst = value_[size_t(in.id)] = fresh();
  const size_t a = row.operands > 0 ? size_t(of(in.a)) : 0, b = row.operands > 1 ? size_t(of(in.b)) : 0;
  switch (in.op) {
    case Op::kLoad: return emit_access(in, dst);
    case Op::kConst: {
      const bool wide = in.type == DType::kFloat64;
      const float f = float(in.imm);
      const uint64_t word = wide                          ? double_word(in.imm)
                            : in.type == DType::kFloat16  ? float_word(half_to_float(float_to_half(f)))
                            : in.type == DType::kBFloat16 ? float_word(bfloat16_to_float(float_to_bfloat16(f)))
                                                          : float_word(f);
      emit(int(in.op), in.type, dst);
      return code_.push_back(is_float(in.type) ? word : uint64_t(in.iimm));
    }
    case Op::kScalar: return emit(int(in.op), in.type, dst, arg(k_.ints + in.arg));
    case Op::kIntArg: return emit(int(in.op), in.type, dst, arg(in.arg));
    case Op::kCast: return emit(int(in.op), in.type, dst, a, size_t(types_[size_t(in.a)]));
    case Op::kSelect: emit(int(in.op), in.type, dst, a, b); return code_.push_back(uint64_t(of(in.c)));
    default: break;
  }
  if (row.rule == TypeRule::kRandom) {
    emit(int(in.op), in.type, dst, a);
    return code_.push_back(uint64_t(in.arg));
  }
  emit(int(in.op), row.rule == TypeRule::kCompare ? types_[size_t(in.a)] : in.type, dst, a, b);
}

void Encoder::declare(const Loop& l) {
  for (const Accumulator& a : l.accs) {
    const bool logic = a.op == RedOp::kAny || a.op == RedOp::kAll;
    known_ &= logic == is_bool(a.type) && (!a.block || size_of(a.type) == 4);
    Acc acc{&a};
    const auto set = [&](int reg, DType type, uint64_t word) {
      emit(int(Op::kConst), type, reg);
      code_.push_back(word);
    };
    const auto fill = [&](int from, uint64_t word) {
      emit(kFill, a.type, 0, size_t(a.lanes), is_position(a.op));
      code_.push_back(word);
      code_.push_back(uint64_t(from));
    };
    if (a.lanes == 1) {
      acc.first = fresh();
      set(acc.first, a.type, identity(a.op, a.type));
      if (is_position(a.op)) set(fresh(), DType::kInt64, kPositionNone), set(fresh(), DType::kInt64, 0);
      if (a.block) set(fresh(), DType::kInt64, 0);
    } else {
      acc.first = partials_;
      partials_ += a.lanes * (is_position(a.op) || a.block ? 2 : 1);
      most_partials_ = std::max(most_partials_, partials_);
      if (is_position(a.op)) set(acc.counter = fresh(), DType::kInt64, 0);
      fill(acc.first, identity(a.op, a.type));
      if (a.block) fill(acc.first + a.lanes, 0);
    }
    if (a.block) set(acc.left = fresh(), DType::kInt64, uint64_t(a.block));
    accs_[size_t(a.id)] = acc;
    types_[size_t(a.id)] = is_position(a.op) ? DType::kInt64 : a.type;
  }
}

void Encoder::finish(const Loop& l) {
  for (const Accumulator& a : l.accs) {
    const Acc& acc = accs_[size_t(a.id)];
    value_[size_t(a.id)] = a.lanes > 1 ? fresh() : acc.first + (is_position(a.op) ? 1 : 0);
    if (a.block) emit(a.lanes > 1 ? kLanesOfBlocks : kOfBlocks, a.type, acc.first, size_t(a.lanes));
    if (a.lanes == 1) continue;
    emit(kFold, a.type, of(a.id), size_t(a.lanes));
    code_.push_back(uint64_t(acc.first));
    code_.push_back(is_position(a.op) ? kArgAbove + (a.op == RedOp::kArgMax) : size_t(combine(a.op)));
  }
}

void Encoder::loop(const Loop& l, int work) {
  const bool shares = !m_.flat && is_shared(l);
  const int lanes = l.mode == LoopMode::kLanes ? lanes_of(k_, l) : 0, turns = lanes ? std::min(lanes, 32) : 32;
  const int partials = partials_;
  declare(l);
  const int i = loop_[size_t(l.id)] = fresh();
  const size_t size = coef(l.size);
  emit(shares ? kShare : kLoop, DType::kInt64, i, size, shares ? size_t(turns) : 0);
  const size_t skip = code_.size();
  jumps_.push_back(skip);
  code_.push_back(0);
  if (shares) shared_ = &l;
  o_.work_.push_back({{l.size}, shares ? turns : 1, 0, work});
  body(l.body, int(o_.work_.size()) - 1);
  if (shares) shared_ = nullptr;
  emit(shares ? kShareNext : kNext, DType::kInt64, i, size, shares ? size_t(turns) : 0);
  jumps_.push_back(code_.size());
  code_.push_back(skip + 1);
  code_[skip] = code_.size();
  for (const Stmt& s : l.body) {  // several loops may feed one accumulator, so positions continue
    const Inst* in = std::get_if<Inst>(&s);
    if (in && in->op == Op::kAccum && accs_[size_t(in->arg)].counter >= 0)
      emit(kAdvance, DType::kInt64, accs_[size_t(in->arg)].counter, size);
  }
  finish(l);
  partials_ = partials;
}

void Encoder::body(const std::vector<Stmt>& stmts, int work) {
  for (const Stmt& s : stmts) {
    if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s)) {
      loop(**l, work);
    } else {
      inst(std::get<Inst>(s));
      o_.work_[size_t(work)].own++;
    }
  }
}

bool Encoder::run() {
  o_.flat_ = m_.flat, o_.checks_ = m_.prefix_checks;
  o_.block_words_ = kHeadWords + k_.params.size() + size_t(k_.ints + k_.scalars);
  o_.work_.push_back({{Coef::of(1)}, 1, 1, -1});
  std::vector<uint64_t> nest;
  for (const Loop* l : m_.nest) {
    const int i = loop_[size_t(l->id)] = fresh();
    nest.push_back(uint64_t(i) | uint64_t(coef(l->size)) << 16);
    o_.nest_.push_back({l->size});
  }
  for (const Inst* in : m_.prefix) inst(*in);
  for (size_t d = 0; m_.prefix_checks && d < m_.nest.size(); d++)
    emit(kWithin, DType::kInt64, loop_[size_t(m_.nest[d]->id)], coef(m_.nest[d]->size));
  body(*m_.body, 0);
  emit(kEnd, DType::kInt64, 0);
  const size_t first = 1 + o_.block_words_, begin = first + 1 + nest.size();
  if (!known_ || begin + code_.size() + literals_.size() > kInterpreterWords) return false;
  for (size_t j : jumps_) code_[j] += begin;
  o_.threads_ = m_.flat ? 128 : 32;
  const auto bytes = [&] { return 8 * (size_t(registers_) * o_.threads_ + size_t(most_partials_)); };
  while (o_.threads_ > 32 && bytes() > kMaxSharedBytes) o_.threads_ /= 2;
  if (bytes() > kMaxSharedBytes) return false;
  o_.shared_bytes_ = unsigned(bytes());
  o_.code_ = {nest.size() | uint64_t(m_.flat) << 8 | uint64_t(m_.prefix_checks) << 9 |
              uint64_t(size_t(registers_) * o_.threads_) << 16};
  o_.code_.insert(o_.code_.end(), nest.begin(), nest.end());
  o_.code_.insert(o_.code_.end(), code_.begin(), code_.end());
  o_.code_.resize(kInterpreterWords - first);
  for (const auto& [literal, at] : literals_) o_.code_[at - first] = uint64_t(literal);
  return true;
}

std::unique_ptr<Interpreted> Interpreted::make(const Kernel& kernel, std::span<const int64_t> hints,
                                               const Machine& machine) {
  auto made = std::make_unique<Interpreted>();
  return Encoder(kernel, hints, machine, *made).run() ? std::move(made) : nullptr;
}

bool Interpreted::grid(const int64_t* ints, Grid& out) const {
  int64_t total = 1;
  for (size_t d = 0; d < nest_.size(); d++) {
    const int64_t n = nest_[d].of(ints), size = checks_ && d > 0 ? std::max<int64_t>(n, 1) : n;
    if (size <= 0) return false;
    total *= size;
  }
  const int64_t blocks = flat_ ? (total + threads_ - 1) / threads_ : total;
  LUTRA_CHECK(blocks <= 0x7fffffff, "a launch of ", blocks, " blocks");
  out = {};
  out.blocks[0] = unsigned(blocks), out.threads[0] = threads_, out.shared_bytes = shared_bytes_;
  return true;
}

Interpreted::Cost Interpreted::cost(const int64_t* ints) const {
  std::vector<double> times(work_.size());
  Cost c;
  for (size_t i = 0; i < work_.size(); i++) {
    const Work& w = work_[i];
    times[i] = std::ceil(double(w.size.of(ints)) / w.threads) * (w.parent < 0 ? 1 : times[size_t(w.parent)]);
    c.thread += times[i] * (w.own + 1);
  }
  c.total = c.thread * (flat_ ? 1 : 32);
  for (const Size& n : nest_) c.total *= double(std::max<int64_t>(n.of(ints), 1));
  return c;
}

void Interpreted::fill(const void* block, uint64_t (&words)[kInterpreterWords]) const {
  words[0] = 1 + block_words_;
  std::memcpy(words + 1, block, 8 * block_words_);
  std::memcpy(words + 1 + block_words_, code_.data(), 8 * code_.size());
}

}  // namespace lutra::cuda
