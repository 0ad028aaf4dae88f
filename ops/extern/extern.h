// Kernels that libraries do better, behind one interface. The implementation and its partition are a pure function of
// (op, dtypes, sizes, strides, isa, library version, tuning table): eager and compiled code choose alike, at any number
// of threads.
#pragma once
#include <functional>
#include <span>

#include "ops/core/tensor.h"
#include "ops/defs/op.h"

namespace lutra {

struct ExternView {
  void* data = nullptr;  // first element
  DType dtype = DType::kFloat32;
  int32_t dim = 0;
  int64_t sizes[3] = {}, strides[3] = {};  // the first dim count; strides in elements
};

using ParallelFor = void (*)(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// Runs mm or bmm. Returns false when no implementation takes these types (the lowering then uses loops).
bool run_extern(OpId op, std::span<const ExternView> in, ExternView& out, ParallelFor parallel);
// Whether run_extern takes op on operands of dtype. The first question opens the library, and says on standard error
// why it cannot; the answer never changes.
bool extern_supports(OpId op, DType dtype);

}  // namespace lutra
