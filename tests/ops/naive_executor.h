// An executor with plain loops over doubles. Tests of meta rules, vjp rules and decompositions compare with it, without
// the compiler.
#pragma once
#include <functional>

#include "ops/defs/call.h"

namespace lutra {

struct NaiveExecutor : Executor {
  Results run(OpId op, const Args& args, const ResultSpecs& specs) override;
  void run_inplace(OpId op, const Args& args, const ResultSpecs& specs) override;
};

// Installs it for a scope.
struct NaiveScope {
  NaiveScope() : saved(set_executor(&executor)) {}
  ~NaiveScope() { set_executor(saved); }
  NaiveExecutor executor;
  Executor* saved;
};

using Index = std::vector<int64_t>;
double get(const Tensor& t, const Index& at);
void set(const Tensor& t, const Index& at, double v);
// Calls f with every index of these sizes, the last dim fastest.
void each_index(const Sizes& sizes, const std::function<void(const Index&)>& f);
// Elements in order of their indices.
std::vector<double> values(const Tensor& t);
Tensor tensor_of(const Sizes& sizes, const std::vector<double>& values, DType dtype = DType::kFloat64);

}  // namespace lutra
