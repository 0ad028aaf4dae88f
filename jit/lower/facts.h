// What is known of symbolic sizes without asking: equality modulo ring arithmetic and the guards that already hold.
#pragma once
#include <map>
#include <unordered_map>
#include <vector>

#include "ops/core/sym.h"

namespace lutra {

// Invariants: the answer true is certain under the env's guards; false means unknown. Nothing is asked of the env.
class SymFacts {
 public:
  explicit SymFacts(SymEnv& env) : env_(env) {}
  bool equal(SymInt a, SymInt b);
  // a is b times sizes (strides of a dense layout), so a >= b unless a tensor is empty.
  bool multiple(SymInt a, SymInt b);
  bool is_one(SymInt a) { return equal(a, SymInt(1)); }

  // As above, but where unknown the env is asked, which makes the answer a guard.
  bool ask_equal(SymInt a, SymInt b);
  bool ask_less(SymInt a, SymInt b);

 private:
  using Monomial = std::vector<int32_t>;  // sorted atoms
  using Poly = std::map<Monomial, int64_t>;
  const Poly& poly(int32_t expr);
  Poly poly_of(SymInt v);
  Poly compute(int32_t expr);  // from its operands' polynomials
  void learn();                // reads new guards
  void vanishes(const Poly& zero);
  bool define(const Poly& zero, std::vector<Poly>& zeros);
  bool reduce(Poly& p) const;
  bool is_zero(Poly difference) const;

  SymEnv& env_;
  size_t guards_seen_ = 0;
  std::unordered_map<int32_t, Poly> polys_;
  std::unordered_map<int32_t, Poly> known_;  // atom -> what an equality guard says it is
  // Differences that are zero and define no atom, by the terms that the others stand for: see leading().
  std::vector<std::pair<Monomial, Poly>> zeros_;
};

}  // namespace lutra
