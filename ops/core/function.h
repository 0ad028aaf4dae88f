// A function as an op's argument: a branch, or the body of a loop. jit/graph implements it.
// Invariants: it writes nothing that exists before and draws no random numbers. Its parameters and results are tensors.
// Their sizes, and numbers that it reads, are constants or symbols of the caller's SymEnv. Each result has memory of
// its own.
#pragma once
#include <memory>
#include <vector>

#include "ops/core/dtype.h"
#include "ops/core/sym.h"

namespace lutra {

class Tensor;

struct TensorType {
  Sizes sizes, strides;
  DType dtype = DType::kFloat32;
};

struct Function {
  virtual ~Function() = default;
  virtual std::vector<TensorType> parameters() const = 0;
  virtual std::vector<TensorType> results() const = 0;
  // Runs the function op by op on real tensors.
  virtual std::vector<Tensor> run(const std::vector<Tensor>& arguments) const = 0;
};
using FunctionRef = std::shared_ptr<const Function>;

}  // namespace lutra
