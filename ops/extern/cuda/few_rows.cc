// Products of few rows with a matrix whose rows are contiguous along the sum, as in decoding. The matrix is read once,
// at the memory's rate. If it has few bits, it is widened on the way. For products of more rows a few-bit matrix is
// widened first, a part at a time.
//
// Invariants:
// 1. A warp computes a result. Its lanes take 16 bytes of the matrix in turn, each a chain of multiply-adds in float32,
//    and are added by halves. So a row's bits depend on k and types alone, not on alignment or neighbouring rows.
// 2. Widened elements are exact. Scales are applied to sums, in float32: of whole rows for int8, of 32 elements for
//    int4.
#include <algorithm>
#include <bit>

#include "ops/extern/cuda/few_bits.h"
#include "ops/extern/cuda/kernels.h"

namespace lutra::cuda {
namespace {

// T0: elements of x and out. T1: the matrix's elements; u8 holds two int4. T2: scales. VARIANT: rows of x times 8, plus
// rows of the matrix that a warp takes.
const ExternSource kFewRows = {"few_rows", R"cuda(
#define M (VARIANT / 8)
#define R (VARIANT % 8)
#define WARPS 4
struct alignas(16) Pack { u32 v[4]; };
struct Product {
  i64 rows, n, k;
  i64 x_row, w_row, out_row, out_col;  // strides
  int group_bits, aligned;  // a group has 2^group_bits elements
};

// The elements in 16 bytes of the matrix, as floats. The bits of 2^23 + i are those of 2^23 with i in the lowest ones.
template <class T> struct Piece;
template <> struct Piece<float> {
  enum { elements = 4, bytes = 4 };
  static DEV void widen(const Pack& p, float* to) {
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = float_of(p.v[i]);
  }
};
template <> struct Piece<bfloat> {
  enum { elements = 8, bytes = 2 };
  static DEV void widen(const Pack& p, float* to) {
#pragma unroll
    for (int i = 0; i < 4; i++) to[2 * i] = float_of(p.v[i] << 16), to[2 * i + 1] = float_of(p.v[i] & 0xffff0000u);
  }
};
template <> struct Piece<half16> {
  enum { elements = 8, bytes = 2 };
  static DEV void widen(const Pack& p, float* to) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      half16 h;
      h.bits = (u16)(p.v[i / 2] >> i % 2 * 16);
      to[i] = from_half(h);
    }
  }
};
template <> struct Piece<i8> {
  enum { elements = 16, bytes = 1 };
  static DEV float one(u32 q, int i) {
#ifdef LUTRA_EMULATED
    return float_of((q >> 8 * i & 255) | 0x4b000000u) - 8388736.0f;
#else
    return float_of(__byte_perm(q, 0x4b000000u, 0x7650 + i)) - 8388736.0f;
#endif
  }
  static DEV void widen(const Pack& p, float* to) {
#pragma unroll
    for (int i = 0; i < 16; i++) to[i] = one(p.v[i / 4] ^ 0x80808080u, i % 4);
  }
};
template <> struct Piece<u8> {
  enum { elements = 32, bytes = 1 };
  static DEV void widen(const Pack& p, float* to) {
    const float by[4] = {1, 0.0625f, 0.00390625f, 0.000244140625f};
#pragma unroll
    for (int i = 0; i < 32; i++) {
      const u32 q = (p.v[i / 8] ^ 0x88888888u) >> i / 4 % 2 * 16, j = i % 4;
      // the float is 2^23 + 16^j (element + 8)
      to[i] = fmaf(float_of((q & 15u << 4 * j) | 0x4b000000u), by[j], -8388608.0f * by[j] - 8);
    }
  }
};

// Loads 16 bytes at p. Unless kWhole, the row has only `left` elements from there on; the others are 0.
template <bool kWhole, class T> DEV Pack piece(const T* p, i64 left) {
  enum { N = 16 / Piece<T>::bytes };
  if (kWhole) return *(const Pack*)p;
  Pack r;
  T one[N];
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (i * (Piece<T>::elements / N) < left) one[i] = p[i];
    else one[i] = element_of<T>(0);
  }
  memcpy(&r, one, 16);
  return r;
}

enum { E = Piece<T1>::elements, EX = Piece<T0>::elements, kInt4 = sizeof(T1) == 1 && E == 32, kAhead = R > 2 ? 2 : 4 };
struct Rows {
  const T0* x;
  const T1* w[R];
  const T2* scales[R];  // for int4: the scales of the first group
};

// Adds the products of kSteps pieces of this lane to acc. The first piece is at c.
template <bool kWhole, int kSteps> DEV void advance(float (&acc)[M][R], const Rows& at, const Product& g, i64 c) {
  Pack p[kSteps][R];
#pragma unroll
  for (int u = 0; u < kSteps; u++) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      const i64 here = c + u * 32 * E;
      p[u][r] = piece<kWhole>(at.w[r] + (kInt4 ? here / 2 : here), g.k - here);
    }
  }
#pragma unroll
  for (int u = 0; u < kSteps; u++, c += 32 * E) {
    float part[M][R], sum[M], wide[R][E];
#pragma unroll
    for (int m = 0; m < M; m++) {
      sum[m] = 0;
#pragma unroll
      for (int r = 0; r < R; r++) part[m][r] = kInt4 ? 0 : acc[m][r];
    }
#pragma unroll
    for (int r = 0; r < R; r++) Piece<T1>::widen(p[u][r], wide[r]);
#pragma unroll
    for (int m = 0; m < M; m++) {
      const T0* x = at.x + (m < g.rows ? m : 0) * g.x_row + c;
#pragma unroll
      for (int e = 0; e < E; e += EX) {
        float xs[EX];
        Piece<T0>::widen(piece<kWhole>(x + e, g.k - c - e), xs);
#pragma unroll
        for (int i = 0; i < EX; i++) {
          if (kInt4) sum[m] += xs[i];
#pragma unroll
          for (int r = 0; r < R; r++) part[m][r] = fmaf(xs[i], wide[r][e + i], part[m][r]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      const T2* s = kInt4 ? at.scales[r] + (c >> g.group_bits) * g.n * 2 : at.scales[r];
      const float scale = kInt4 ? Num<T2>::up(s[0]) : 0, zero = kInt4 ? Num<T2>::up(s[1]) : 0;
#pragma unroll
      for (int m = 0; m < M; m++) {
        acc[m][r] = kInt4 ? fmaf(sum[m], zero, fmaf(part[m][r], scale, acc[m][r])) : part[m][r];
      }
    }
  }
}

KERNEL BOUNDS(32 * WARPS) few_rows(const T0* x, const T1* w, const T2* scales, T0* out, Product g) {
  sync_dependencies();
  const int lane = threadIdx.x % 32;
  const i64 row0 = ((i64)blockIdx.x * WARPS + threadIdx.x / 32) * R;
  if (row0 >= g.n) return;
  Rows at;
  at.x = x;
#pragma unroll
  for (int r = 0; r < R; r++) {
    const i64 row = row0 + r < g.n ? row0 + r : row0;
    at.w[r] = w + row * g.w_row, at.scales[r] = scales + row * 2;
  }
  float acc[M][R];
#pragma unroll
  for (int m = 0; m < M; m++) {
#pragma unroll
    for (int r = 0; r < R; r++) acc[m][r] = 0;
  }
  i64 c = 0;  // the lanes have added the elements before c
  if (g.aligned) {
    for (; c + 32 * E * kAhead <= g.k; c += 32 * E * kAhead) advance<true, kAhead>(acc, at, g, c + lane * E);
    for (; c + 32 * E <= g.k; c += 32 * E) advance<true, 1>(acc, at, g, c + lane * E);
  }
  for (c += lane * E; c < g.k; c += 32 * E) advance<false, 1>(acc, at, g, c);
#pragma unroll
  for (int m = 0; m < M; m++) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      float v = acc[m][r];
#pragma unroll
      for (int far = 16; far; far /= 2) v += __shfl_xor_sync(0xffffffffu, v, far);
      if (lane || m >= g.rows || row0 + r >= g.n) continue;
      if (sizeof(T1) == 1 && !kInt4) v *= Num<T2>::up(scales[row0 + r]);
      out[m * g.out_row + (row0 + r) * g.out_col] = Num<T0>::down(v);
    }
  }
}
)cuda"};

// Widens rows of a few-bit matrix (n, k) to T0.
const ExternSource kWiden = {"widen_weight", R"cuda(
struct alignas(16) Pack { u32 v[4]; };
// Stores the 8 elements of a thread. `whole`: all 8 exist, and one access stores them.
DEV void put(T0* to, const float* v, i64 left, int whole) {
  T0 r[8];
#pragma unroll
  for (int i = 0; i < 8; i++) r[i] = Num<T0>::down(v[i]);
  if (whole) {
#pragma unroll
    for (int i = 0; i < (int)sizeof(r) / 16; i++) {
      Pack one;
      memcpy(&one, (const char*)r + 16 * i, 16);
      ((Pack*)to)[i] = one;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (i < left) to[i] = r[i];
  }
}
KERNEL widen_int8(const i8* w, const T1* scales, T0* to, i64 k, i64 w_row, int whole) {
  sync_dependencies();
  const i64 c = thread_number() * 8, row = blockIdx.y;
  if (c >= k) return;
  const i8* from = w + row * w_row + c;
  const float scale = Num<T1>::up(scales[row]);
  u64 all = 0;
  if (whole) all = *(const u64*)from;
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = (float)(whole ? (i8)(all >> 8 * i) : c + i < k ? from[i] : (i8)0) * scale;
  put(to + row * k + c, v, k - c, whole);
}
KERNEL widen_int4(const u8* w, const T1* scales, T0* to, i64 k, i64 w_row, int whole, i64 n, int group_bits) {
  sync_dependencies();
  const i64 c = thread_number() * 8, row = blockIdx.y;
  if (c >= k) return;
  const u8* from = w + row * w_row + c / 2;
  const T1* s = scales + ((c >> group_bits) * n + row) * 2;
  const float scale = Num<T1>::up(s[0]), zero = Num<T1>::up(s[1]);
  u32 all = 0;
  if (whole) all = *(const u32*)from;
  else for (int i = 0; i < 4; i++) all |= (u32)from[i] << 8 * i;
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = fmaf((float)((int)((all >> 4 * i & 15) ^ 8) - 8), scale, zero);
  put(to + row * k + c, v, k - c, whole);
}
)cuda"};

constexpr int64_t kWarps = 4, kMaxRows = 8;

// Returns how many rows of the matrix share what a warp reads of x. It is more for elements of fewer bytes, and as many
// as registers hold.
int matrix_rows(DType weight, int64_t rows) {
  const int most = size_of(weight) > 1 ? 1 : weight == DType::kUInt8 ? 4 : 2;
  return int(std::clamp<int64_t>(4 / rows, 1, most));
}

void launch(Launcher& l, const FewRowsData& data, FewRows p) {
  const int64_t all = p.rows;
  for (int64_t done = 0; done < all; done += kMaxRows) {
    p.rows = std::min(kMaxRows, all - done);
    int64_t m = 1;
    while (m < p.rows) m *= 2;
    const FewRowsData d = data.behind(p, done);
    const int r = matrix_rows(d.weight, m);
    p.aligned = d.is_aligned(p);
    const int64_t a_block = kWarps * r;
    l.run({kFewRows, "few_rows", {d.type, d.weight, d.scale}, int(m) * 8 + r}, {(p.n + a_block - 1) / a_block},
          32 * kWarps, d.x, d.w, d.scales, d.out, p);
  }
}

// A matrix product, written as x times the transpose of w.
struct Sides {
  ExternView x, w, out;
};
ExternView flipped(ExternView v) {
  std::swap(v.sizes[0], v.sizes[1]), std::swap(v.strides[0], v.strides[1]);
  return v;
}
Sides sides_of(const ExternCall& call) {
  const ExternView &a = call.in[0], &b = call.in[1], &c = call.out[0];
  if (c.sizes[1] < c.sizes[0]) return {flipped(b), a, flipped(c)};
  return {a, flipped(b), c};
}

bool lies_along(const ExternView& v) { return v.strides[1] == 1 || v.sizes[1] == 1; }

// Returns x, or a copy, with unit stride along the sum.
ExternView along(Launcher& l, const ExternView& v) { return lies_along(v) ? v : contiguous_copy(l, v, v.dtype); }

// The operands of a call with a few-bit matrix. For int4, w has bytes of two elements each.
struct Weight {
  const ExternView &x, &w, &scales, &out;
  bool is_int4;
  int32_t group_bits;
};
Weight weight_of(const ExternCall& call) {
  const bool is_int4 = call.op == OpId::weight_int4pack_mm;
  const int group_bits = is_int4 ? std::countr_zero(uint64_t(call.ints[0])) : 0;
  return {call.in[0], call.in[1], call.in[2], call.out[0], is_int4, group_bits};
}

// Multiplies with parts of w's rows, which it widens.
void multiply_widened(Launcher& l, const Weight& f, const ExternView& w, const ExternView& scales) {
  const int64_t k = f.x.sizes[1], n = f.out.sizes[1], each = std::clamp<int64_t>((int64_t(1) << 25) / k, 128, 65535);
  const DType type = f.x.dtype;
  ExternView wide = f.w, part = f.out;
  wide.dtype = type, wide.strides[0] = 1, wide.strides[1] = k, wide.sizes[0] = k;
  wide.data = l.scratch_bytes(size_t(std::min(n, each) * k) * size_of(type));
  for (int64_t first = 0; first < n; first += each) {
    const int64_t rows = std::min(each, n - first);
    const auto* from = static_cast<const char*>(w.data) + first * w.strides[0];
    const int64_t a_row = (f.is_int4 ? 2 : 1) * int64_t(size_of(scales.dtype));
    const auto* by = static_cast<const char*>(scales.data) + first * a_row;
    const int whole = k % 8 == 0 && std::bit_cast<uintptr_t>(w.data) % 8 == 0 && w.strides[0] % 8 == 0;
    const ExternGrid grid{(k + 2047) / 2048, rows};
    if (f.is_int4) {
      l.run({kWiden, "widen_int4", {type, scales.dtype}}, grid, 256, from, by, wide.data, k, w.strides[0], whole, n,
            f.group_bits);
    } else {
      l.run({kWiden, "widen_int8", {type, scales.dtype}}, grid, 256, from, by, wide.data, k, w.strides[0], whole);
    }
    wide.sizes[1] = part.sizes[1] = rows;
    part.data = static_cast<char*>(f.out.data) + first * f.out.strides[1] * int64_t(size_of(type));
    const ExternView in[] = {f.x, wide};
    ExternCall call = l.call;
    call.op = OpId::mm, call.in = in, call.out = {&part, 1}, call.ints = {};
    run_extern(call);
  }
}

}  // namespace

bool few_rows_supports(DType dtype) { return is_float(dtype) && size_of(dtype) <= 4; }

// Refuses few long rows, which a library sums faster: a warp sums a row.
bool few_rows_takes(const ExternCall& call) {
  const Sides s = sides_of(call);
  const int64_t n = s.w.sizes[0], k = s.w.sizes[1];
  return s.x.sizes[0] <= 2 && s.w.strides[1] == 1 && n > 1 && k > 1 && (n >= 1024 || k <= 8192);
}

void run_few_rows(const ExternCall& call) {
  Sides s = sides_of(call);
  if (s.out.numel() == 0) return;
  Launcher l(call);
  s.x = along(l, s.x);
  launch(
      l, {s.x.data, s.w.data, nullptr, s.out.data, s.x.dtype, s.w.dtype, DType::kFloat32},
      {s.x.sizes[0], s.w.sizes[0], s.w.sizes[1], s.x.strides[0], s.w.strides[0], s.out.strides[0], s.out.strides[1]});
}

void run_weight_mm(const ExternCall& call) {
  const Weight f = weight_of(call);
  if (f.out.numel() == 0) return;
  Launcher l(call);
  if (f.x.sizes[1] == 0) return l.zero(f.out.data, size_t(f.out.numel()) * size_of(f.out.dtype));
  const ExternView w = along(l, f.w);
  const bool pairs = std::bit_cast<uintptr_t>(f.scales.data) % (2 * size_of(f.scales.dtype)) == 0;
  const bool plain = f.is_int4 ? pairs && f.scales.strides[2] == 1 && f.scales.strides[1] == 2 &&
                                     f.scales.strides[0] == 2 * f.scales.sizes[1]
                               : f.scales.strides[0] == 1;
  const ExternView scales = plain ? f.scales : contiguous_copy(l, f.scales, f.scales.dtype);
  const ExternView x = f.x.sizes[0] > 64 ? f.x : along(l, f.x);
  FewRows p{x.sizes[0], f.out.sizes[1], x.sizes[1], x.strides[0], w.strides[0], f.out.strides[0], f.out.strides[1]};
  p.group_bits = f.group_bits;
  // With one row of int8 a warp mostly reads: half a kilobyte of a row, where a tile of tensor cores reads only 64
  // bytes.
  const bool on_cores = (p.rows > 1 || f.is_int4) && few_bits_takes(l, x.dtype, w.dtype, p);
  if (p.rows > (on_cores ? 64 : 2 * kMaxRows)) return multiply_widened(l, f, w, scales);
  const FewRowsData data{x.data, w.data, scales.data, f.out.data, x.dtype, w.dtype, scales.dtype};
  (on_cores ? few_bits : launch)(l, data, p);
}

}  // namespace lutra::cuda
