// Products of up to 32 rows of half floats with a weight of int4, or of int8 and more than one row, on tensor cores.
// The weight is read once. Two of its elements at a time become half floats: they become the last bits of a number
// whose last bits count ones.
//
// Invariants:
// 1. A block computes 16 or 32 columns of the result. Its warps take blocks of k in turn, and their sums are added in
//    order. So a row's bits depend on k and types alone.
// 2. Widened elements are exact. Scales are applied to sums, in float32: of whole rows for int8, of blocks for int4.
#include "ops/extern/cuda/few_bits.h"

#include <algorithm>

#include "ops/cuda/context.h"

namespace lutra::cuda {
namespace {

// T0: elements of x and out. T1: i8, or u8 with two int4. T2: scales. VARIANT: tiles of 8 rows of x, plus 8 times the
// tiles of 16 rows of the weight in a block, plus 64 if rows are not whole accesses of 16 bytes.
const ExternSource kSource = {"few_bits",
                              R"cuda(
#define ALIGNED (VARIANT < 64)
#define NT (VARIANT % 8)
#define RT (VARIANT / 8 % 8)
#define WARPS 8
struct Product {
  i64 rows, n, k;
  i64 x_row, w_row, out_row, out_col;  // strides
  int group_bits, aligned;
};
struct alignas(16) Pack { u32 v[4]; };
template <class T> struct Bits { enum { four = 0, each = 16 }; };
template <> struct Bits<u8> { enum { four = 1, each = 32 }; };
// E: elements in 16 bytes of a lane. KB: elements of a block of k. kAhead: blocks that are read ahead.
enum { kFour = Bits<T1>::four, E = Bits<T1>::each, KB = 4 * E, kBfloat = IsBfloat<T0>::yes, kAhead = 2 };
struct alignas(2 * sizeof(T2)) Pair { T2 scale, zero; };

#ifdef LUTRA_EMULATED
DEV u32 fma2(u32 a, u32 b, u32 c) {
  u32 r = 0;
  for (int i = 0; i < 2; i++) {
    r |= (u32)Num<T0>::down(fmaf(half_of(a, i), half_of(b, i), half_of(c, i))).bits << 16 * i;
  }
  return r;
}
DEV u32 low_halves(u32 a, u32 b) { return (a & 0xffff) | b << 16; }
DEV u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000u); }
#else
DEV u32 fma2(u32 a, u32 b, u32 c) {
  u32 r;
  if (kBfloat) asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  else asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
DEV u32 low_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x5410); }
DEV u32 high_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x7632); }
#endif
DEV void mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma(c[0], c[1], c[2], c[3], a, b[0], b[1]); }

// Widens 4 elements of a lane and a row, the operands of one instruction, to two pairs. They are a word, for int4 half
// a word. 0x4300 is 128 as a bfloat, 0x6400 is 1024 as a half: adding i to these bits adds i to the number.
DEV void widen(u32 word, int half, u32& first, u32& second) {
  const u32 base = kBfloat ? 0x43004300u : 0x64006400u, one = kBfloat ? 0x3f803f80u : 0x3c003c00u;
  if (kFour) {
    const u32 q = word >> 8 * half, less = kBfloat ? 0xc308c308u : 0xe408e408u;  // -136, -1032
    first = fma2((q & 0x000f000fu) | base, one, less);
    second = fma2((q >> 4 & 0x000f000fu) | base, one, less);
  } else if (kBfloat) {
    // The sign bit turns 128 into 256, so a negative number is (128 + its lower bits) - 256.
    const u32 minus = 0xbf80bf80u, q = word >> 8;
    first = fma2((word & 0x00800080u) | base, minus, (word & 0x007f007fu) | base);
    second = fma2((q & 0x00800080u) | base, minus, (q & 0x007f007fu) | base);
  } else {
    const u32 less = 0xe480e480u;  // -1152
    first = fma2((word & 0x00ff00ffu) | base, one, less);
    second = fma2((word >> 8 & 0x00ff00ffu) | base, one, less);
  }
}
// Converts two's complement to an offset from the least element, if widen needs that.
DEV u32 biased(u32 word) { return kFour ? word ^ 0x88888888u : kBfloat ? word : word ^ 0x80808080u; }

template <class T> DEV Pack pack_at(const T* p) {
  if (ALIGNED) return *(const Pack*)p;
  Pack r = {{0, 0, 0, 0}};
#pragma unroll
  for (int i = 0; i < 16; i++) r.v[i / 4] |= (u32)((const u8*)p)[i] << i % 4 * 8;
  return r;
}
// Loads the elements of a row of x that are multiplied with those of a word of a lane, as pairs in the weight's order.
DEV void pairs_of(const T0* at, bool is_row, u32 (&pairs)[4]) {
  Pack got = {{0, 0, 0, 0}};
  if (is_row) {
    if (kFour) got = pack_at(at);
    else if (ALIGNED) *(u64*)got.v = *(const u64*)at;
    else for (int i = 0; i < 4; i++) got.v[i / 2] |= (u32)at[i].bits << i % 2 * 16;
  }
  const int far = kFour ? 2 : 1;
  pairs[0] = low_halves(got.v[0], got.v[far]), pairs[1] = high_halves(got.v[0], got.v[far]);
  if (kFour) pairs[2] = low_halves(got.v[1], got.v[3]), pairs[3] = high_halves(got.v[1], got.v[3]);
}

KERNEL BOUNDS(32 * WARPS, RT > 1 ? 1 : kFour ? 3 : 4)
few_bits(const T0* x, const T1* w, const T2* scales, T0* out, Product p) {
  sync_dependencies();
  __shared__ float sums[WARPS][RT * 16][NT * 8 + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const i64 row0 = (i64)blockIdx.x * (16 * RT);
  const T1* from[RT][2];
  u32 row[RT][2];
#pragma unroll
  for (int r = 0; r < RT; r++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      row[r][h] = (u32)(row0 + r * 16 + h * 8 + g < p.n ? row0 + r * 16 + h * 8 + g : p.n - 1);
      from[r][h] = w + row[r][h] * p.w_row + warp * 64 + t * 16;
    }
  }
  const T0* left[NT];
#pragma unroll
  for (int c = 0; c < NT; c++) left[c] = x + (c * 8 + g) * p.x_row + warp * KB + t * E;
  float acc[RT][NT][4];
#pragma unroll
  for (int r = 0; r < RT; r++) {
#pragma unroll
    for (int c = 0; c < NT; c++) acc[r][c][0] = acc[r][c][1] = acc[r][c][2] = acc[r][c][3] = 0;
  }
  const int blocks = (int)(p.k / KB), shift = p.group_bits - 7;
  Pack read[kAhead][RT][2];
  Pair by[kAhead][RT][2];
  // Loads block `at` of this warp, as the u-th of the blocks that are read ahead. It is `skip` behind the pointers.
  const auto fetch = [&](int at, int u, int skip) {
    if (at >= blocks) return;
#pragma unroll
    for (int r = 0; r < RT; r++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        read[u][r][h] = pack_at(from[r][h] + skip * WARPS * 64);
        const u32 group = kFour ? (u32)at >> shift : 0;
        if (kFour) by[u][r][h] = ((const Pair*)scales)[group * (u32)p.n + row[r][h]];
      }
    }
  };
#pragma unroll
  for (int u = 0; u < kAhead; u++) fetch(warp + u * WARPS, u, u);
  for (int first = warp; first < blocks; first += WARPS * kAhead) {
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      if (first + u * WARPS >= blocks) continue;
      float part[RT][NT][4], all[NT][4];
#pragma unroll
      for (int c = 0; c < NT; c++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          all[c][i] = 0;
#pragma unroll
          for (int r = 0; r < RT; r++) part[r][c][i] = kFour ? 0 : acc[r][c][i];
        }
      }
#pragma unroll
      for (int word = 0; word < 4; word++) {
        u32 pairs[NT][4];
#pragma unroll
        for (int c = 0; c < NT; c++) {
          pairs_of(left[c] + u * WARPS * KB + word * (E / 4), c * 8 + g < p.rows, pairs[c]);
        }
#pragma unroll
        for (int half = 0; half < (kFour ? 2 : 1); half++) {
#pragma unroll
          for (int r = 0; r < RT; r++) {
            u32 a[4];
            widen(biased(read[u][r][0].v[word]), half, a[0], a[2]);
            widen(biased(read[u][r][1].v[word]), half, a[1], a[3]);
#pragma unroll
            for (int c = 0; c < NT; c++) {
              const u32 b[2] = {pairs[c][2 * half], pairs[c][2 * half + 1]};
              mma(part[r][c], a, b);
            }
          }
          if (kFour) {
            const u32 one = kBfloat ? 0x3f803f80u : 0x3c003c00u, a[4] = {one, one, one, one};
#pragma unroll
            for (int c = 0; c < NT; c++) {
              const u32 b[2] = {pairs[c][2 * half], pairs[c][2 * half + 1]};
              mma(all[c], a, b);
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < RT; r++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const float scale = kFour ? Num<T2>::up(by[u][r][h].scale) : 0;
          const float zero = kFour ? Num<T2>::up(by[u][r][h].zero) : 0;
#pragma unroll
          for (int c = 0; c < NT; c++) {
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
              acc[r][c][i] = kFour ? fmaf(all[c][i], zero, fmaf(part[r][c][i], scale, acc[r][c][i])) : part[r][c][i];
            }
          }
        }
      }
      fetch(first + (u + kAhead) * WARPS, u, u + kAhead);
    }
#pragma unroll
    for (int r = 0; r < RT; r++) from[r][0] += WARPS * kAhead * 64, from[r][1] += WARPS * kAhead * 64;
#pragma unroll
    for (int c = 0; c < NT; c++) left[c] += WARPS * kAhead * KB;
  }
#pragma unroll
  for (int r = 0; r < RT; r++) {
#pragma unroll
    for (int c = 0; c < NT; c++) {
#pragma unroll
      for (int i = 0; i < 4; i++) sums[warp][r * 16 + i / 2 * 8 + g][c * 8 + t * 2 + i % 2] = acc[r][c][i];
    }
  }
  __syncthreads();
  for (int e = threadIdx.x; e < RT * 16 * NT * 8; e += 32 * WARPS) {
    const int r = e % (RT * 16), m = e / (RT * 16);
    if (row0 + r >= p.n || m >= p.rows) continue;
    float v = sums[0][r][m];
    for (int s = 1; s < WARPS; s++) v += sums[s][r][m];
    if (!kFour) v *= Num<T2>::up(scales[row0 + r]);
    out[m * p.out_row + (row0 + r) * p.out_col] = Num<T0>::down(v);
  }
}
)cuda",
                              {kHalfCoresText}};

constexpr int64_t kMaxRows = 32;

}  // namespace

bool few_bits_takes(Launcher& l, DType type, DType weight, const FewRows& p) {
  const bool four = weight == DType::kUInt8;
  if (!emulated() && l.context().arch < 80) return false;
  const bool fits = p.k <= INT32_MAX && p.k / 128 * p.n <= UINT32_MAX;
  return is_half(type) && fits && p.k % (four ? 128 : 64) == 0 && (!four || p.group_bits >= 7);
}

void few_bits(Launcher& l, const FewRowsData& data, FewRows p) {
  const int64_t all = p.rows;
  for (int64_t done = 0; done < all; done += kMaxRows) {
    p.rows = std::min(kMaxRows, all - done);
    const int tiles = p.rows <= 8 ? 1 : p.rows <= 16 ? 2 : 4, stacked = tiles == 1 ? 1 : 2;
    const FewRowsData d = data.behind(p, done);
    const int64_t a_block = 16 * stacked;
    l.run({kSource, "few_bits", {d.type, d.weight, d.scale}, tiles + 8 * stacked + 64 * !d.is_aligned(p)},
          {(p.n + a_block - 1) / a_block}, 256, d.x, d.w, d.scales, d.out, p);
  }
}

}  // namespace lutra::cuda
