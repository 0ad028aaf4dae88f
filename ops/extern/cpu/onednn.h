// oneDNN's single precision product, found at run time: libdnnl is opened at the first question, since loading it costs
// milliseconds that a session without products should not pay.
#pragma once
#include <cstdint>

namespace lutra {

// Whether the library was found. The answer never changes within a process.
bool onednn_available();

// C = A B, row-major, on the calling thread alone. trans_a: A is stored as its transpose, rows lda apart; so for B.
void onednn_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                  const float* b, int64_t ldb, float* c, int64_t ldc);

}  // namespace lutra
