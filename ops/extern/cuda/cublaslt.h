// cuBLASLt's matrix product, found at run time.
#pragma once
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

// Whether the library was found; the answer never changes within a process. A message says once why not.
bool cublaslt_available();

// D (rows x cols) = op(A) op(B), or D += op(A) op(B), for each of `batch`, all column-major, leading dimensions and
// batch strides in elements.
struct LtProduct {
  DType dtype, result;  // D's: of half types it may be float32
  bool tf32, transpose_a, transpose_b, accumulate;
  int64_t rows, cols, depth, lda, ldb, ldd, batch, stride_a, stride_b, stride_d;
  const void *a, *b;
  void* d;
  int way = 0;  // the library's rank of the kernel; the last one where it has fewer
};
// Puts it into the stream; false where the library has no kernel for it. Which kernel is a function of everything in
// the problem but the pointers, of which alignment up to 16 bytes counts, of the GPU and of the library's version.
bool cublaslt_multiply(Launcher& l, const LtProduct& p);

// gemm.cc: c = a b of matrices of one dtype, c row-major, a and b row-major or transposes of such; as above.
bool multiply_matrices(Launcher& l, const ExternView& a, const ExternView& b, const ExternView& c, bool tf32);

}  // namespace lutra::cuda
