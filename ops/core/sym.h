// Numbers that may be symbols: sizes and strides (SymInt), Lua numbers that flow into tensors (Scalar, see value.h).
//
// A SymEnv is an arena of host expressions over leaves: the size or stride of a graph input, a scalar input, a
// constant. Meta rules compute with SymInts. Each carries the value seen (the hint) and, if symbolic, an expression of
// the current env. A symbolic question (a == b) is answered by the hints, and the env records the answer as a guard.
// Invariants:
// 1. expr == 0 means constant: the hint is the value.
// 2. An expression refers to earlier expressions only. Equal expressions have the same id (hash-consed).
// 3. Integer expressions are evaluated in int64, number expressions in double, as Lua would. A size that does not fit
//    into int64 is a user error.
// 4. No function recurses over expressions. Chains have any length, and a shared expression is visited once.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/core/small_vec.h"

namespace lutra {

// X(enumerator, text, is_number, operands): the host operations. Number ops are LuaJIT's double arithmetic (pow is
// libm's). kToInt takes a whole number within +-2^53: ask kWhole before making one. kNWhole and kNRest are the two
// results of math.modf. Bit ops are LuaJIT's on 32 bits, as numbers; kBitSigned is its arshift, kBitRotate its rol.
// clang-format off
#define LUTRA_SYM_OPS(X)          \
  X(kConstInt, "int", 0, 0)       \
  X(kConstNum, "num", 1, 0)       \
  X(kSize, "size", 0, 0)          \
  X(kStride, "stride", 0, 0)      \
  X(kScalarInput, "scalar", 1, 0) \
  X(kAdd, "add", 0, 2)            \
  X(kSub, "sub", 0, 2)            \
  X(kMul, "mul", 0, 2)            \
  X(kFloorDiv, "floordiv", 0, 2)  \
  X(kMod, "mod", 0, 2)            \
  X(kMin, "min", 0, 2)            \
  X(kMax, "max", 0, 2)            \
  X(kToInt, "toint", 0, 1)        \
  X(kNAdd, "nadd", 1, 2)          \
  X(kNSub, "nsub", 1, 2)          \
  X(kNMul, "nmul", 1, 2)          \
  X(kNDiv, "ndiv", 1, 2)          \
  X(kNMod, "nmod", 1, 2)          \
  X(kNPow, "npow", 1, 2)          \
  X(kNNeg, "nneg", 1, 1)          \
  X(kNSqrt, "nsqrt", 1, 1)        \
  X(kNExp, "nexp", 1, 1)          \
  X(kNLog, "nlog", 1, 1)          \
  X(kNSin, "nsin", 1, 1)          \
  X(kNCos, "ncos", 1, 1)          \
  X(kNFloor, "nfloor", 1, 1)      \
  X(kNCeil, "nceil", 1, 1)        \
  X(kNAbs, "nabs", 1, 1)          \
  X(kNMin, "nmin", 1, 2)          \
  X(kNMax, "nmax", 1, 2)          \
  X(kToNum, "tonum", 1, 1)        \
  X(kNTan, "ntan", 1, 1)          \
  X(kNAsin, "nasin", 1, 1)        \
  X(kNAcos, "nacos", 1, 1)        \
  X(kNAtan, "natan", 1, 1)        \
  X(kNSinh, "nsinh", 1, 1)        \
  X(kNCosh, "ncosh", 1, 1)        \
  X(kNTanh, "ntanh", 1, 1)        \
  X(kNLog2, "nlog2", 1, 1)        \
  X(kNLog10, "nlog10", 1, 1)      \
  X(kNWhole, "nwhole", 1, 1)      \
  X(kNRest, "nfraction", 1, 1)    \
  X(kNAtan2, "natan2", 1, 2)      \
  X(kNFmod, "nfmod", 1, 2)        \
  X(kBitAnd, "nband", 1, 2)       \
  X(kBitOr, "nbor", 1, 2)         \
  X(kBitXor, "nbxor", 1, 2)       \
  X(kBitLeft, "nlshift", 1, 2)    \
  X(kBitRight, "nrshift", 1, 2)   \
  X(kBitSigned, "narshift", 1, 2) \
  X(kBitRotate, "nrol", 1, 2)
// clang-format on

enum class SymOp : uint8_t {
#define X(e, text, num, operands) e,
  LUTRA_SYM_OPS(X)
#undef X
};
constexpr SymOp kLastSymOp = SymOp::kBitRotate;
const char* name(SymOp op);
bool is_number(SymOp op);
int arity(SymOp op);  // the number of operands that are expressions: 0 for leaves and constants
// Evaluates an operation (no leaf, no constant) on values. Division by zero is an internal error. An integer sum,
// difference or product that does not fit is a user error.
int64_t eval_int(SymOp op, int64_t a, int64_t b);
int64_t eval_to_int(double d);  // kToInt; returns INT64_MIN for a number that no int64 holds
double eval_number(SymOp op, double a, double b);

struct SymExpr {
  SymOp op;
  int32_t a = 0, b = 0;  // operands: expression ids; kSize/kStride: input index and dim; kScalarInput: scalar index
  int64_t i = 0;         // kConstInt, and the hint of integer expressions
  double d = 0;          // kConstNum, and the hint of number expressions
};

// X(enumerator, text, operands). kEq is Lua's ==. kSame compares bits, so that NaN equals itself and -0 differs from 0.
// kWhole: a is a whole number within +-2^53. kExact: a is an integer within +-2^53, so that a double holds it.
#define LUTRA_SYM_CMPS(X) \
  X(kEq, "eq", 2)         \
  X(kNe, "ne", 2)         \
  X(kLt, "lt", 2)         \
  X(kLe, "le", 2)         \
  X(kWhole, "whole", 1)   \
  X(kSame, "same", 2)     \
  X(kExact, "exact", 1)

enum class SymCmp : uint8_t {
#define X(e, text, operands) e,
  LUTRA_SYM_CMPS(X)
#undef X
};
const char* name(SymCmp cmp);
int arity(SymCmp cmp);

// Compare two values of one kind.
bool compare_int(SymCmp cmp, int64_t a, int64_t b);
bool compare_number(SymCmp cmp, double a, double b);

// A question about symbols that was asked while tracing, with the answer that the trace relies on.
struct SymGuard {
  SymCmp cmp;
  int32_t a, b;
  bool outcome;
};

// The range of an integer's possible values.
struct SymRange {
  int64_t low = INT64_MIN, high = INT64_MAX;
  bool contains(int64_t v) const { return low <= v && v <= high; }
};
bool is_exact(SymRange r);  // within +-2^53

class SymBounds;

class SymEnv {
 public:
  SymEnv();
  ~SymEnv();
  // Assumes this range for all kSize leaves. The code that runs the guards must check it.
  void assume_sizes(SymRange sizes) { sizes_ = sizes; }
  int32_t constant(int64_t v);
  int32_t number(double v);
  int32_t leaf(SymOp op, int32_t input, int32_t dim, int64_t int_hint, double num_hint = 0);
  int32_t make(SymOp op, int32_t a, int32_t b = 0);  // folds constants and x+0, x*1, x*0; computes the hint
  const SymExpr& operator[](int32_t id) const { return exprs_[id]; }
  size_t size() const { return exprs_.size(); }
  const std::vector<SymExpr>& exprs() const { return exprs_; }
  // Answers by the hints and, when a side is symbolic, records a guard, unless earlier ones imply the answer.
  bool ask(SymCmp cmp, int32_t a, int32_t b);
  // Specialises on the bits of the value seen.
  void pin(int32_t id);
  std::function<void(int32_t)> on_pin;  // called before pinning; may throw
  // Returns whether a double holds the integer. It records a guard if that is not known yet.
  bool ask_exact(int32_t id);
  // Returns the integer expression that equals a number, or 0 if the number is not whole or is -0. It records guards.
  int32_t ask_integer(int32_t id);
  // Returns whether the expression contains sizes, strides, integers made from numbers, or numbers of let_vary. Those
  // are symbols because they change.
  bool varies(int32_t id) const { return varies_[size_t(id)]; }
  // Says that a number changes, before expressions are made of it.
  void let_vary(int32_t id) { varies_[size_t(id)] = true; }
  const std::vector<SymGuard>& guards() const { return guards_; }
  // Returns guards that imply all others, each with its index in guards(). Bounds that allow a single value become ==.
  std::vector<std::pair<SymGuard, size_t>> needed_guards();
  // The range of an integer expression: made_range by its operands alone, range by the guards as well.
  SymRange made_range(int32_t id) const { return ranges_[size_t(id)]; }
  SymRange range(int32_t id) const;
  // Prints in prefix form: size(0, 1), mul(size(0, 0), 4), scalar(2), num(0.5); integer constants are bare. In a large
  // expression "..." replaces a part.
  std::string print(int32_t id) const;

  // The env that SymInts made on this thread refer to; null outside tracing.
  static SymEnv* current();

 private:
  int32_t intern(const SymExpr& e);
  int32_t make_product(int32_t a, int32_t b);
  bool take_factors(int32_t id, SmallVec<int32_t, 8>& factors, int64_t& scale) const;
  int32_t simplify(SymOp op, int32_t a, int32_t b);  // 0: there is nothing simpler
  SymRange range_of(const SymExpr& e) const;
  SymGuard reduced(SymGuard g, bool* decided);
  bool moves_negation(SymGuard& g);

  std::vector<SymExpr> exprs_;
  std::vector<SymRange> ranges_;  // by expression: its made_range
  std::vector<bool> varies_;      // by expression
  std::vector<SymGuard> guards_;
  std::unordered_multimap<uint64_t, int32_t> index_;
  SymRange sizes_{0, INT64_MAX};
  std::unique_ptr<SymBounds> bounds_;  // the bounds that the guards imply
};

// Makes env current for a scope.
class SymScope {
 public:
  explicit SymScope(SymEnv* env);
  ~SymScope();
  SymScope(const SymScope&) = delete;

 private:
  SymEnv* saved_;
};

struct SymInt {
  int64_t hint = 0;
  int32_t expr = 0;  // 0: constant
  SymInt() = default;
  SymInt(int64_t v) : hint(v) {}  // NOLINT: sizes are written as plain numbers
  static SymInt of_expr(const SymEnv& env, int32_t id);
  bool is_constant() const { return expr == 0; }
  // Returns the value. If symbolic, specialises the trace on it.
  int64_t guard() const;
  // Returns the expression in the current env. A constant is added to the env.
  int32_t to_expr() const;
};

SymInt sym_binary(SymOp op, SymInt a, SymInt b);
bool sym_ask(SymCmp cmp, SymInt a, SymInt b);

[[noreturn]] void sym_overflow(SymOp op, int64_t a, int64_t b);
// Returns a + b, a - b or a * b. Overflow is a user error, because a size that wrapped would pass every check.
inline int64_t sym_exact(SymOp op, int64_t a, int64_t b) {
  int64_t r;
  bool wraps;
  if (op == SymOp::kAdd) {
    wraps = __builtin_add_overflow(a, b, &r);
  } else if (op == SymOp::kSub) {
    wraps = __builtin_sub_overflow(a, b, &r);
  } else {
    wraps = __builtin_mul_overflow(a, b, &r);
  }
  if (wraps) sym_overflow(op, a, b);
  return r;
}

#define LUTRA_SYM_ARITH(sym, op, fold)                   \
  inline SymInt operator sym(SymInt a, SymInt b) {       \
    if (a.expr == 0 && b.expr == 0) return SymInt(fold); \
    return sym_binary(SymOp::op, a, b);                  \
  }
LUTRA_SYM_ARITH(+, kAdd, sym_exact(SymOp::kAdd, a.hint, b.hint))
LUTRA_SYM_ARITH(-, kSub, sym_exact(SymOp::kSub, a.hint, b.hint))
LUTRA_SYM_ARITH(*, kMul, sym_exact(SymOp::kMul, a.hint, b.hint))
#undef LUTRA_SYM_ARITH
SymInt floor_div(SymInt a, SymInt b);  // rounds towards minus infinity; b != 0
SymInt floor_mod(SymInt a, SymInt b);
SymInt sym_min(SymInt a, SymInt b);
SymInt sym_max(SymInt a, SymInt b);

inline bool operator==(SymInt a, SymInt b) {
  return a.expr == 0 && b.expr == 0 ? a.hint == b.hint : sym_ask(SymCmp::kEq, a, b);
}
inline bool operator!=(SymInt a, SymInt b) { return !(a == b); }
inline bool operator<(SymInt a, SymInt b) {
  return a.expr == 0 && b.expr == 0 ? a.hint < b.hint : sym_ask(SymCmp::kLt, a, b);
}
inline bool operator>(SymInt a, SymInt b) { return b < a; }
inline bool operator<=(SymInt a, SymInt b) { return !(b < a); }
inline bool operator>=(SymInt a, SymInt b) { return !(a < b); }

// Returns true if a and b are the same number or the same expression. Unlike a == b, this records no guard.
inline bool same_expr(SymInt a, SymInt b) { return a.expr == b.expr && a.hint == b.hint; }

using Sizes = SmallVec<SymInt, 5>;
inline bool same_exprs(const Sizes& a, const Sizes& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_expr);
}
SymInt numel(const Sizes& sizes);
Sizes contiguous_strides(const Sizes& sizes);
std::string to_string(const Sizes& sizes);  // {2, 3}; symbols print their hint

}  // namespace lutra
