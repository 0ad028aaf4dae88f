// The texts of products on tensor cores, which sources list in `before`: numbers rounded to TF32, halves, and a warp's
// instructions. The tests' host compiler emulates these lane by lane.
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

const char kTensorCoresText[] = R"cuda(
// Rounds to the nearest TF32 number, ties away from zero.
DEV float tf32(float x) {
#ifdef LUTRA_EMULATED
  return x - x == 0 ? float_of((bits_of(x) + 0x1000) & 0xffffe000u) : x;
#else
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return float_of(r);
#endif
}
// Computes c (16 x 8) += a (16 x 8) b (8 x 8). The warp's lanes hold the fragments that the mma instruction defines.
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
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(bits_of(a[0])), "r"(bits_of(a[1])), "r"(bits_of(a[2])), "r"(bits_of(a[3])), "r"(bits_of(b0)),
        "r"(bits_of(b1)));
#endif
}
)cuda";

// The text for half types, which are T0.
const char kHalfCoresText[] = R"cuda(
template <class T> struct IsBfloat { enum { yes = 0 }; };
template <> struct IsBfloat<bfloat> { enum { yes = 1 }; };
// Packs two numbers as halves, rounded to the nearest, ties to even. The first one is in the low bits.
DEV u32 pair_of(float a, float b) {
#ifdef LUTRA_EMULATED
  return Num<T0>::down(a).bits | (u32)Num<T0>::down(b).bits << 16;
#else
  u32 r;
  if (IsBfloat<T0>::yes) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
#endif
}
#ifdef LUTRA_EMULATED
DEV float half_of(u32 pair, int i) {
  T0 v;
  v.bits = (u16)(pair >> 16 * i);
  return Num<T0>::up(v);
}
#endif
// Computes c (16 x 8) += a (16 x 16) b (16 x 8). The warp's lanes hold the fragments that mma defines.
DEV void mma(float& c0, float& c1, float& c2, float& c3, const u32* a, u32 b0, u32 b1) {
#ifdef LUTRA_EMULATED
  static u32 parts[32][32][6];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (int r = 0; r < 4; r++) parts[warp][lane][r] = a[r];
  parts[warp][lane][4] = b0, parts[warp][lane][5] = b1;
  __syncwarp();
  for (int k = 0; k < 16; k++) {
    const int at = k % 8 / 2, i = k % 2, far = k / 8;
    const u32 *x = parts[warp][g * 4 + at] + 2 * far, *y = parts[warp][2 * t * 4 + at] + 4 + far;
    const u32* z = parts[warp][(2 * t + 1) * 4 + at] + 4 + far;
    c0 += half_of(x[0], i) * half_of(*y, i), c1 += half_of(x[0], i) * half_of(*z, i);
    c2 += half_of(x[1], i) * half_of(*y, i), c3 += half_of(x[1], i) * half_of(*z, i);
  }
  __syncwarp();
#else
  if (IsBfloat<T0>::yes) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#endif
}
// Loads four 8 x 8 matrices of shared memory as operands of mma (ldmatrix). Lane 8 m + r passes the address of row r of
// matrix m. kTurned: the matrices are transposed.
template <bool kTurned> DEV void load_matrices(u32 (&to)[4], const T0* row) {
#ifdef LUTRA_EMULATED
  static const T0* rows[32][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  rows[warp][lane] = row;
  __syncwarp();
  for (int m = 0; m < 4; m++) {
    const T0* const* of = rows[warp] + 8 * m;
    const T0 low = kTurned ? of[2 * t][g] : of[g][2 * t], high = kTurned ? of[2 * t + 1][g] : of[g][2 * t + 1];
    to[m] = low.bits | (u32)high.bits << 16;
  }
  __syncwarp();
#else
  u32 at;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(row));
  if (kTurned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at));
  }
#endif
}
)cuda";

}  // namespace lutra::cuda
