// Hand-written plans with one call each, from loop IR text.
#pragma once
#include <string>
#include <vector>

#include "jit/runtime/executable.h"
#include "ops/core/tensor.h"

namespace lutra {

// A plan under construction: its expressions are those of the env.
struct HandPlan : Plan {
  std::shared_ptr<SymEnv> env = std::make_shared<SymEnv>();
};

inline std::shared_ptr<Executable> build(HandPlan p) {
  close(p, *p.env);
  return Executable::build(std::move(p));
}

// A vector input's number of elements as an expression.
inline ExprId size_of_input(HandPlan& p, int32_t input, int32_t dim = 0) {
  return p.env->leaf(SymOp::kSize, input, dim, 4);
}

inline int32_t add_buffer(Plan& p, Buffer::Kind kind, DType dtype, ExprId elements, int32_t index = -1) {
  p.buffers.push_back({kind, dtype, elements, index});
  return int32_t(p.buffers.size()) - 1;
}

inline BufferView vector_view(HandPlan& p, int32_t buffer, DType dtype, ExprId n) {
  return {buffer, dtype, {n}, {p.env->constant(1)}, p.env->constant(0)};
}

inline KernelLaunch launch_of(const std::string& text, std::vector<int32_t> buffers, std::vector<ExprId> ints,
                              std::vector<ExprId> scalars = {}) {
  KernelLaunch l;
  l.kernel = loop::parse_kernel(text);
  l.buffers = std::move(buffers);
  l.ints = std::move(ints);
  l.scalars = std::move(scalars);
  return l;
}

inline PlanOutput tensor_output(BufferView view) {
  PlanOutput out;
  out.kind = PlanOutput::kTensor;
  out.view = std::move(view);
  return out;
}

// y = a * $x0 + b over vectors of n0 elements.
inline const char* const kScaleAdd = R"(kernel @scale_add(p0: f32 in, p1: f32 in, p2: f32 out; n0; x0) {
  for i0 in n0 parallel vector {
    %0 = load.f32 p0[i0]
    %1 = scalar.f32 x0
    %2 = mul.f32 %0, %1
    %3 = load.f32 p1[i0]
    %4 = add.f32 %2, %3
    store.f32 p2[i0], %4
  }
}
)";

inline Tensor vector_of(int64_t n, float first, float step) {
  Tensor t = make_tensor({n}, DType::kFloat32);
  for (int64_t i = 0; i < n; i++) t->data_as<float>()[i] = first + step * float(i);
  return t;
}

// Inputs a, b and scalar x; output a * x + b through one kernel.
inline HandPlan scale_add_plan() {
  HandPlan p;
  const ExprId n = size_of_input(p, 0);
  const int32_t a = add_buffer(p, Buffer::kInput, DType::kFloat32, n, 0);
  const int32_t b = add_buffer(p, Buffer::kInput, DType::kFloat32, n, 1);
  const int32_t y = add_buffer(p, Buffer::kOutput, DType::kFloat32, n);
  KernelLaunch l = launch_of(kScaleAdd, {a, b, y}, {n}, {p.env->leaf(SymOp::kScalarInput, 0, 0, 0, 2.0)});
  l.extent = n;
  l.work = p.env->constant(1);
  p.launches.emplace_back(std::move(l));
  p.outputs.push_back(tensor_output(vector_view(p, y, DType::kFloat32, n)));
  return p;
}

}  // namespace lutra
