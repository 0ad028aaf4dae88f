// Convolution and its gradients by image, weight and bias, by cuDNN or by simple kernels of our own. Images, weights
// and maps may have any strides.
//
// Invariants:
// 1. cuDNN computes with channels innermost. It uses row-major order only if it does not accept the problem otherwise.
//    The choice is a function of sizes, never of strides. Operands and results with another layout are copied, so bits
//    do not depend on layout (the pass channels_last relies on this). If each pixel is by itself, cuBLASLt multiplies.
// 2. The simple kernels sum in float32 (float64 for float64), whatever the strides: an element of a map or an image as
//    one chain in the CPU's order, an element of a weight or a bias in a fixed tree.
#include <algorithm>
#include <climits>

#include "ops/extern/cuda/conv.h"
#include "ops/extern/cuda/cudnn.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/precision.h"

namespace lutra::cuda {
namespace {

const ExternSource kSource = {"conv", R"cuda(
typedef Num<T0>::A A;
DEV A load(const View& v, i64 a, i64 b, i64 c, i64 d) {
  return Num<T0>::up(((const T0*)v.data)[a * v.strides[0] + b * v.strides[1] + c * v.strides[2] + d * v.strides[3]]);
}
DEV void store(const View& v, i64 a, i64 b, i64 c, i64 d, A x) {
  ((T0*)v.data)[a * v.strides[0] + b * v.strides[1] + c * v.strides[2] + d * v.strides[3]] = Num<T0>::down(x);
}
// Returns the sum of the 256 threads' values to thread 0.
DEV A block_sum(A v) {
  __shared__ A sums[256];
  const int t = threadIdx.x;
  sums[t] = v;
  __syncthreads();
  for (int s = 128; s > 0; s /= 2) {
    if (t < s) sums[t] = sums[t] + sums[t + s];
    __syncthreads();
  }
  const A sum = sums[0];
  __syncthreads();
  return sum;
}
KERNEL conv_map(Geometry g, View x, View w, View bias, View y) {
  sync_dependencies();
  const i64 i = thread_number(), channels = g.groups * g.k;
  if (i >= g.batch * channels * g.oh * g.ow) return;
  const i64 q = i % g.ow, p = i / g.ow % g.oh, k = i / g.ow / g.oh % channels, n = i / g.ow / g.oh / channels;
  const i64 c0 = k / g.k * g.c;
  A sum = bias.data ? Num<T0>::up(((const T0*)bias.data)[k * bias.strides[0]]) : (A)0;
  for (i64 r = 0; r < g.kh; r++) {
    const i64 h = p * g.sh - g.ph + r * g.dh;
    if (h < 0 || h >= g.h) continue;
    for (i64 s = 0; s < g.kw; s++) {
      const i64 v = q * g.sw - g.pw + s * g.dw;
      if (v < 0 || v >= g.w) continue;
      for (i64 c = 0; c < g.c; c++) sum = mad(load(x, n, c0 + c, h, v), load(w, k, c, r, s), sum);
    }
  }
  store(y, n, k, p, q, sum);
}
KERNEL conv_image(Geometry g, View y, View w, View x) {
  sync_dependencies();
  const i64 i = thread_number(), channels = g.groups * g.c;
  if (i >= g.batch * channels * g.h * g.w) return;
  const i64 v = i % g.w, h = i / g.w % g.h, c = i / g.w / g.h % channels, n = i / g.w / g.h / channels;
  const i64 k0 = c / g.c * g.k;
  A sum = 0;
  for (i64 r = g.kh - 1; r >= 0; r--) {
    const i64 top = h + g.ph - r * g.dh;
    if (top < 0 || top % g.sh || top / g.sh >= g.oh) continue;
    for (i64 s = g.kw - 1; s >= 0; s--) {
      const i64 left = v + g.pw - s * g.dw;
      if (left < 0 || left % g.sw || left / g.sw >= g.ow) continue;
      for (i64 k = 0; k < g.k; k++) {
        sum = mad(load(y, n, k0 + k, top / g.sh, left / g.sw), load(w, k0 + k, c % g.c, r, s), sum);
      }
    }
  }
  store(x, n, c, h, v, sum);
}
// A block computes one element of the weight.
KERNEL conv_weight(Geometry g, View y, View x, View w) {
  sync_dependencies();
  const i64 i = blockIdx.x, s = i % g.kw, r = i / g.kw % g.kh, c = i / g.kw / g.kh % g.c, k = i / g.kw / g.kh / g.c;
  const i64 c0 = k / g.k * g.c, total = g.batch * g.oh * g.ow;
  A sum = 0;
  for (i64 j = threadIdx.x; j < total; j += 256) {
    const i64 q = j % g.ow, p = j / g.ow % g.oh, n = j / g.ow / g.oh;
    const i64 h = p * g.sh - g.ph + r * g.dh, v = q * g.sw - g.pw + s * g.dw;
    if (h < 0 || h >= g.h || v < 0 || v >= g.w) continue;
    sum = mad(load(x, n, c0 + c, h, v), load(y, n, k, p, q), sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) store(w, k, c, r, s, sum);
}
KERNEL conv_add_bias(View y, View bias, i64 n) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= n) return;
  const i64 inner = y.sizes[2] * y.sizes[3];
  const bool last = y.strides[1] == 1 && y.sizes[1] > 1;  // channels are innermost: i counts elements in memory order
  const i64 k = last ? i % y.sizes[1] : i / inner % y.sizes[1];
  T0& to = ((T0*)y.data)[i];
  to = Num<T0>::down(Num<T0>::up(to) + Num<T0>::up(((const T0*)bias.data)[k * bias.strides[0]]));
}
// The same for innermost channels. A thread handles 16 bytes.
struct alignas(16) Pack { T0 e[16 / sizeof(T0)]; };
KERNEL conv_add_bias_last(Pack* y, View bias, u32 packs, u32 channels) {
  sync_dependencies();
  enum { kEach = 16 / sizeof(T0) };
  const u32 i = blockIdx.x * 256 + threadIdx.x;
  if (i >= packs) return;
  const u32 k = i * kEach % channels;
  Pack pack = y[i];
#pragma unroll
  for (int j = 0; j < kEach; j++) {
    pack.e[j] = Num<T0>::down(Num<T0>::up(pack.e[j]) + Num<T0>::up(((const T0*)bias.data)[(k + j) * bias.strides[0]]));
  }
  y[i] = pack;
}
// Sums the map over batch and pixels. A block has a slice of 32 channels; a lane is a channel; a warp adds every eighth
// pixel.
KERNEL BOUNDS(256) conv_bias_slices_last(View y, A* partial, i64 each) {
  sync_dependencies();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 k = blockIdx.y * 32 + lane, channels = y.sizes[1], total = y.sizes[0] * y.sizes[2] * y.sizes[3];
  const i64 begin = blockIdx.x * each, end = begin + each < total ? begin + each : total;
  const T0* const from = (const T0*)y.data + (k < channels ? k : 0);
  A sum = 0;
#pragma unroll 8
  for (i64 j = begin + warp; j < end; j += 8) sum = sum + Num<T0>::up(from[j * channels]);
  __shared__ A sums[256];
  sum = eighths(sums, sum);
  if (warp == 0) partial[(blockIdx.x * (i64)gridDim.y + blockIdx.y) * 32 + lane] = sum;
}
// Computes the same sums for innermost pixels, through a tile.
KERNEL BOUNDS(256) conv_bias_slices(View y, A* partial, i64 each) {
  sync_dependencies();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 k0 = blockIdx.y * 32, channels = y.sizes[1], pixels = y.sizes[2] * y.sizes[3], total = y.sizes[0] * pixels;
  const i64 begin = blockIdx.x * each, end = begin + each < total ? begin + each : total;
  __shared__ A tile[32][33];
  A sum = 0;
  for (i64 base = begin; base < end; base += 32) {
    const i64 j = base + lane;
    __syncthreads();
    for (int m = warp; m < 32; m += 8) {
      const bool inside = k0 + m < channels && j < end;
      tile[m][lane] = inside ? load(y, j / pixels, k0 + m, j % pixels / y.sizes[3], j % y.sizes[3]) : (A)0;
    }
    __syncthreads();
    for (int m = warp; m < 32 && base + m < end; m += 8) sum = sum + tile[lane][m];
  }
  __shared__ A sums[256];
  sum = eighths(sums, sum);
  if (warp == 0) partial[(blockIdx.x * (i64)gridDim.y + blockIdx.y) * 32 + lane] = sum;
}
// A block adds 32 channels.
KERNEL BOUNDS(256) conv_bias_sum(const A* partial, View bias, int slices) {
  sync_dependencies();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 k = blockIdx.x * 32 + lane;
  A sum = 0;
#pragma unroll 8
  for (int s = warp; s < slices; s += 8) sum = sum + partial[(s * (i64)gridDim.x + blockIdx.x) * 32 + lane];
  __shared__ A sums[256];
  sum = eighths(sums, sum);
  if (warp == 0 && k < bias.sizes[0]) ((T0*)bias.data)[k * bias.strides[0]] = Num<T0>::down(sum);
}
)cuda",
                              kConvText};

struct Operands : ConvOperands {
  CudnnPass pass;
};

Operands operands(const ExternCall& call) {
  const CudnnPass pass = call.op == OpId::convolution         ? CudnnPass::kForward
                         : call.op == OpId::convolution_input ? CudnnPass::kInput
                                                              : CudnnPass::kWeight;
  return {conv_operands(call), pass};
}

// Returns whether v is dense in the given order of dims. The stride of a dim of size 1 means nothing.
bool lies_so(const ExternView& v, const int (&order)[4]) {
  int64_t want = 1;
  for (int d : order) {
    if (v.sizes[d] != 1 && v.strides[d] != want) return false;
    want *= v.sizes[d];
  }
  return true;
}

void bias_gradient(Launcher& l, const ExternView& y, const ExternView& bias) {
  if (bias.sizes[0] == 0) return;
  const int64_t chunks = (y.sizes[1] + 31) / 32, total = y.sizes[0] * y.sizes[2] * y.sizes[3];
  int64_t slices = std::clamp<int64_t>(total / 64, 1, std::max<int64_t>(256 / chunks, 16));
  const int64_t each = std::max<int64_t>((total + slices - 1) / slices, 1);
  slices = (total + each - 1) / each;
  void* partial = l.scratch_bytes(size_t(slices * chunks) * 32 * 8);
  const char* kernel = lies_so(y, kCudnnOrder[1]) ? "conv_bias_slices_last" : "conv_bias_slices";
  l.run({kSource, kernel, {y.dtype}}, {slices, chunks}, 256, y, partial, each);
  l.run({kSource, "conv_bias_sum", {y.dtype}}, {chunks}, 256, partial, bias, int(slices));
}

void add_bias(Launcher& l, const ExternView& y, const ExternView& bias) {
  const int64_t n = y.numel(), pack = 16 / int64_t(size_of(y.dtype));
  const bool whole = y.sizes[1] % pack == 0 && reinterpret_cast<uintptr_t>(y.data) % 16 == 0;
  if (whole && lies_so(y, kCudnnOrder[1])) {
    return l.each({kSource, "conv_add_bias_last", {y.dtype}}, n / pack, y.data, bias, uint32_t(n / pack),
                  uint32_t(y.sizes[1]));
  }
  l.each({kSource, "conv_add_bias", {y.dtype}}, n, y, bias, n);
}

void direct(Launcher& l, const Operands& o) {
  const ConvGeometry& g = o.g;
  const ExternView bias = o.pass == CudnnPass::kForward ? l.call.in[2] : ExternView();
  switch (o.pass) {
    case CudnnPass::kForward: return l.each({kSource, "conv_map", {o.x.dtype}}, o.y.numel(), g, o.x, o.w, bias, o.y);
    case CudnnPass::kInput: return l.each({kSource, "conv_image", {o.x.dtype}}, o.x.numel(), g, o.y, o.w, o.x);
    case CudnnPass::kWeight:
      l.run({kSource, "conv_weight", {o.x.dtype}}, {o.w.numel()}, 256, g, o.y, o.x, o.w);
      return bias_gradient(l, o.y, l.call.out[1]);
  }
}

}  // namespace

bool direct_convolution_supports(DType dtype) { return is_float(dtype); }
void run_direct_convolution(const ExternCall& call) {
  Launcher l(call);
  direct(l, operands(call));
}

bool cudnn_supports(DType dtype) { return is_float(dtype) && cudnn_available(); }

// Returns whether padding is symmetric (or what lies beyond the last tap does not matter), no tensor is empty, and
// sizes fit in 32 bits.
bool cudnn_takes(const ExternCall& call) {
  const Operands o = operands(call);
  const ConvGeometry& g = o.g;
  if (o.x.numel() == 0 || o.w.numel() == 0 || o.y.numel() == 0) return false;
  if (std::max({o.x.numel(), o.w.numel(), o.y.numel()}) > INT_MAX) return false;
  return (g.h + 2 * g.ph - (g.kh - 1) * g.dh - 1) / g.sh + 1 == g.oh &&
         (g.w + 2 * g.pw - (g.kw - 1) * g.dw - 1) / g.sw + 1 == g.ow;
}

namespace {

ExternView matrix(const ExternView& v, int64_t rows, int64_t columns, bool transposed) {
  ExternView m;
  m.data = v.data, m.dtype = v.dtype, m.dim = 2;
  m.sizes[0] = transposed ? columns : rows, m.sizes[1] = transposed ? rows : columns;
  m.strides[0] = transposed ? 1 : columns, m.strides[1] = transposed ? columns : 1;
  return m;
}

// All three have channels innermost. Returns false if the library has no kernel.
bool multiply_pixels(Launcher& l, const CudnnConvolution& v, const ConvGeometry& g) {
  const int64_t pixels = g.batch * g.h * g.w, c = g.c, k = g.k;
  switch (v.pass) {
    case CudnnPass::kForward:
      return multiply_matrices(l, matrix(v.x, pixels, c, false), matrix(v.w, k, c, true), matrix(v.y, pixels, k, false),
                               v.tf32);
    case CudnnPass::kInput:
      return multiply_matrices(l, matrix(v.y, pixels, k, false), matrix(v.w, k, c, false),
                               matrix(v.x, pixels, c, false), v.tf32);
    case CudnnPass::kWeight:
      return multiply_matrices(l, matrix(v.y, pixels, k, true), matrix(v.x, pixels, c, false), matrix(v.w, k, c, false),
                               v.tf32);
  }
  fail_internal("a pass of no kind");
}

}  // namespace

void run_cudnn_convolution(const ExternCall& call) {
  Launcher l(call);
  const Operands o = operands(call);
  const ConvGeometry& g = o.g;
  CudnnConvolution c{};
  c.pass = o.pass, c.tf32 = convolution_tf32(), c.groups = int(g.groups);
  c.padding[0] = int(g.ph), c.padding[1] = int(g.pw), c.stride[0] = int(g.sh), c.stride[1] = int(g.sw);
  c.dilation[0] = int(g.dh), c.dilation[1] = int(g.dw);
  ExternView* const to[] = {&c.x, &c.w, &c.y};
  const ExternView* const from[] = {&o.x, &o.w, &o.y};
  const int result = o.pass == CudnnPass::kForward ? 2 : o.pass == CudnnPass::kInput ? 0 : 1;
  for (int i = 0; i < 3; i++) *to[i] = *from[i];
  // Tensor cores take channels in units of 16 bytes (few channels of an image are padded). Other kernels take row-major
  // order.
  const int64_t whole = size_of(o.x.dtype) == 2 ? 8 : 4;
  c.channels_last = g.k % whole == 0 && (g.c % whole == 0 || g.c <= 4);
  const bool product = is_pixel_product(g, o.x.dtype);
  if (!product && !cudnn_finds(l, c)) c.channels_last = !c.channels_last;
  if (!product && !cudnn_finds(l, c)) return direct(l, o);
  const auto& order = kCudnnOrder[c.channels_last];
  for (int i = 0; i < 3; i++) {
    int64_t stride = 1;
    for (int d : order) to[i]->strides[d] = stride, stride *= to[i]->sizes[d];
    if (lies_so(*from[i], order)) continue;
    to[i]->data = l.scratch_bytes(size_t(stride) * size_of(from[i]->dtype));
    if (i != result) copy_view(l, *from[i], *to[i]);
  }
  if (!product || !multiply_pixels(l, c, g)) {
    if (product && !cudnn_finds(l, c)) return direct(l, o);
    cudnn_convolve(l, c);
  }
  const ExternView& made = *to[result];
  if (o.pass == CudnnPass::kForward && call.in[2].data) add_bias(l, made, call.in[2]);
  if (!lies_so(*from[result], order)) copy_view(l, made, *from[result]);
  if (o.pass == CudnnPass::kWeight) bias_gradient(l, o.y, call.out[1]);
}

}  // namespace lutra::cuda
