// Builds hash-consed host expressions with hints, and records guards.
#include "ops/core/sym.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "ops/core/error.h"
#include "ops/core/sym_bounds.h"

namespace lutra {
namespace {

struct SymOpInfo {
  const char* text;
  bool number;
  int operands;
};
const SymOpInfo kOps[] = {
#define X(e, text, num, operands) {text, num, operands},
    LUTRA_SYM_OPS(X)
#undef X
};

struct SymCmpInfo {
  const char* text;
  int operands;
};
const SymCmpInfo kCmps[] = {
#define X(e, text, operands) {text, operands},
    LUTRA_SYM_CMPS(X)
#undef X
};

// Limits: factors of a product in canonical form, depth of a comparison of expressions, expressions printed as text.
constexpr unsigned kMaxFactors = 64;
constexpr int kMaxCompared = 256;
constexpr int kMaxPrinted = 200;

thread_local SymEnv* current_env = nullptr;

int64_t wrap_sub(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
int64_t wrap_mul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }

int64_t div_floor(int64_t a, int64_t b) {
  LUTRA_CHECK(b != 0, "division by zero");
  if (b == -1) return wrap_sub(0, a);
  int64_t q = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? q - 1 : q;
}
int64_t mod_floor(int64_t a, int64_t b) { return wrap_sub(a, wrap_mul(div_floor(a, b), b)); }

// INT64_MIN and INT64_MAX stand for values beyond them.
int64_t clamp(__int128 v) { return v < INT64_MIN ? INT64_MIN : v > INT64_MAX ? INT64_MAX : int64_t(v); }

bool is_commutative(SymOp op) {
  return op == SymOp::kAdd || op == SymOp::kMul || op == SymOp::kMin || op == SymOp::kMax;
}

uint64_t hash_of(const SymExpr& e) {
  uint64_t bits = 0;
  if (e.op == SymOp::kConstInt) bits = uint64_t(e.i);
  if (e.op == SymOp::kConstNum) std::memcpy(&bits, &e.d, 8);
  uint64_t h = uint64_t(e.op) * 0x9e3779b97f4a7c15u + uint64_t(uint32_t(e.a)) * 0xff51afd7ed558ccdu +
               uint64_t(uint32_t(e.b)) * 0xc4ceb9fe1a85ec53u + bits;
  return h ^ (h >> 29);
}

bool same(const SymExpr& x, const SymExpr& y) {
  if (x.op != y.op || x.a != y.a || x.b != y.b) return false;
  if (x.op == SymOp::kConstInt) return x.i == y.i;
  return x.op != SymOp::kConstNum || std::memcmp(&x.d, &y.d, 8) == 0;  // -0 and NaN stay apart
}

// Orders expressions by their structure, not by when they were made, so that a parsed text gives the same sums. Equal
// operands have equal ids, so the first operands that differ decide. If the difference lies too deep, the ids decide.
bool comes_before(const std::vector<SymExpr>& all, int32_t x, int32_t y) {
  for (int depth = 0; depth < kMaxCompared && x != y; depth++) {
    const SymExpr &a = all[size_t(x)], &b = all[size_t(y)];
    if (arity(a.op) != arity(b.op)) return arity(a.op) < arity(b.op);
    if (a.op != b.op) return a.op < b.op;
    if (arity(a.op) == 0) {
      const auto d = std::bit_cast<uint64_t>(a.d), e = std::bit_cast<uint64_t>(b.d);
      return std::tie(a.a, a.b, a.i, d) < std::tie(b.a, b.b, b.i, e);
    }
    const bool first = a.a != b.a;
    x = first ? a.a : a.b, y = first ? b.a : b.b;
  }
  return x < y;
}

// Returns {x, k - k'} for a difference of x * k and x * k', and {0, 0} for another one.
std::pair<int32_t, int64_t> like_difference(const std::vector<SymExpr>& all, int32_t a, int32_t b) {
  const auto term = [&](int32_t id) {
    const SymExpr& e = all[size_t(id)];
    const bool scaled = e.op == SymOp::kMul && all[size_t(e.b)].op == SymOp::kConstInt;
    return scaled ? std::pair{e.a, all[size_t(e.b)].i} : std::pair{id, int64_t(1)};
  };
  const auto [x, times] = term(a);
  const auto [y, less] = term(b);
  int64_t rest = 0;
  if (x != y || __builtin_sub_overflow(times, less, &rest)) return {0, 0};
  return {x, rest};
}

bool compare(SymCmp cmp, const SymExpr& a, const SymExpr& b) {
  const bool numbers = is_number(a.op) || (arity(cmp) == 2 && is_number(b.op));
  return numbers ? compare_number(cmp, as_number(a), as_number(b)) : compare_int(cmp, a.i, b.i);
}

// Returns 32 bits of a number as LuaJIT does: the low bits of its sum with 3 * 2^51.
uint32_t bits_of(double d) { return uint32_t(std::bit_cast<uint64_t>(d + 0x1.8p52)); }

uint32_t eval_bits(SymOp op, uint32_t a, uint32_t b) {
  switch (op) {
    case SymOp::kBitAnd: return a & b;
    case SymOp::kBitOr: return a | b;
    case SymOp::kBitXor: return a ^ b;
    case SymOp::kBitLeft: return a << (b & 31);
    case SymOp::kBitRight: return a >> (b & 31);
    case SymOp::kBitSigned: return uint32_t(int32_t(a) >> (b & 31));
    case SymOp::kBitRotate: return std::rotl(a, int(b & 31));
    default: fail_internal("sym: ", name(op), " is no number operation");
  }
}

// Evaluates functions of Lua's math and bit libraries.
double eval_function(SymOp op, double a, double b) {
  double whole = 0;
  switch (op) {
    case SymOp::kNTan: return std::tan(a);
    case SymOp::kNAsin: return std::asin(a);
    case SymOp::kNAcos: return std::acos(a);
    case SymOp::kNAtan: return std::atan(a);
    case SymOp::kNSinh: return std::sinh(a);
    case SymOp::kNCosh: return std::cosh(a);
    case SymOp::kNTanh: return std::tanh(a);
    case SymOp::kNLog2: return std::log2(a);
    case SymOp::kNLog10: return std::log10(a);
    case SymOp::kNWhole: return std::trunc(a);
    case SymOp::kNRest: return std::modf(a, &whole);
    case SymOp::kNAtan2: return std::atan2(a, b);
    case SymOp::kNFmod: return std::fmod(a, b);
    default: return int32_t(eval_bits(op, bits_of(a), bits_of(b)));
  }
}

}  // namespace

int64_t eval_int(SymOp op, int64_t a, int64_t b) {
  switch (op) {
    case SymOp::kAdd:
    case SymOp::kSub:
    case SymOp::kMul: return sym_exact(op, a, b);
    case SymOp::kFloorDiv: return div_floor(a, b);
    case SymOp::kMod: return mod_floor(a, b);
    case SymOp::kMin: return a < b ? a : b;
    case SymOp::kMax: return a > b ? a : b;
    default: fail_internal("sym: ", name(op), " is no integer operation");
  }
}

int64_t eval_to_int(double d) { return d >= -0x1p63 && d < 0x1p63 ? int64_t(d) : INT64_MIN; }

double eval_number(SymOp op, double a, double b) {
  switch (op) {
    case SymOp::kNAdd: return a + b;
    case SymOp::kNSub: return a - b;
    case SymOp::kNMul: return a * b;
    case SymOp::kNDiv: return a / b;
    case SymOp::kNMod: return a - std::floor(a / b) * b;  // LuaJIT's
    case SymOp::kNPow: return std::pow(a, b);
    case SymOp::kNNeg: return -a;
    case SymOp::kNSqrt: return std::sqrt(a);
    case SymOp::kNExp: return std::exp(a);
    case SymOp::kNLog: return std::log(a);
    case SymOp::kNSin: return std::sin(a);
    case SymOp::kNCos: return std::cos(a);
    case SymOp::kNFloor: return std::floor(a);
    case SymOp::kNCeil: return std::ceil(a);
    case SymOp::kNAbs: return std::fabs(a);
    case SymOp::kNMin: return a < b ? a : b;
    case SymOp::kNMax: return a > b ? a : b;
    case SymOp::kToNum: return a;
    default: return eval_function(op, a, b);
  }
}

bool compare_int(SymCmp cmp, int64_t a, int64_t b) {
  switch (cmp) {
    case SymCmp::kSame:
    case SymCmp::kEq: return a == b;
    case SymCmp::kNe: return a != b;
    case SymCmp::kLt: return a < b;
    case SymCmp::kLe: return a <= b;
    case SymCmp::kWhole: return true;
    case SymCmp::kExact: return -kMaxExact <= a && a <= kMaxExact;
  }
  return false;
}

bool compare_number(SymCmp cmp, double a, double b) {
  switch (cmp) {
    case SymCmp::kEq: return a == b;
    case SymCmp::kNe: return a != b;
    case SymCmp::kLt: return a < b;
    case SymCmp::kLe: return a <= b;
    case SymCmp::kSame: return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
    case SymCmp::kExact:
    case SymCmp::kWhole: return std::floor(a) == a && std::fabs(a) <= double(kMaxExact);
  }
  return false;
}

const char* name(SymOp op) { return kOps[size_t(op)].text; }
bool is_number(SymOp op) { return kOps[size_t(op)].number; }
int arity(SymOp op) { return kOps[size_t(op)].operands; }
const char* name(SymCmp cmp) { return kCmps[size_t(cmp)].text; }
int arity(SymCmp cmp) { return kCmps[size_t(cmp)].operands; }
bool is_exact(SymRange r) { return -kMaxExact <= r.low && r.high <= kMaxExact; }

SymEnv::SymEnv() : bounds_(std::make_unique<SymBounds>(*this)) {
  exprs_.push_back({SymOp::kConstInt});  // id 0 means "constant" in a SymInt: no expression gets it
  ranges_.push_back({0, 0});
  varies_.push_back(false);
}
SymEnv::~SymEnv() = default;

int32_t SymEnv::intern(const SymExpr& e) {
  uint64_t h = hash_of(e);
  auto [it, end] = index_.equal_range(h);
  for (; it != end; ++it) {
    if (same(exprs_[it->second], e)) return it->second;
  }
  ranges_.push_back(range_of(e));
  const auto operand_varies = [&](int n, int32_t id) { return arity(e.op) > n && varies_[size_t(id)]; };
  varies_.push_back(e.op == SymOp::kSize || e.op == SymOp::kStride || e.op == SymOp::kToInt || operand_varies(0, e.a) ||
                    operand_varies(1, e.b));
  exprs_.push_back(e);
  index_.emplace(h, int32_t(exprs_.size() - 1));
  return int32_t(exprs_.size() - 1);
}

int32_t SymEnv::constant(int64_t v) { return intern({SymOp::kConstInt, 0, 0, v, 0}); }
int32_t SymEnv::number(double v) { return intern({SymOp::kConstNum, 0, 0, 0, v}); }

int32_t SymEnv::leaf(SymOp op, int32_t input, int32_t dim, int64_t int_hint, double num_hint) {
  LUTRA_CHECK(arity(op) == 0, "not a leaf");
  return intern({op, input, dim, int_hint, num_hint});
}

// Collects the factors of a product and multiplies its constants into `scale`. Returns false if there are too many.
bool SymEnv::take_factors(int32_t id, SmallVec<int32_t, 8>& factors, int64_t& scale) const {
  SmallVec<int32_t, 8> stack{id};
  while (!stack.empty()) {
    const int32_t top = stack.back();
    stack.pop_back();
    const SymExpr& e = exprs_[top];
    if (e.op == SymOp::kMul) {
      stack.push_back(e.b), stack.push_back(e.a);
    } else if (e.op == SymOp::kConstInt) {
      scale = wrap_mul(scale, e.i);
    } else {
      factors.push_back(top);
    }
    if (factors.size() + stack.size() > kMaxFactors) return false;
  }
  return true;
}

// Products are kept in one canonical form, so that numel of a tensor and of its view are the same expression.
int32_t SymEnv::make_product(int32_t a, int32_t b) {
  int64_t scale = 1;
  SmallVec<int32_t, 8> factors;
  if (!take_factors(a, factors, scale) || !take_factors(b, factors, scale)) {
    return intern({SymOp::kMul, a, b, wrap_mul(exprs_[a].i, exprs_[b].i)});
  }
  if (scale == 0) return constant(0);
  std::sort(factors.begin(), factors.end(), [&](int32_t x, int32_t y) { return comes_before(exprs_, x, y); });
  int32_t product = 0;
  for (int32_t f : factors) {
    product = product ? intern({SymOp::kMul, product, f, wrap_mul(exprs_[product].i, exprs_[f].i)}) : f;
  }
  if (!product) return constant(scale);
  if (scale == 1) return product;
  int32_t s = constant(scale);
  return intern({SymOp::kMul, product, s, wrap_mul(exprs_[product].i, scale)});
}

int32_t SymEnv::simplify(SymOp op, int32_t a, int32_t b) {
  const SymExpr &x = exprs_[a], &y = exprs_[b];
  bool yc = y.op == SymOp::kConstInt;
  switch (op) {
    case SymOp::kAdd:
      if (y.op == SymOp::kSub && y.b == a) return y.a;
      if (x.op == SymOp::kSub && x.b == b) return x.a;
      return yc && y.i == 0 ? a : 0;
    case SymOp::kSub: {
      if (a == b) return constant(0);
      if (yc && y.i == 0) return a;
      if (x.op == SymOp::kAdd && (x.a == b || x.b == b)) return x.a == b ? x.b : x.a;
      const auto [base, times] = like_difference(exprs_, a, b);
      return base ? make_product(base, constant(times)) : 0;
    }
    case SymOp::kMin:
    case SymOp::kMax: return a == b ? a : 0;
    case SymOp::kFloorDiv:
      if (yc && y.i == 1) return a;
      return yc && y.i != 0 && x.op == SymOp::kMul && x.b == b ? x.a : 0;
    case SymOp::kMod:
      if (yc && y.i == 1) return constant(0);
      return yc && y.i != 0 && x.op == SymOp::kMul && x.b == b ? constant(0) : 0;
    default: return 0;
  }
}

int32_t SymEnv::make(SymOp op, int32_t a, int32_t b) {
  LUTRA_CHECK(arity(op) > 0 && a > 0 && (b > 0 || arity(op) == 1), "malformed expression");
  SymExpr e{op, a, arity(op) == 1 ? 0 : b};
  if (is_number(op)) {
    e.d = eval_number(op, as_number(exprs_[a]), e.b ? as_number(exprs_[b]) : 0);
    if (is_constant(exprs_[a]) && (!e.b || is_constant(exprs_[b]))) return number(e.d);
    return intern(e);
  }
  if (op == SymOp::kToInt) {
    const SymExpr& x = exprs_[a];
    if (x.op == SymOp::kToNum) return x.a;
    e.i = eval_to_int(x.d);
    return is_constant(x) ? constant(e.i) : intern(e);
  }
  e.i = eval_int(op, exprs_[a].i, exprs_[b].i);
  if (is_constant(exprs_[a]) && is_constant(exprs_[b])) return constant(e.i);
  if (op == SymOp::kMul) return make_product(a, b);
  // Constants go last, other operands into one order, so that equal sums have equal ids.
  const bool swapped = is_constant(exprs_[a]) || (!is_constant(exprs_[b]) && comes_before(exprs_, b, a));
  if (is_commutative(op) && swapped) std::swap(e.a, e.b);
  if (int32_t id = simplify(op, e.a, e.b)) return id;
  return intern(e);
}

SymRange SymEnv::range_of(const SymExpr& e) const {
  if (e.op == SymOp::kConstInt) return {e.i, e.i};
  if (e.op == SymOp::kSize) return sizes_;
  if (e.op == SymOp::kToInt) return {-kMaxExact, kMaxExact};
  if (is_number(e.op) || arity(e.op) != 2) return {};
  const SymRange x = ranges_[size_t(e.a)], y = ranges_[size_t(e.b)];
  switch (e.op) {
    case SymOp::kAdd:
      return {x.low == INT64_MIN || y.low == INT64_MIN ? INT64_MIN : clamp(__int128(x.low) + y.low),
              x.high == INT64_MAX || y.high == INT64_MAX ? INT64_MAX : clamp(__int128(x.high) + y.high)};
    case SymOp::kSub:
      return {x.low == INT64_MIN || y.high == INT64_MAX ? INT64_MIN : clamp(__int128(x.low) - y.high),
              x.high == INT64_MAX || y.low == INT64_MIN ? INT64_MAX : clamp(__int128(x.high) - y.low)};
    case SymOp::kMul: {
      int64_t corners[4] = {clamp(__int128(x.low) * y.low), clamp(__int128(x.low) * y.high),
                            clamp(__int128(x.high) * y.low), clamp(__int128(x.high) * y.high)};
      return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
    }
    case SymOp::kFloorDiv:
      if (y.low < 1) return {};
      return {div_floor(x.low, x.low < 0 ? y.low : y.high), div_floor(x.high, x.high < 0 ? y.high : y.low)};
    case SymOp::kMod: return y.low < 1 ? SymRange{} : SymRange{0, y.high - 1};
    case SymOp::kMin: return {std::min(x.low, y.low), std::min(x.high, y.high)};
    case SymOp::kMax: return {std::max(x.low, y.low), std::max(x.high, y.high)};
    default: return {};
  }
}

SymRange SymEnv::range(int32_t id) const { return bounds_->range(id); }

bool SymEnv::ask_exact(int32_t id) {
  if (is_exact(range(id))) return true;
  return compare_int(SymCmp::kExact, exprs_[id].i, 0) && ask(SymCmp::kExact, id, 0);
}

int32_t SymEnv::ask_integer(int32_t id) {
  const SymExpr e = exprs_[id];
  if (!is_number(e.op)) return id;
  if (e.op == SymOp::kToNum && ask_exact(e.a)) return e.a;
  if (e.op == SymOp::kNDiv) {  // one integer divides the other: the quotient is an integer
    const int32_t a = is_constant(exprs_[e.a]) || exprs_[e.a].op == SymOp::kToNum ? ask_integer(e.a) : 0;
    const int32_t b = is_constant(exprs_[e.b]) || exprs_[e.b].op == SymOp::kToNum ? ask_integer(e.b) : 0;
    const bool divides = a && b && exprs_[a].i != 0 && exprs_[b].i > 0 && exprs_[a].i % exprs_[b].i == 0;
    if (divides && ask(SymCmp::kLt, constant(0), b) && ask(SymCmp::kEq, make(SymOp::kMod, a, b), constant(0))) {
      return make(SymOp::kFloorDiv, a, b);
    }
  }
  if (!compare_number(SymCmp::kWhole, e.d, 0) || std::signbit(e.d) != (e.d < 0)) return 0;
  if (!ask(SymCmp::kWhole, id, 0)) return 0;
  const int32_t integer = make(SymOp::kToInt, id);
  return ask(SymCmp::kSame, id, make(SymOp::kToNum, integer)) ? integer : 0;
}

void SymEnv::pin(int32_t id) {
  if (on_pin) on_pin(id);
  const SymExpr& e = exprs_[id];
  if (is_number(e.op)) {
    ask(SymCmp::kSame, id, number(e.d));
  } else {
    ask(SymCmp::kEq, id, constant(e.i));
  }
}

namespace {

// The guard "expression cmp constant" while it is being simplified.
struct Bound {
  int32_t id;
  enum { kMost, kLeast, kIs } kind;
  int64_t value;
};

// Moves a constant operand to the right side: x + k <= c becomes x <= c - k, k - x <= c becomes x >= k - c, k * x <= c
// becomes x <= floor(c / k). Operands far from the ends of int64 cannot have wrapped.
bool simpler(const SymEnv& env, Bound& b, bool* never) {
  constexpr int64_t kFar = int64_t(1) << 61;
  const auto near = [](SymRange r) { return -kFar < r.low && r.high < kFar; };
  const SymExpr& e = env[b.id];
  if (arity(e.op) != 2 || b.value <= -kFar || b.value >= kFar) return false;
  const SymExpr &x = env[e.a], &y = env[e.b];
  if (e.op == SymOp::kAdd || e.op == SymOp::kSub) {
    if (!near(env.made_range(e.a)) || !near(env.made_range(e.b))) return false;
    if (y.op == SymOp::kConstInt) {
      b.id = e.a, b.value = e.op == SymOp::kAdd ? b.value - y.i : b.value + y.i;
    } else if (x.op == SymOp::kConstInt && e.op == SymOp::kSub) {
      b.id = e.b, b.value = x.i - b.value;
      if (b.kind != Bound::kIs) b.kind = b.kind == Bound::kMost ? Bound::kLeast : Bound::kMost;
    } else {
      return false;
    }
    return true;
  }
  if (e.op != SymOp::kMul || y.op != SymOp::kConstInt || y.i < 1 || !near(env.made_range(b.id))) return false;
  if (b.kind == Bound::kIs && mod_floor(b.value, y.i) != 0) return *never = true, false;
  b.id = e.a;
  b.value = b.kind == Bound::kLeast ? -div_floor(-b.value, y.i) : div_floor(b.value, y.i);
  return true;
}

bool is_order_or_equality(SymCmp cmp) { return cmp == SymCmp::kLt || cmp == SymCmp::kLe || cmp == SymCmp::kEq; }

// Returns "x cmp c" as a bound, where c is a constant expression; with flipped, "c cmp x". *decided: the guard holds
// for all values of x.
Bound bound_of(const SymExpr& constant, SymGuard g, int32_t x, bool flipped, bool* decided) {
  const double c = as_number(constant);
  const bool number = is_number(constant.op);
  const auto rounded = [&](bool up) { return !number ? constant.i : int64_t(up ? std::ceil(c) : std::floor(c)); };
  if (g.cmp == SymCmp::kEq) {
    *decided = number && std::floor(c) != c;
    return {x, Bound::kIs, rounded(false)};
  }
  const bool strict = g.cmp == SymCmp::kLt;
  Bound b{x, flipped ? Bound::kLeast : Bound::kMost, rounded(strict != flipped)};
  if (strict && b.value == (flipped ? INT64_MAX : INT64_MIN)) return *decided = true, b;
  if (strict) b.value += flipped ? 1 : -1;
  if (!g.outcome) {  // x >= c, or c >= x
    if (b.value == (flipped ? INT64_MIN : INT64_MAX)) return *decided = true, b;
    b.value += flipped ? -1 : 1;
    b.kind = flipped ? Bound::kMost : Bound::kLeast;
  }
  return b;
}

// Returns id if it is an integer expression, or the integer that the number was made of if a double holds it; else 0.
int32_t integer_in(const SymEnv& env, int32_t id) {
  const SymExpr& e = env[id];
  if (!is_number(e.op)) return id;
  return e.op == SymOp::kToNum && is_exact(env.range(e.a)) ? e.a : 0;
}

}  // namespace

// Moves the negation of one side of a guard to the constant on its other side. Returns false if there is none.
bool SymEnv::moves_negation(SymGuard& g) {
  const bool left = exprs_[g.a].op == SymOp::kNNeg;
  if (!is_order_or_equality(g.cmp) || !(left || exprs_[g.b].op == SymOp::kNNeg) ||
      !is_constant(exprs_[left ? g.b : g.a]))
    return false;
  const int32_t x = exprs_[left ? g.a : g.b].a, c = number(-as_number(exprs_[left ? g.b : g.a]));
  g.a = left == (g.cmp == SymCmp::kEq) ? x : c, g.b = g.a == x ? c : x;
  return true;
}

// Returns the guard in its simplest form: integers stay integers, constants are on the right, sums and products with
// constants are solved. *decided: the guard holds for all values.
SymGuard SymEnv::reduced(SymGuard g, bool* decided) {
  if (arity(g.cmp) == 1) {
    *decided = g.cmp == SymCmp::kWhole && integer_in(*this, g.a);
    return g;
  }
  while (moves_negation(g)) {
  }
  const bool constant_left = is_constant(exprs_[g.a]), constant_right = is_constant(exprs_[g.b]);
  const int32_t x = constant_left ? 0 : integer_in(*this, g.a), y = constant_right ? 0 : integer_in(*this, g.b);
  if (!constant_left && !constant_right) {
    if (x && y) g.a = x, g.b = y, *decided = x == y;
    if (g.cmp == SymCmp::kEq && comes_before(exprs_, g.b, g.a)) std::swap(g.a, g.b);
    return g;
  }
  if (g.cmp == SymCmp::kSame && g.outcome && (x || y)) g.cmp = SymCmp::kEq;
  if (g.cmp == SymCmp::kEq && constant_left) std::swap(g.a, g.b);
  if ((!x && !y) || g.cmp == SymCmp::kSame) return g;
  const SymExpr& side = exprs_[is_constant(exprs_[g.b]) ? g.b : g.a];
  const double c = as_number(side);
  if (is_number(side.op) && !is_exact(range(x ? x : y))) return g;
  if (std::isnan(c) || (is_number(side.op) && std::fabs(c) >= 0x1p62)) return *decided = true, g;
  Bound b = bound_of(side, g, x ? x : y, !x, decided);
  while (!*decided && simpler(*this, b, decided)) {
  }
  if (*decided) return g;
  const int32_t value = constant(b.value);
  if (b.kind == Bound::kIs) return {SymCmp::kEq, b.id, value, g.outcome};
  if (b.kind == Bound::kMost) return {SymCmp::kLe, b.id, value, true};
  return {SymCmp::kLt, b.id, value, false};
}

bool SymEnv::ask(SymCmp cmp, int32_t a, int32_t b) {
  const SymExpr &x = exprs_[a], &y = exprs_[b];
  bool outcome = compare(cmp, x, y);
  bool unary = arity(cmp) == 1;
  if (is_constant(x) && (unary || is_constant(y))) return outcome;
  if (cmp == SymCmp::kWhole && !is_number(x.op)) return true;
  if (!unary && a == b && !is_number(x.op)) return outcome;
  if (cmp == SymCmp::kNe) return !ask(SymCmp::kEq, a, b);
  if (cmp == SymCmp::kSame && !is_number(x.op) && !is_number(y.op)) cmp = SymCmp::kEq;
  bool decided = false;
  const SymGuard g = reduced({cmp, a, unary ? 0 : b, outcome}, &decided);
  if (decided || bounds_->implies(g)) return outcome;
  guards_.push_back(g);
  bounds_->learn(g);
  return outcome;
}

std::vector<std::pair<SymGuard, size_t>> SymEnv::needed_guards() {
  SymBounds bounds(*this);
  std::vector<std::pair<SymGuard, size_t>> kept;
  // Later guards are tighter.
  for (size_t i = guards_.size(); i-- > 0;) {
    if (bounds.implies(guards_[i])) continue;
    bounds.learn(guards_[i]);
    kept.push_back({guards_[i], i});
  }
  std::reverse(kept.begin(), kept.end());
  std::unordered_set<int32_t> settled;
  std::erase_if(kept, [&](auto& k) {
    SymGuard& g = k.first;
    const bool bound = g.cmp == SymCmp::kLt || g.cmp == SymCmp::kLe || g.cmp == SymCmp::kEq;
    if (!bound || is_number(exprs_[g.a].op) || is_constant(exprs_[g.a]) || !is_constant(exprs_[g.b])) return false;
    const SymRange r = bounds.range(g.a);
    if (r.low != r.high) return false;
    g = {SymCmp::kEq, g.a, constant(r.low), true};
    return !settled.insert(g.a).second;
  });
  return kept;
}

namespace {

void print_part(const SymEnv& env, int32_t id, int& left, std::string& out) {
  const SymExpr& e = env[id];
  if (left-- <= 0) {
    out += "...";
  } else if (e.op == SymOp::kConstInt) {
    out += str(e.i);
  } else if (e.op == SymOp::kConstNum) {
    char text[40];
    std::snprintf(text, sizeof text, "num(%.17g)", e.d);
    out += text;
  } else if (e.op == SymOp::kScalarInput) {
    out += str(name(e.op), "(", e.a, ")");
  } else if (arity(e.op) == 0) {
    out += str(name(e.op), "(", e.a, ", ", e.b, ")");
  } else {
    out += str(name(e.op), "(");
    print_part(env, e.a, left, out);
    if (arity(e.op) == 2) out += ", ", print_part(env, e.b, left, out);
    out += ")";
  }
}

}  // namespace

std::string SymEnv::print(int32_t id) const {
  std::string out;
  int left = kMaxPrinted;
  print_part(*this, id, left, out);
  return out;
}

SymEnv* SymEnv::current() { return current_env; }

SymScope::SymScope(SymEnv* env) : saved_(current_env) { current_env = env; }
SymScope::~SymScope() { current_env = saved_; }

SymInt SymInt::of_expr(const SymEnv& env, int32_t id) {
  SymInt r(env[id].i);
  if (!lutra::is_constant(env[id])) r.expr = id;
  return r;
}

}  // namespace lutra
