// Kernels that libraries do better, behind one interface. The implementation and its partition are a pure function of
// (op, dtypes, sizes, strides, isa, library version, tuning table): eager and compiled code choose alike, at any number
// of threads.
#pragma once
#include <functional>

#include "ops/core/tensor.h"
#include "ops/defs/op.h"

namespace lutra {

struct ExternView {
  void* data = nullptr;  // first element
  DType dtype = DType::kFloat32;
  SmallVec<int64_t, 5> sizes, strides;
};

using ParallelFor = void (*)(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// Runs mm or bmm. Returns false when no implementation takes these types (the lowering then uses loops).
bool run_extern(OpId op, const SmallVec<ExternView, 4>& in, ExternView& out, ParallelFor parallel);
bool extern_supports(OpId op, DType dtype);

}  // namespace lutra
