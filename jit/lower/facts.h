// What is known about symbolic sizes without adding a guard: equality by ring arithmetic and by the guards that already
// hold.
#pragma once
#include <map>
#include <unordered_map>
#include <vector>

#include "ops/core/sym.h"

namespace lutra {

// Invariants: true is certain under the env's guards; false means unknown. No function but ask_* adds a guard.
class SymFacts {
 public:
  explicit SymFacts(SymEnv& env) : env_(env) {}
  bool equal(SymInt a, SymInt b);
  // Returns true if a is b times sizes (as strides of a dense layout are), so a >= b unless a tensor is empty.
  bool multiple(SymInt a, SymInt b);
  bool is_one(SymInt a) { return equal(a, SymInt(1)); }

  // Like the above, but if the answer is unknown they ask the env, which adds a guard.
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
  std::unordered_map<int32_t, Poly> known_;  // atom -> its value by an equality guard
  // Polynomials that are zero and define no atom, each with its leading term. The other terms replace this term: see
  // leading().
  std::vector<std::pair<Monomial, Poly>> zeros_;
};

}  // namespace lutra
