// The bounds that guards set on single expressions. Answers whether they imply another guard.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "ops/core/sym.h"

namespace lutra {

// A double holds every integer up to this one.
constexpr int64_t kMaxExact = int64_t(1) << 53;

inline bool is_constant(const SymExpr& e) { return e.op == SymOp::kConstInt || e.op == SymOp::kConstNum; }
inline double as_number(const SymExpr& e) { return is_number(e.op) ? e.d : double(e.i); }

// Invariant: each answer of `implies` follows from guards given to `learn` and from the operands of expressions.
class SymBounds {
 public:
  explicit SymBounds(const SymEnv& env) : env_(env) {}
  bool implies(const SymGuard& g) const;
  void learn(const SymGuard& g);
  SymRange range(int32_t id) const;  // of an integer

 private:
  // A bound of a number. A bound learned from a false answer admits NaN, too: x >= 3 is false for NaN, but so is x < 3.
  struct Limit {
    double value;
    bool strict;
    bool is_set = false;
    bool gives(const Limit& wanted, bool upper) const;
  };
  struct Number {
    Limit upper[2], lower[2];  // [1]: bounds that admit NaN
    bool pinned = false;
  };
  bool implies_integer(const SymGuard& g) const;
  bool implies_number(const SymGuard& g) const;
  void learn_number(const SymGuard& g);
  SymRange meant(const SymGuard& g, SymRange now, int32_t* id) const;
  bool is_number_guard(const SymGuard& g) const;

  const SymEnv& env_;
  std::unordered_map<int32_t, SymRange> ranges_;
  std::unordered_map<int32_t, Number> numbers_;
  std::unordered_set<uint64_t> known_;
};

}  // namespace lutra
