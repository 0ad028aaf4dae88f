// mm and bmm of float16 or bfloat16 views in, the product out: operands become float32, the float32 product runs, and
// the result is rounded once. The same bits at any number of threads, as each of the three steps gives.
#include <algorithm>

#include "ops/core/cpu.h"
#include "ops/core/error.h"
#include "ops/core/half.h"
#include "ops/extern/cpu/half_rows.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/scratch.h"

namespace lutra {
namespace {

constexpr int64_t kGrain = 1 << 15;  // elements that are worth a thread's while

void widen_row(DType type, const uint16_t* from, int64_t stride, float* to, int64_t n) {
  int64_t i = 0;
  if (type == DType::kBFloat16) {
    if constexpr (cpu::kX64) {
      if (stride == 1 && cpu::has_avx2()) return widen_bfloat16(from, to, n);
    }
    for (; i < n; i++) to[i] = bfloat16_to_float(from[i * stride]);
    return;
  }
  if constexpr (cpu::kX64) {
    if (stride == 1 && cpu::has_f16c()) i = widen_float16(from, to, n);
  }
  for (; i < n; i++) to[i] = half_to_float(from[i * stride]);
}

void narrow_row(DType type, const float* from, uint16_t* to, int64_t stride, int64_t n) {
  int64_t i = 0;
  if (type == DType::kBFloat16) {
    if constexpr (cpu::kX64) {
      if (stride == 1 && cpu::has_avx2()) return narrow_bfloat16(from, to, n);
    }
    for (; i < n; i++) to[i * stride] = float_to_bfloat16(from[i]);
    return;
  }
  if constexpr (cpu::kX64) {
    if (stride == 1 && cpu::has_f16c()) i = narrow_float16(from, to, n);
  }
  for (; i < n; i++) to[i * stride] = float_to_half(from[i]);
}

// A dense float32 view of v's shape whose last two dimensions lie in memory as v's do, so that rows are read along
// memory.
ExternView dense_like(const ExternView& v, float* data) {
  ExternView r = v;
  const int d = v.dim - 2;
  const bool transposed = v.strides[d + 1] > v.strides[d] && v.sizes[d] > 1;
  r.data = data;
  r.dtype = DType::kFloat32;
  r.strides[d] = transposed ? 1 : v.sizes[d + 1];
  r.strides[d + 1] = transposed ? v.sizes[d] : 1;
  if (d == 1) r.strides[0] = v.sizes[1] * v.sizes[2];
  return r;
}

// f(row of the half view, its element stride, row of the float32 view, elements) for each row, shared among threads.
template <class F>
void for_rows(const ExternView& half, const ExternView& full, ParallelFor parallel, const F& f) {
  const int d = half.dim - 2;
  const int inner = full.strides[d + 1] == 1 ? d + 1 : d, outer = inner == d ? d + 1 : d;
  const int64_t n = full.sizes[inner], rows = full.sizes[outer], total = rows * (d == 1 ? full.sizes[0] : 1);
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t b = i / rows, r = i % rows;
      const int64_t at = (d == 1 ? b * half.strides[0] : 0) + r * half.strides[outer];
      f(static_cast<uint16_t*>(half.data) + at, half.strides[inner], static_cast<float*>(full.data) + i * n, n);
    }
  };
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1));
  if (!parallel || total <= grain)
    body(0, total);
  else
    parallel(total, grain, body);
}

}  // namespace

bool gemm_half_supports(DType dtype) { return is_half(dtype) && gemm_supports(DType::kFloat32); }

void run_gemm_half(const ExternCall& call) {
  LUTRA_CHECK(call.in.size() == 2 && call.out.size() == 1);
  const ExternView& out = call.out[0];
  const DType type = out.dtype;
  ExternView in[2];
  for (int i = 0; i < 2; i++) {
    const ExternView& half = call.in[size_t(i)];
    LUTRA_CHECK(half.dtype == type);
    in[i] = dense_like(half, scratch<float>(i == 0 ? Scratch::kHalfA : Scratch::kHalfB, half.numel(), "matmul"));
    for_rows(half, in[i], call.parallel, [type](const uint16_t* from, int64_t stride, float* to, int64_t n) {
      widen_row(type, from, stride, to, n);
    });
  }
  const ExternView full = dense_like(out, scratch<float>(Scratch::kHalfOut, out.numel(), "matmul"));
  ExternCall product = call;
  product.in = in;
  product.out = {&full, 1};
  run_gemm(product);
  for_rows(out, full, call.parallel, [type](uint16_t* to, int64_t stride, const float* from, int64_t n) {
    narrow_row(type, from, to, stride, n);
  });
}

}  // namespace lutra
