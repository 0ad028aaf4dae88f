// Depthwise convolutions (as many groups as channels in and out) and their gradients. Images, weights and maps may have
// any strides. The kernels read and write each element about once.
//
// Invariants:
// 1. An element of a map or an image is one chain over its taps, in the CPU's order. A map's begins with the bias.
//    Beyond a row's ends an image is zeros.
// 2. The sum of a weight or a bias is a function of the sizes: chains of every eighth strip of a band of rows, joined
//    in a fixed tree, then every 32nd band in the order of images and rows, joined in the same way.
// 3. Sums are of float32 (float64 for float64).
#include <algorithm>
#include <climits>

#include "ops/core/numerics.h"
#include "ops/extern/cuda/conv.h"
#include "ops/extern/cuda/kernels.h"

namespace lutra::cuda {
namespace {

constexpr int64_t kMaxTaps = 49, kMaxStep = 4;  // a step: stride or dilation
constexpr int64_t kChunk = 128;                 // channels of the map in a block

// VARIANT: the strides, the dilation along a row, and the kernel's rows and columns, as decimal digits 1 1 1 2 2.
const ExternSource kSource = {"conv_depthwise", R"cuda(
typedef Num<T0>::A A;
enum {
  kSh = VARIANT / 1000000, kSw = VARIANT / 100000 % 10, kDw = VARIANT / 10000 % 10, kH = VARIANT / 100 % 100,
  kW = VARIANT % 100, kTaps = kH * kW, kChunk = 128, kPixels = 4, kEach = 4,
  kColumns = (kPixels - 1) * kSw + (kW - 1) * kDw + 1
};
struct alignas(sizeof(T0) * kEach > 16 ? 16 : sizeof(T0) * kEach) Pack { T0 e[kEach]; };

// Loads kEach neighbouring channels. Only the first `count` exist.
DEV void load_each(A (&to)[kEach], const T0* from, i64 stride, int count, bool packed) {
  if (packed) {
    const Pack pack = *(const Pack*)from;
#pragma unroll
    for (int j = 0; j < kEach; j++) to[j] = Num<T0>::up(pack.e[j]);
    return;
  }
#pragma unroll
  for (int j = 0; j < kEach; j++) to[j] = j < count ? Num<T0>::up(from[j * stride]) : (A)0;
}
DEV void store_each(T0* to, const A (&from)[kEach], i64 stride, int count, bool packed) {
  if (packed) {
    Pack pack;
#pragma unroll
    for (int j = 0; j < kEach; j++) pack.e[j] = Num<T0>::down(from[j]);
    *(Pack*)to = pack;
    return;
  }
#pragma unroll
  for (int j = 0; j < kEach; j++) {
    if (j < count) to[j * stride] = Num<T0>::down(from[j]);
  }
}
// Loads the weights of the chunk, one row for each tap. flip: from the last tap to the first.
DEV void load_weights(A* weights, const View& w, int chunk, int channels, bool flip) {
  for (int i = threadIdx.x; i < kTaps * kChunk; i += 128) {
    const int k = i % kChunk, t = i / kChunk, s = flip ? kW - 1 - t % kW : t % kW, r = flip ? kH - 1 - t / kW : t / kW;
    const T0* const from = (const T0*)w.data + (chunk + k) * w.strides[0] + r * w.strides[2] + s * w.strides[3];
    weights[i] = k < channels ? Num<T0>::up(*from) : (A)0;
  }
  __syncthreads();
}
// The channels and the strip of pixels that a thread computes. last: channels are innermost.
struct Place { int k0, q0, p, n; bool exists; };
DEV Place place_of(u32 i, u32 batch, u32 rows, u32 strips, int channels, bool last) {
  const u32 parts = (channels + kEach - 1) / kEach, pixels = batch * rows * strips;
  Place at;
  at.exists = i < pixels * parts;
  u32 part;
  if (last) part = i % parts, i /= parts;
  else part = i / pixels, i %= pixels;
  at.k0 = part * kEach, at.q0 = i % strips, at.p = i / strips % rows, at.n = i / strips / rows;
  return at;
}

// A thread computes kPixels pixels of a row by kEach channels.
KERNEL BOUNDS(128) depthwise_map(Geometry g, View x, View w, View bias, View y, int last, int packed, int flip) {
  sync_dependencies();
  alignas(16) __shared__ A weights[kTaps * kChunk];
  const int chunk = blockIdx.y * kChunk, channels = (int)g.groups - chunk < kChunk ? (int)g.groups - chunk : kChunk;
  load_weights(weights, w, chunk, channels, flip);
  const u32 strips = ((u32)g.ow + kPixels - 1) / kPixels;
  const Place at = place_of(blockIdx.x * 128 + threadIdx.x, (u32)g.batch, (u32)g.oh, strips, channels, last);
  if (!at.exists) return;
  const int k = chunk + at.k0, count = channels - at.k0, q0 = at.q0 * kPixels, left = q0 * kSw - (int)g.pw;
  A first[kEach], sums[kPixels][kEach];
  for (int j = 0; j < kEach; j++) first[j] = 0;
  if (bias.data) load_each(first, (const T0*)bias.data + k * bias.strides[0], bias.strides[0], count, false);
#pragma unroll
  for (int a = 0; a < kPixels; a++) {
#pragma unroll
    for (int j = 0; j < kEach; j++) sums[a][j] = first[j];
  }
#pragma unroll
  for (int r = 0; r < kH; r++) {
    const int h = at.p * kSh - (int)g.ph + r * (int)g.dh;
    if ((u32)h >= (u32)g.h) continue;
    const T0* const row = (const T0*)x.data + at.n * x.strides[0] + k * x.strides[1] + h * x.strides[2];
    A line[kColumns][kEach];  // columns that no tap reads are never loaded
#pragma unroll
    for (int v = 0; v < kColumns; v++) {
#pragma unroll
      for (int j = 0; j < kEach; j++) line[v][j] = 0;
      if ((u32)(left + v) < (u32)g.w) load_each(line[v], row + (left + v) * x.strides[3], x.strides[1], count, packed);
    }
#pragma unroll
    for (int s = 0; s < kW; s++) {
      const A* const tap = weights + (r * kW + s) * kChunk + at.k0;
#pragma unroll
      for (int a = 0; a < kPixels; a++) {
#pragma unroll
        for (int j = 0; j < kEach; j++) sums[a][j] = mad(line[a * kSw + s * kDw][j], tap[j], sums[a][j]);
      }
    }
  }
  T0* const to = (T0*)y.data + at.n * y.strides[0] + k * y.strides[1] + at.p * y.strides[2];
#pragma unroll
  for (int a = 0; a < kPixels; a++) {
    if (q0 + a < (int)g.ow) store_each(to + (q0 + a) * y.strides[3], sums[a], y.strides[1], count, packed);
  }
}
// Computes the gradient of the image if the stride skips taps. A thread computes kPixels of a row by kEach channels.
KERNEL BOUNDS(128) depthwise_image(Geometry g, View y, View w, View x, int last, int packed) {
  sync_dependencies();
  alignas(16) __shared__ A weights[kTaps * kChunk];
  const int chunk = blockIdx.y * kChunk, channels = (int)g.groups - chunk < kChunk ? (int)g.groups - chunk : kChunk;
  load_weights(weights, w, chunk, channels, false);
  const u32 strips = ((u32)g.w + kPixels - 1) / kPixels;
  const Place at = place_of(blockIdx.x * 128 + threadIdx.x, (u32)g.batch, (u32)g.h, strips, channels, last);
  if (!at.exists) return;
  const int k = chunk + at.k0, count = channels - at.k0, q0 = at.q0 * kPixels + (int)g.pw;
  A sums[kPixels][kEach];
#pragma unroll
  for (int a = 0; a < kPixels; a++) {
#pragma unroll
    for (int j = 0; j < kEach; j++) sums[a][j] = 0;
  }
  const T0* const from = (const T0*)y.data + at.n * y.strides[0] + k * y.strides[1];
#pragma unroll
  for (int r = kH - 1; r >= 0; r--) {
    const int top = at.p + (int)g.ph - r * (int)g.dh;
    if (top < 0 || top % kSh || top / kSh >= (int)g.oh) continue;
    const T0* const row = from + top / kSh * y.strides[2];
#pragma unroll
    for (int s = kW - 1; s >= 0; s--) {
      const A* const tap = weights + (r * kW + s) * kChunk + at.k0;
#pragma unroll
      for (int a = 0; a < kPixels; a++) {
        const int left = q0 + a - s * kDw;
        if (left < 0 || left % kSw || left / kSw >= (int)g.ow) continue;
        A v[kEach];
        load_each(v, row + left / kSw * y.strides[3], y.strides[1], count, packed);
#pragma unroll
        for (int j = 0; j < kEach; j++) sums[a][j] = mad(v[j], tap[j], sums[a][j]);
      }
    }
  }
  T0* const to = (T0*)x.data + at.n * x.strides[0] + k * x.strides[1] + at.p * x.strides[2];
#pragma unroll
  for (int a = 0; a < kPixels; a++) {
    const int q = at.q0 * kPixels + a;
    if (q < (int)g.w) store_each(to + q * x.strides[3], sums[a], x.strides[1], count, packed);
  }
}

// A block sums 32 channels over a band of rows of an image. A lane is a channel. A warp handles every eighth strip of a
// row. The last sum is that of the bias.
KERNEL BOUNDS(256) depthwise_weight(Geometry g, View y, View x, A* partial, int rows) {
  sync_dependencies();
  const int bands = ((int)g.oh + rows - 1) / rows, n = blockIdx.x / bands, p0 = blockIdx.x % bands * rows;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = blockIdx.y * 32 + lane, channels = (int)g.groups;
  const u32 strips = ((u32)g.ow + kPixels - 1) / kPixels, lines = (int)g.oh - p0 < rows ? (int)g.oh - p0 : rows;
  const T0* const from = (const T0*)y.data + n * y.strides[0] + (k < channels ? k : 0) * y.strides[1];
  const T0* const image = (const T0*)x.data + n * x.strides[0] + (k < channels ? k : 0) * x.strides[1];
  A sums[kTaps + 1];
#pragma unroll
  for (int t = 0; t <= kTaps; t++) sums[t] = 0;
  for (u32 i = warp; i < lines * strips; i += 8) {
    const int p = p0 + i / strips, q0 = i % strips * kPixels, left = q0 * kSw - (int)g.pw;
    A v[kPixels];
#pragma unroll
    for (int a = 0; a < kPixels; a++) {
      v[a] = q0 + a < (int)g.ow ? Num<T0>::up(from[p * y.strides[2] + (q0 + a) * y.strides[3]]) : (A)0;
    }
#pragma unroll
    for (int a = 0; a < kPixels; a++) sums[kTaps] = sums[kTaps] + v[a];
#pragma unroll
    for (int r = 0; r < kH; r++) {
      const int h = p * kSh - (int)g.ph + r * (int)g.dh;
      if ((u32)h >= (u32)g.h) continue;
      A line[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; j++) {
        const bool inside = (u32)(left + j) < (u32)g.w;
        line[j] = inside ? Num<T0>::up(image[h * x.strides[2] + (left + j) * x.strides[3]]) : (A)0;
      }
#pragma unroll
      for (int s = 0; s < kW; s++) {
#pragma unroll
        for (int a = 0; a < kPixels; a++) sums[r * kW + s] = mad(line[a * kSw + s * kDw], v[a], sums[r * kW + s]);
      }
    }
  }
  __shared__ A memory[256];
  A* const to = partial + (blockIdx.x * (i64)gridDim.y + blockIdx.y) * (kTaps + 1) * 32;
#pragma unroll
  for (int t = 0; t <= kTaps; t++) {
    const A sum = eighths(memory, sums[t]);
    if (warp == 0) to[t * 32 + lane] = sum;
  }
}
KERNEL BOUNDS(1024) depthwise_weight_sum(const A* partial, View w, View bias, int blocks, int channels) {
  sync_dependencies();
  __shared__ A sums[1024];
  sum_bands<kTaps, 1, kW, T0>(sums, partial, w, bias, blocks, channels);
}
)cuda",
                              kConvText};

bool channels_innermost(const ExternView& v) { return v.strides[1] == 1 || v.sizes[1] == 1; }
// Returns whether four channels can be read by one access.
bool packs(const ExternView& v) {
  bool whole = v.strides[1] == 1 && v.sizes[1] % 4 == 0 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
  for (int d : {0, 2, 3}) whole &= v.strides[d] % 4 == 0;
  return whole;
}

KernelId kernel(const char* name, const ConvGeometry& g, DType t) {
  return {kSource, name, {t}, int((((g.sh * 10 + g.sw) * 10 + g.dw) * 100 + g.kh) * 100 + g.kw)};
}

ExternGrid grid_of(const ConvGeometry& g, int64_t strips) {
  const int64_t chunks = (g.groups + kChunk - 1) / kChunk, parts = (std::min(g.groups, kChunk) + 3) / 4;
  return {(strips * parts + 127) / 128, chunks};
}

void map(Launcher& l, const ConvGeometry& g, const ExternView& x, const ExternView& w, const ExternView& bias,
         const ExternView& y, bool flip) {
  const int last = channels_innermost(y), packed = packs(x) && packs(y);
  l.run(kernel("depthwise_map", g, x.dtype), grid_of(g, g.batch * g.oh * ((g.ow + 3) / 4)), 128, g, x, w, bias, y, last,
        packed, int(flip));
}

void image(Launcher& l, const ConvOperands& o) {
  const ConvGeometry& g = o.g;
  if (g.sh == 1 && g.sw == 1) {
    ConvGeometry back = g;
    back.h = g.oh, back.w = g.ow, back.oh = g.h, back.ow = g.w;
    back.ph = (g.kh - 1) * g.dh - g.ph, back.pw = (g.kw - 1) * g.dw - g.pw;
    return map(l, back, o.y, o.w, {}, o.x, true);
  }
  const int last = channels_innermost(o.x), packed = packs(o.x) && packs(o.y);
  l.run(kernel("depthwise_image", g, o.x.dtype), grid_of(g, g.batch * g.h * ((g.w + 3) / 4)), 128, g, o.y, o.w, o.x,
        last, packed);
}

// Returns v, or a copy of it, with channels innermost.
ExternView innermost(Launcher& l, const ExternView& v) {
  if (channels_innermost(v)) return v;
  ExternView to = v;
  int64_t stride = 1;
  for (int d : {1, 3, 2, 0}) to.strides[d] = stride, stride *= v.sizes[d];
  to.data = l.scratch_bytes(size_t(stride) * size_of(v.dtype));
  copy_view(l, v, to);
  return to;
}

void weight(Launcher& l, const ConvOperands& o) {
  const ConvGeometry& g = o.g;
  const int64_t chunks = (g.groups + 31) / 32, taps = g.kh * g.kw;
  const int64_t bands = std::clamp<int64_t>(numerics::kDepthwiseBlocks / (g.batch * chunks), 1, g.oh);
  const int64_t rows = (g.oh + bands - 1) / bands, blocks = g.batch * ((g.oh + rows - 1) / rows);
  void* partial = l.scratch_bytes(size_t(blocks * chunks * (taps + 1) * 32) * (o.x.dtype == DType::kFloat64 ? 8 : 4));
  const ExternView y = innermost(l, o.y), x = innermost(l, o.x);
  l.run(kernel("depthwise_weight", g, x.dtype), {blocks, chunks}, 256, g, y, x, partial, int(rows));
  l.run(kernel("depthwise_weight_sum", g, x.dtype), {taps + 1, chunks}, 1024, partial, o.w, l.call.out[1], int(blocks),
        int(g.groups));
}

}  // namespace

bool depthwise_supports(DType dtype) { return is_float(dtype); }

bool depthwise_takes(const ExternCall& call) {
  const ConvOperands o = conv_operands(call);
  const ConvGeometry& g = o.g;
  if (g.groups < 4 || g.c != 1 || g.k != 1 || g.kh * g.kw > kMaxTaps) return false;
  if (std::max({g.sh, g.sw, g.dw}) > kMaxStep || g.groups > 64 * 1024) return false;
  if (o.x.dtype == DType::kFloat64 && g.kh * g.kw > 40) return false;  // a chunk's weights must fit in shared memory
  const int64_t most = std::max(o.x.numel(), o.y.numel());
  return o.x.numel() > 0 && o.y.numel() > 0 && most <= INT_MAX;
}

void run_depthwise(const ExternCall& call) {
  Launcher l(call);
  const ConvOperands o = conv_operands(call);
  if (call.op == OpId::convolution) return map(l, o.g, o.x, o.w, call.in[2], o.y, false);
  call.op == OpId::convolution_input ? image(l, o) : weight(l, o);
}

}  // namespace lutra::cuda
