// Products on tensor cores, for the sources that name it as what comes before them: numbers rounded to TF32, and a
// warp's instruction, which the tests' host compiler makes lane by lane.
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

const char kTensorCoresText[] = R"cuda(
// To the nearest, ties away from zero.
DEV float tf32(float x) {
#ifdef LUTRA_EMULATED
  return x - x == 0 ? float_of((bits_of(x) + 0x1000) & 0xffffe000u) : x;
#else
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return float_of(r);
#endif
}
// c (16 x 8) += a (16 x 8) b (8 x 8), spread over the warp as the instruction wants it.
DEV void mma(float& c0, float& c1, float& c2, float& c3, const float* a, float b0, float b1) {
#ifdef LUTRA_EMULATED
  static float parts[32][32][6];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int r = 0; r < 4; r++) parts[warp][lane][r] = a[r];
  parts[warp][lane][4] = b0, parts[warp][lane][5] = b1;
  __syncwarp();
  for (int k = 0; k < 8; k++) {
    const float *x = parts[warp][g * 4 + k % 4] + k / 4 * 2, *y = parts[warp][2 * t * 4 + k % 4] + 4 + k / 4;
    const float* z = parts[warp][(2 * t + 1) * 4 + k % 4] + 4 + k / 4;
    c0 += x[0] * *y, c1 += x[0] * *z, c2 += x[1] * *y, c3 += x[1] * *z;
  }
  __syncwarp();
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(bits_of(a[0])), "r"(bits_of(a[1])), "r"(bits_of(a[2])), "r"(bits_of(a[3])), "r"(bits_of(b0)),
        "r"(bits_of(b1)));
#endif
}
)cuda";

}  // namespace lutra::cuda
