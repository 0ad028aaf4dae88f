// Convolutions of few input channels (the first layer's) and their gradients by weight and bias, without a library and
// without copies. Images, weights and maps may have any strides.
//
// Invariants:
// 1. An element of a map is one chain that begins with the bias, over taps by row, column and channel: the CPU's order.
//    Beyond a row's ends an image is zeros.
// 2. The sum of a weight or a bias is a function of the sizes: chains of every eighth pixel of a band of rows, joined
//    in a fixed tree, then every 32nd band in the order of images and rows, joined in the same way.
// 3. Sums are of float32 (float64 for float64), whatever precision.h says.
#include <algorithm>
#include <climits>

#include "ops/core/numerics.h"
#include "ops/extern/cuda/conv.h"
#include "ops/extern/cuda/kernels.h"

namespace lutra::cuda {
namespace {

constexpr int64_t kMaxTaps = 32, kMaxStep = 9;  // a step: stride or dilation along a row
constexpr int64_t kMaxStage = 40 * 1024;        // bytes of an image in shared memory
constexpr int64_t kChunk = 64;                  // channels of the map in a block
constexpr int64_t kManyThreads = 1 << 17;       // with more threads, a thread computes four pixels

// VARIANT: the step, the dilation along a row, the channels, and the kernel's rows and columns, as decimal digits 1 1 2
// 2 2.
const ExternSource kSource = {"conv_few", R"cuda(
typedef Num<T0>::A A;
enum {
  kSw = VARIANT / 10000000, kDw = VARIANT / 1000000 % 10,
  kC = VARIANT / 10000 % 100, kH = VARIANT / 100 % 100, kW = VARIANT % 100,
  kTaps = kC * kH * kW, kChunk = 64, kEach = 8
};
struct alignas(16) Pack { T0 e[16 / sizeof(T0)]; };

// A thread computes kPixels pixels of a row by kEach channels.
template <int kPixels>
DEV void few_map(A* weights, const Geometry& g, const View& x, const View& w, const View& bias, const View& y, bool last,
                 bool packed) {
  const int chunk = blockIdx.y * kChunk, channels = (int)g.k - chunk < kChunk ? (int)g.k - chunk : kChunk;
  for (int i = threadIdx.x; i < kTaps * kChunk; i += 128) {
    const int k = i % kChunk, t = i / kChunk, c = t % kC, s = t / kC % kW, r = t / kC / kW;
    weights[i] = k < channels ? Num<T0>::up(((const T0*)w.data)[(chunk + k) * w.strides[0] + c * w.strides[1] +
                                                              r * w.strides[2] + s * w.strides[3]]) : (A)0;
  }
  __syncthreads();
  const u32 parts = (channels + kEach - 1) / kEach, strips = ((u32)g.ow + kPixels - 1) / kPixels;
  u32 i = blockIdx.x * 128 + threadIdx.x, part;
  const u32 pixels = (u32)g.batch * (u32)g.oh * strips;
  if (i >= pixels * parts) return;
  if (last) part = i % parts, i /= parts;
  else part = i / pixels, i %= pixels;
  const int k0 = part * kEach, q0 = i % strips * kPixels, p = i / strips % (u32)g.oh, n = i / strips / (u32)g.oh;
  A sums[kPixels][kEach];
#pragma unroll
  for (int j = 0; j < kEach; j++) {
    const A b = bias.data && k0 + j < channels ? Num<T0>::up(((const T0*)bias.data)[(chunk + k0 + j) * bias.strides[0]]) : (A)0;
#pragma unroll
    for (int a = 0; a < kPixels; a++) sums[a][j] = b;
  }
  enum { kColumns = (kPixels - 1) * kSw + (kW - 1) * kDw + 1 };
  const int left = q0 * kSw - (int)g.pw;
#pragma unroll
  for (int r = 0; r < kH; r++) {
    const int h = p * (int)g.sh - (int)g.ph + r * (int)g.dh;
    if ((u32)h >= (u32)g.h) continue;
    const T0* const row = (const T0*)x.data + n * x.strides[0] + h * x.strides[2];
    A line[kC][kColumns];  // columns that no tap reads are never loaded
#pragma unroll
    for (int c = 0; c < kC; c++) {
#pragma unroll
      for (int j = 0; j < kColumns; j++) {
        const bool inside = (u32)(left + j) < (u32)g.w;
        line[c][j] = inside ? Num<T0>::up(row[c * x.strides[1] + (left + j) * x.strides[3]]) : (A)0;
      }
    }
#pragma unroll
    for (int s = 0; s < kW; s++) {
#pragma unroll
      for (int c = 0; c < kC; c++) {
        const A* const tap = weights + ((r * kW + s) * kC + c) * kChunk + k0;
#pragma unroll
        for (int a = 0; a < kPixels; a++) {
#pragma unroll
          for (int j = 0; j < kEach; j++) sums[a][j] = mad(line[c][a * kSw + s * kDw], tap[j], sums[a][j]);
        }
      }
    }
  }
#pragma unroll
  for (int a = 0; a < kPixels; a++) {
    if (q0 + a >= (int)g.ow) break;
    T0* const to = (T0*)y.data + n * y.strides[0] + (chunk + k0) * y.strides[1] + p * y.strides[2] + (q0 + a) * y.strides[3];
    if (packed) {
      enum { kEachPack = 16 / sizeof(T0) };
#pragma unroll
      for (int j = 0; j < kEach; j += kEachPack) {
        Pack pack;
#pragma unroll
        for (int m = 0; m < kEachPack; m++) pack.e[m] = Num<T0>::down(sums[a][j + m]);
        *(Pack*)(to + j) = pack;
      }
      continue;
    }
#pragma unroll
    for (int j = 0; j < kEach; j++) {
      if (k0 + j < channels) to[j * y.strides[1]] = Num<T0>::down(sums[a][j]);
    }
  }
}
KERNEL BOUNDS(128) few_map_2(Geometry g, View x, View w, View bias, View y, int last, int packed) {
  sync_dependencies();
  alignas(16) __shared__ A weights[kTaps * kChunk];
  few_map<2>(weights, g, x, w, bias, y, last, packed);
}
KERNEL BOUNDS(128) few_map_4(Geometry g, View x, View w, View bias, View y, int last, int packed) {
  sync_dependencies();
  alignas(16) __shared__ A weights[kTaps * kChunk];
  few_map<4>(weights, g, x, w, bias, y, last, packed);
}

// A block sums 32 channels of the map over a band of rows of an image. A lane is a channel. A warp handles every eighth
// pixel. The last sum is that of the bias.
KERNEL BOUNDS(256) few_weight(Geometry g, View y, View x, A* partial, int rows) {
  sync_dependencies();
  DYNAMIC_SHARED(memory);
  A* const stage = (A*)memory;
  const int bands = ((int)g.oh + rows - 1) / rows, n = blockIdx.x / bands, p0 = blockIdx.x % bands * rows;
  const int lines = (rows - 1) * (int)g.sh + (kH - 1) * (int)g.dh + 1, wide = ((int)g.ow - 1) * kSw + (kW - 1) * kDw + 1;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = warp; i < kC * lines; i += 8) {
    const int c = i / lines, h = p0 * (int)g.sh - (int)g.ph + i % lines;
    const T0* const row = (const T0*)x.data + n * x.strides[0] + c * x.strides[1] + h * x.strides[2];
    for (int j = lane; j < wide; j += 32) {
      const int v = j - (int)g.pw;
      const bool inside = (u32)v < (u32)g.w && (u32)h < (u32)g.h;
      stage[i * wide + j] = inside ? Num<T0>::up(row[v * x.strides[3]]) : (A)0;
    }
  }
  __syncthreads();
  const int k = blockIdx.y * 32 + lane, left = (int)g.oh - p0, total = (left < rows ? left : rows) * (int)g.ow;
  const T0* const from = (const T0*)y.data + n * y.strides[0] + (k < (int)g.k ? k : 0) * y.strides[1];
  const float inverse = 1.0f / (float)g.ow;  // precise enough, because total is small
  A sums[kTaps + 1];
#pragma unroll
  for (int t = 0; t <= kTaps; t++) sums[t] = 0;
#pragma unroll 4
  for (int j = warp; j < total; j += 8) {
    const int p = (int)(((float)j + 0.5f) * inverse), q = j - p * (int)g.ow;
    const A v = Num<T0>::up(from[(p0 + p) * y.strides[2] + q * y.strides[3]]);
    const A* const at = stage + p * (int)g.sh * wide + q * kSw;
#pragma unroll
    for (int t = 0; t < kTaps; t++) {
      const int c = t % kC, s = t / kC % kW, r = t / kC / kW;
      sums[t] = mad(at[(c * lines + r * (int)g.dh) * wide + s * kDw], v, sums[t]);
    }
    sums[kTaps] = sums[kTaps] + v;
  }
  A* const to = partial + ((i64)blockIdx.x * gridDim.y + blockIdx.y) * (kTaps + 1) * 32;
#pragma unroll
  for (int first = 0; first <= kTaps; first += 8) {
    __syncthreads();
#pragma unroll
    for (int t = first; t < first + 8 && t <= kTaps; t++) stage[(warp * 8 + t - first) * 32 + lane] = sums[t];
    __syncthreads();
    const int i = threadIdx.x;
    if (first + i / 32 > kTaps) continue;
    A s[8];
#pragma unroll
    for (int m = 0; m < 8; m++) s[m] = stage[m * 256 + i];
    to[first * 32 + i] = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  }
}
KERNEL BOUNDS(1024) few_weight_sum(const A* partial, View w, View bias, int blocks, int channels) {
  sync_dependencies();
  __shared__ A sums[1024];
  sum_bands<kTaps, kC, kW, T0>(sums, partial, w, bias, blocks, channels);
}
)cuda",
                              kConvText};

int variant_of(const ConvGeometry& g) { return int((((g.sw * 10 + g.dw) * 100 + g.c) * 100 + g.kh) * 100 + g.kw); }

// Returns the bytes of the image that a band of rows needs.
int64_t stage_bytes(const ConvGeometry& g, int64_t rows, DType t) {
  const int64_t lines = (rows - 1) * g.sh + (g.kh - 1) * g.dh + 1, wide = (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1;
  return g.c * lines * wide * (t == DType::kFloat64 ? 8 : 4);
}

void map(Launcher& l, const ConvOperands& o) {
  const ConvGeometry& g = o.g;
  const ExternView bias = l.call.in[2];
  const int64_t parts = (std::min(g.k, kChunk) + 7) / 8, chunks = (g.k + kChunk - 1) / kChunk;
  const int64_t pixels = g.batch * g.oh * ((g.ow + 3) / 4);
  const bool four = pixels * parts * chunks >= kManyThreads && g.sw <= 2;
  const int64_t threads = (four ? pixels : g.batch * g.oh * ((g.ow + 1) / 2)) * parts;
  const int last = o.y.strides[1] == 1;
  bool packed = last && g.k % 8 == 0 && reinterpret_cast<uintptr_t>(o.y.data) % 16 == 0;
  for (int d : {0, 2, 3}) packed &= o.y.strides[d] % 8 == 0;
  l.run({kSource, four ? "few_map_4" : "few_map_2", {o.x.dtype}, variant_of(g)}, {(threads + 127) / 128, chunks}, 128,
        g, o.x, o.w, bias, o.y, last, int(packed));
}

void weight(Launcher& l, const ConvOperands& o) {
  const ConvGeometry& g = o.g;
  const bool wide = o.x.dtype == DType::kFloat64;
  const int64_t chunks = (g.k + 31) / 32;
  const int64_t bands = std::clamp<int64_t>(numerics::kWeightBlocks / (g.batch * chunks), 1, g.oh);
  int64_t rows = (g.oh + bands - 1) / bands;
  while (rows > 1 && stage_bytes(g, rows, o.x.dtype) > kMaxStage) rows--;
  const int64_t blocks = g.batch * ((g.oh + rows - 1) / rows);
  const int64_t reduce = 8 * 8 * 32 * (wide ? 8 : 4);
  void* partial = l.scratch_bytes(size_t(blocks * chunks * (g.c * g.kh * g.kw + 1) * 32) * (wide ? 8 : 4));
  const int shared = int(std::max(stage_bytes(g, rows, o.x.dtype), reduce));
  l.run({kSource, "few_weight", {o.x.dtype}, variant_of(g), shared}, {blocks, chunks}, 256, g, o.y, o.x, partial,
        int(rows));
  l.run({kSource, "few_weight_sum", {o.x.dtype}, variant_of(g)}, {g.c * g.kh * g.kw + 1, chunks}, 1024, partial, o.w,
        l.call.out[1], int(blocks), int(g.k));
}

}  // namespace

bool few_channels_supports(DType dtype) { return is_float(dtype); }

bool few_channels_takes(const ExternCall& call) {
  const ConvOperands o = conv_operands(call);
  const ConvGeometry& g = o.g;
  if (g.groups != 1 || g.k < 4 || g.c * g.kh * g.kw > kMaxTaps || is_pixel_product(g, o.x.dtype)) return false;
  if (g.sw > kMaxStep || g.dw > kMaxStep || g.k > 64 * 1024) return false;
  const int64_t most = std::max({o.x.numel(), o.w.numel(), o.y.numel()});
  if (o.x.numel() == 0 || o.y.numel() == 0 || most > INT_MAX) return false;
  return call.op == OpId::convolution || stage_bytes(g, 1, o.x.dtype) <= kMaxStage;
}

void run_few_channels(const ExternCall& call) {
  Launcher l(call);
  const ConvOperands o = conv_operands(call);
  call.op == OpId::convolution ? map(l, o) : weight(l, o);
}

}  // namespace lutra::cuda
