// Host expressions in, hash-consed expressions with hints, and guards out.
#include "ops/core/sym.h"

#include <cmath>
#include <cstring>

#include "ops/core/error.h"

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

thread_local SymEnv* current_env = nullptr;

int64_t wrap_add(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
int64_t wrap_sub(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
int64_t wrap_mul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }

int64_t div_floor(int64_t a, int64_t b) {
  LUTRA_CHECK(b != 0, "division by zero");
  if (b == -1) return wrap_sub(0, a);
  int64_t q = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? q - 1 : q;
}
int64_t mod_floor(int64_t a, int64_t b) { return wrap_sub(a, wrap_mul(div_floor(a, b), b)); }

bool is_constant(const SymExpr& e) { return e.op == SymOp::kConstInt || e.op == SymOp::kConstNum; }
bool is_commutative(SymOp op) {
  return op == SymOp::kAdd || op == SymOp::kMul || op == SymOp::kMin || op == SymOp::kMax;
}
double as_number(const SymExpr& e) { return is_number(e.op) ? e.d : double(e.i); }

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

bool compare(SymCmp cmp, const SymExpr& a, const SymExpr& b) {
  const bool numbers = is_number(a.op) || (cmp != SymCmp::kWhole && is_number(b.op));
  return numbers ? compare_number(cmp, as_number(a), as_number(b)) : compare_int(cmp, a.i, b.i);
}

}  // namespace

int64_t eval_int(SymOp op, int64_t a, int64_t b) {
  switch (op) {
    case SymOp::kAdd: return wrap_add(a, b);
    case SymOp::kSub: return wrap_sub(a, b);
    case SymOp::kMul: return wrap_mul(a, b);
    case SymOp::kFloorDiv: return div_floor(a, b);
    case SymOp::kMod: return mod_floor(a, b);
    case SymOp::kMin: return a < b ? a : b;
    case SymOp::kMax: return a > b ? a : b;
    default: fail_internal("sym: ", name(op), " is no integer operation");
  }
}

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
    default: fail_internal("sym: ", name(op), " is no number operation");
  }
}

bool compare_int(SymCmp cmp, int64_t a, int64_t b) {
  switch (cmp) {
    case SymCmp::kEq: return a == b;
    case SymCmp::kNe: return a != b;
    case SymCmp::kLt: return a < b;
    case SymCmp::kLe: return a <= b;
    case SymCmp::kWhole: return true;
  }
  return false;
}

bool compare_number(SymCmp cmp, double a, double b) {
  switch (cmp) {
    case SymCmp::kEq: return a == b;
    case SymCmp::kNe: return a != b;
    case SymCmp::kLt: return a < b;
    case SymCmp::kLe: return a <= b;
    case SymCmp::kWhole: return std::floor(a) == a && std::fabs(a) <= 9007199254740992.0;
  }
  return false;
}

const char* name(SymOp op) { return kOps[size_t(op)].text; }
bool is_number(SymOp op) { return kOps[size_t(op)].number; }
int arity(SymOp op) { return kOps[size_t(op)].operands; }

SymEnv::SymEnv() { exprs_.push_back({SymOp::kConstInt}); }  // id 0 means "constant" in a SymInt: never handed out

int32_t SymEnv::intern(const SymExpr& e) {
  uint64_t h = hash_of(e);
  auto [it, end] = index_.equal_range(h);
  for (; it != end; ++it) {
    if (same(exprs_[it->second], e)) return it->second;
  }
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

// The factors of a product, constants multiplied into one: products are kept in one canonical form, so that numel of a
// tensor and of its view are the same expression.
int32_t SymEnv::make_product(int32_t a, int32_t b) {
  int64_t scale = 1;
  SmallVec<int32_t, 8> factors;
  auto take = [&](auto&& self, int32_t id) -> void {
    const SymExpr& e = exprs_[id];
    if (e.op == SymOp::kMul) {
      int32_t l = e.a, r = e.b;
      self(self, l), self(self, r);
    } else if (e.op == SymOp::kConstInt) {
      scale = wrap_mul(scale, e.i);
    } else {
      factors.push_back(id);
    }
  };
  take(take, a), take(take, b);
  if (scale == 0) return constant(0);
  std::sort(factors.begin(), factors.end());
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
    case SymOp::kAdd: return yc && y.i == 0 ? a : 0;
    case SymOp::kSub: return yc && y.i == 0 ? a : a == b ? constant(0) : 0;
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
  e.i = eval_int(op, exprs_[a].i, exprs_[b].i);
  if (is_constant(exprs_[a]) && is_constant(exprs_[b])) return constant(e.i);
  if (op == SymOp::kMul) return make_product(a, b);
  // Constants last, else by id: equal sums are equal ids.
  if (is_commutative(op) && (is_constant(exprs_[a]) || (!is_constant(exprs_[b]) && a > b))) std::swap(e.a, e.b);
  if (int32_t id = simplify(op, e.a, e.b)) return id;
  return intern(e);
}

bool SymEnv::never_negative(int32_t id) const {
  const SymExpr& e = exprs_[id];
  switch (e.op) {
    case SymOp::kConstInt: return e.i >= 0;
    case SymOp::kSize: return true;
    case SymOp::kAdd:
    case SymOp::kMul:
    case SymOp::kMin:
    case SymOp::kFloorDiv: return never_negative(e.a) && never_negative(e.b);
    case SymOp::kMax: return never_negative(e.a) || never_negative(e.b);
    default: return false;
  }
}

bool SymEnv::ask(SymCmp cmp, int32_t a, int32_t b) {
  const SymExpr &x = exprs_[a], &y = exprs_[b];
  bool outcome = compare(cmp, x, y);
  bool unary = cmp == SymCmp::kWhole;
  if (is_constant(x) && (unary || is_constant(y))) return outcome;
  if (unary && !is_number(x.op)) return true;
  if (!unary && a == b && !is_number(x.op)) return outcome;
  // Sizes are at least zero.
  if (cmp == SymCmp::kLt && y.op == SymOp::kConstInt && y.i <= 0 && never_negative(a)) return false;
  if (cmp == SymCmp::kNe) return !ask(SymCmp::kEq, a, b);
  SymGuard g{cmp, a, unary ? 0 : b, outcome};
  if (cmp == SymCmp::kEq && (is_constant(x) || (!is_constant(y) && g.a > g.b))) std::swap(g.a, g.b);
  for (const SymGuard& old : guards_) {
    if (old.cmp == g.cmp && old.a == g.a && old.b == g.b) return outcome;
  }
  guards_.push_back(g);
  return outcome;
}

std::string SymEnv::print(int32_t id) const {
  const SymExpr& e = exprs_[id];
  if (e.op == SymOp::kConstInt) return str(e.i);
  if (e.op == SymOp::kConstNum) {
    char text[40];
    std::snprintf(text, sizeof text, "num(%.17g)", e.d);
    return text;
  }
  if (e.op == SymOp::kScalarInput) return str(name(e.op), "(", e.a, ")");
  if (arity(e.op) == 0) return str(name(e.op), "(", e.a, ", ", e.b, ")");
  if (arity(e.op) == 1) return str(name(e.op), "(", print(e.a), ")");
  return str(name(e.op), "(", print(e.a), ", ", print(e.b), ")");
}

SymEnv* SymEnv::current() { return current_env; }

SymScope::SymScope(SymEnv* env) : saved_(current_env) { current_env = env; }
SymScope::~SymScope() { current_env = saved_; }

SymInt SymInt::of_expr(const SymEnv& env, int32_t id) {
  SymInt r(env[id].i);
  if (!lutra::is_constant(env[id])) r.expr = id;
  return r;
}

namespace {
SymEnv& env_or_throw() {
  LUTRA_CHECK(current_env, "a symbolic size outside tracing");
  return *current_env;
}
}  // namespace

int64_t SymInt::guard() const {
  if (expr) {
    SymEnv& env = env_or_throw();
    env.ask(SymCmp::kEq, expr, env.constant(hint));
  }
  return hint;
}

int32_t SymInt::to_expr() const { return expr ? expr : env_or_throw().constant(hint); }

void sym_overflow(SymOp op, int64_t a, int64_t b) {
  fail("sizes are too large: ", a,
       op == SymOp::kAdd   ? " + "
       : op == SymOp::kSub ? " - "
                           : " * ",
       b, " does not fit into 64 bits");
}

SymInt sym_binary(SymOp op, SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return SymInt(eval_int(op, a.hint, b.hint));
  SymEnv& env = env_or_throw();
  return SymInt::of_expr(env, env.make(op, a.to_expr(), b.to_expr()));
}

bool sym_ask(SymCmp cmp, SymInt a, SymInt b) { return env_or_throw().ask(cmp, a.to_expr(), b.to_expr()); }

SymInt floor_div(SymInt a, SymInt b) { return sym_binary(SymOp::kFloorDiv, a, b); }
SymInt floor_mod(SymInt a, SymInt b) { return sym_binary(SymOp::kMod, a, b); }
SymInt sym_min(SymInt a, SymInt b) { return sym_binary(SymOp::kMin, a, b); }
SymInt sym_max(SymInt a, SymInt b) { return sym_binary(SymOp::kMax, a, b); }

SymInt numel(const Sizes& sizes) {
  SymInt n = 1;
  for (SymInt s : sizes) n = n * s;
  return n;
}

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides;
  strides.resize(sizes.size());
  SymInt next = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = next;
    // As PyTorch, an empty dimension counts as one. A symbolic one is not asked: an empty tensor's strides mean
    // nothing.
    if (!sizes[d].is_constant() || sizes[d].hint > 1) next = next * sizes[d];
  }
  return strides;
}

std::string to_string(const Sizes& sizes) {
  std::string s = "{";
  for (size_t i = 0; i < sizes.size(); i++) s += (i ? ", " : "") + std::to_string(sizes[i].hint);
  return s + "}";
}

}  // namespace lutra
