// The symbolic part of guards and results: expressions of a SymEnv, evaluated on the sizes, strides and numbers of one
// call.
#pragma once
#include <unordered_map>
#include <vector>

#include "ops/core/error.h"
#include "ops/core/tensor.h"

namespace lutra {

struct SymbolValue {
  int64_t i = 0;
  double d = 0;
};

// Returns the result of an operation on Lua's numbers, as a number. Throws nothing: an integer that does not fit
// becomes the largest one.
double compute(SymOp op, double a, double b);

class SymbolProgram {
 public:
  // Copies from env the guards from which all others follow, and the expressions they need. Returns the index of each
  // guard in env. Skips guards that compare an expression whose flag in excluded is set.
  std::vector<size_t> add_guards(SymEnv& env, const std::vector<int32_t>& excluded = {});
  int need(const SymEnv& env, int32_t expr);  // copies expr; returns its index in the values
  bool empty() const { return exprs_.empty(); }
  size_t size() const { return exprs_.size(); }
  bool is_number(int place) const { return lutra::is_number(exprs_[place].op); }
  // Evaluates all expressions. Returns false if a guard does not hold; then *failed is its index.
  bool run(const std::vector<Tensor>& tensors, const std::vector<double>& scalars, std::vector<SymbolValue>& values,
           int* failed) const;
  const std::vector<SymGuard>& guards() const { return guards_; }
  bool holds(const SymGuard& guard, const std::vector<SymbolValue>& values) const;
  const SymExpr& operator[](int place) const { return exprs_[size_t(place)]; }  // operands are places

 private:
  std::vector<SymExpr> exprs_;  // operands are places
  std::vector<SymGuard> guards_;
  std::unordered_map<int32_t, int> places_;
};

}  // namespace lutra
