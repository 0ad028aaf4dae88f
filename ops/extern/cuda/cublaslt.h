// cuBLASLt's matrix product. The library is found at run time.
#pragma once
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

// Returns whether the library was found. The answer never changes within a process. If not, one message tells why.
bool cublaslt_available();

// D (rows x cols) = op(A) op(B), or D += op(A) op(B), for each of `batch`. All are column-major, with leading
// dimensions and batch strides in elements.
struct LtProduct {
  DType dtype, result;  // result is D's dtype; for half types it may be float32
  bool tf32, transpose_a, transpose_b, accumulate;
  int64_t rows, cols, depth, lda, ldb, ldd, batch, stride_a, stride_b, stride_d;
  const void *a, *b;
  void* d;
  int way = 0;  // the kernel's rank by the library; the last one if it has fewer
};
// Enqueues the product. Returns false if the library has no kernel for it. The kernel is a function of the whole
// problem, the GPU and the library's version. Of the pointers only the alignment up to 16 bytes counts.
bool cublaslt_multiply(Launcher& l, const LtProduct& p);

// gemm.cc: computes c = a b for matrices of one dtype. c is row-major, a and b are row-major or transposes of such.
// Returns as above.
bool multiply_matrices(Launcher& l, const ExternView& a, const ExternView& b, const ExternView& c, bool tf32);

}  // namespace lutra::cuda
