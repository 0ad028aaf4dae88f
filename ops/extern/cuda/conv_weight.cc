// Gradients by weight and bias of small weights over many pixels, on tensor cores. Libraries are slow there, because
// few tiles of a weight leave most of a GPU idle. Here pixels are split among blocks.
//
// Invariants:
// 1. A block's tile is kRows channels of the map by kColumns of the image, for one row of the kernel and all its
//    columns. It sums over a range of pixels, kPixels at a time. Ranges are a function of the sizes.
// 2. Operands of products are rounded to TF32. Sums of ranges are joined by every eighth range, then in a fixed tree.
//    The bias's sum is of unrounded elements.
// 3. Map and image have channels innermost. Others are copied, so bits do not depend on layout.
#include <algorithm>
#include <climits>

#include "ops/core/numerics.h"
#include "ops/extern/cuda/conv.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/precision.h"

namespace lutra::cuda {
namespace {

constexpr int64_t kRows = 64, kColumns = 32, kPixels = 32;
constexpr int64_t kMaxWidth = 7;   // of a kernel
constexpr int64_t kMaxTiles = 16;  // of a weight
constexpr int64_t kMaxTraffic = int64_t(128) << 20;

// VARIANT: the kernel's columns.
const ExternSource kSource = {"conv_weight",
                              R"cuda(
enum { kW = VARIANT, kRows = 64, kColumns = 32, kPixels = 32, kMapLine = kRows + 8, kImageLine = kColumns + 8 };
enum { kMapSize = kPixels * kMapLine, kImageSize = kPixels * kImageLine, kStage = kMapSize + kW * kImageSize };
DEV float4 rounded(float4 v) {
  v.x = tf32(v.x), v.y = tf32(v.y), v.z = tf32(v.z), v.w = tf32(v.w);
  return v;
}

// The elements of kPixels pixels that a thread loads: 4 channels of the map at two pixels, 4 of the image at each tap.
struct Loads { float4 map[2], image[kW]; };
struct Tile {
  const float *map, *image;  // at the channels of this thread
  i64 map_pixel, image_n, image_h, image_w;
  bool map_exists, image_exists;
  int row;  // of the kernel
};
DEV void load(Loads& to, const Tile& at, const Geometry& g, int first, int end) {
  const float4 zero = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int j = first + (int)threadIdx.x / 16 + i * 16;
    to.map[i] = zero;
    if (j < end && at.map_exists) to.map[i] = *(const float4*)(at.map + j * at.map_pixel);
  }
  const int j = first + (int)threadIdx.x / 8, ow = (int)g.ow, oh = (int)g.oh, line = j / ow;
  const int h = line % oh * (int)g.sh - (int)g.ph + at.row * (int)g.dh, left = (j - line * ow) * (int)g.sw - (int)g.pw;
  const bool inside = j < end && at.image_exists && (u32)h < (u32)g.h;
  const float* const from = at.image + line / oh * at.image_n + h * at.image_h;
#pragma unroll
  for (int s = 0; s < kW; s++) {
    const int w = left + s * (int)g.dw;
    to.image[s] = zero;
    if (inside && (u32)w < (u32)g.w) to.image[s] = *(const float4*)(from + w * at.image_w);
  }
}
DEV void store(float* stage, const Loads& from) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    *(float4*)(stage + ((int)threadIdx.x / 16 + i * 16) * kMapLine + threadIdx.x % 16 * 4) = rounded(from.map[i]);
  }
#pragma unroll
  for (int s = 0; s < kW; s++) {
    float* const to = stage + kMapSize + s * kImageSize + threadIdx.x / 8 * kImageLine + threadIdx.x % 8 * 4;
    *(float4*)to = rounded(from.image[s]);
  }
}

DEV Tile tile_of(const Geometry& g, const View& y, const View& x, int k0, int c0, int row) {
  const int k = k0 + threadIdx.x % 16 * 4, c = c0 + threadIdx.x % 8 * 4;
  Tile t;
  t.map_exists = k < (int)g.k, t.image_exists = c < (int)g.c, t.row = row;
  t.map = (const float*)y.data + (t.map_exists ? k : 0), t.map_pixel = g.k;
  t.image = (const float*)x.data + (t.image_exists ? c : 0);
  t.image_n = x.strides[0], t.image_h = x.strides[2], t.image_w = x.strides[3];
  return t;
}
// Loads the left operands of the two products of a warp.
DEV void load(float (&to)[2][4], const float* a) {
#pragma unroll
  for (int m = 0; m < 2; m++) {
    const float* const p = a + m * 16;
    to[m][0] = p[0], to[m][1] = p[8], to[m][2] = p[4 * kMapLine], to[m][3] = p[4 * kMapLine + 8];
  }
}
// Stores the sums of a warp: 32 rows of the tile by 8 columns.
DEV void put(float* partial, const float (&sums)[2][kW][4], int kh, int r, int k0, int c0, int rows, int columns) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int s = 0; s < kW; s++) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
      const int k = k0 + warp / 4 * 32 + m * 16 + lane / 4, c = c0 + warp % 4 * 8 + lane % 4 * 2;
      float* const to = partial + ((((i64)blockIdx.x * kh + r) * kW + s) * rows + k) * columns + c;
      to[0] = sums[m][s][0], to[1] = sums[m][s][1];
      to[8 * columns] = sums[m][s][2], to[8 * columns + 1] = sums[m][s][3];
    }
  }
}

// blockIdx: the range of pixels; the channels of the map; the row of the kernel and the channels of the image.
// partial: sums by range, row, column, channel of the map, channel of the image, followed by those of the biases.
KERNEL BOUNDS(256) weight_ranges(Geometry g, View y, View x, float* partial, float* biases, int range) {
  sync_dependencies();
  DYNAMIC_SHARED(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = gridDim.y * kRows;
  const int columns = (int)(g.c + kColumns - 1) / kColumns * kColumns, parts = columns / kColumns;
  const int k0 = blockIdx.y * kRows, c0 = blockIdx.z % parts * kColumns, r = blockIdx.z / parts;
  const Tile tile = tile_of(g, y, x, k0, c0, r);
  const int total = (int)(g.batch * g.oh * g.ow), begin = blockIdx.x * range, end = begin + range < total ? begin + range : total;
  float sums[2][kW][4] = {}, bias[4] = {};
  Loads next;
  load(next, tile, g, begin, end);
  int which = 0;
  for (int first = begin; first < end; first += kPixels, which ^= 1) {
    float* const stage = memory + which * kStage;
    store(stage, next);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      bias[0] += next.map[i].x, bias[1] += next.map[i].y, bias[2] += next.map[i].z, bias[3] += next.map[i].w;
    }
    __syncthreads();
    if (first + kPixels < end) load(next, tile, g, first + kPixels, end);
    const float* const a = stage + lane % 4 * kMapLine + warp / 4 * 32 + lane / 4;
    const float* const b = stage + kMapSize + lane % 4 * kImageLine + warp % 4 * 8 + lane / 4;
#pragma unroll
    for (int k = 0; k < kPixels; k += 8) {
      float rows_of[2][4];
      load(rows_of, a + k * kMapLine);
#pragma unroll
      for (int s = 0; s < kW; s++) {
        const float* const p = b + s * kImageSize + k * kImageLine;
#pragma unroll
        for (int m = 0; m < 2; m++) {
          float(&c)[4] = sums[m][s];
          mma(c[0], c[1], c[2], c[3], rows_of[m], p[0], p[4 * kImageLine]);
        }
      }
    }
  }
  put(partial, sums, (int)g.kh, r, k0, c0, rows, columns);
  if (!biases || blockIdx.z > 0) return;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; i++) memory[threadIdx.x / 16 * kRows + threadIdx.x % 16 * 4 + i] = bias[i];
  __syncthreads();
  if (threadIdx.x >= kRows) return;
  float sum = 0;
  for (int i = 0; i < 16; i++) sum += memory[i * kRows + threadIdx.x];
  biases[(i64)blockIdx.x * rows + k0 + threadIdx.x] = sum;
}
// A block adds 32 elements over the ranges. The elements of the biases come after those of the weights.
KERNEL BOUNDS(256) weight_sum(const float* partial, const float* biases, View w, View bias, int ranges, int rows,
                                         int columns) {
  sync_dependencies();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, taps = (int)w.sizes[2] * kW, size = taps * rows * columns;
  const bool biased = blockIdx.x * 32 >= size;
  const int i = biased ? blockIdx.x * 32 + lane - size : blockIdx.x * 32 + lane, each = biased ? rows : size;
  const float* const from = biased ? biases : partial;
  float sum = 0;
#pragma unroll 8
  for (int n = warp; n < ranges; n += 8) sum += from[(i64)n * each + i];
  __shared__ float sums[256];
  sum = eighths(sums, sum);
  if (warp > 0) return;
  if (biased) {
    if (i < (int)bias.sizes[0]) ((float*)bias.data)[i * bias.strides[0]] = sum;
    return;
  }
  const int c = i % columns, k = i / columns % rows, t = i / columns / rows;
  if (c >= (int)w.sizes[1] || k >= (int)w.sizes[0]) return;
  ((float*)w.data)[k * w.strides[0] + c * w.strides[1] + t / kW * w.strides[2] + t % kW * w.strides[3]] = sum;
}
)cuda",
                              {kConvText, kTensorCoresText}};

struct Operands {
  ExternView y, x, w, bias;
  ConvGeometry g;
  int64_t row_tiles, column_tiles;  // the latter for each row of the kernel
  int64_t pixels;
};
Operands operands(const ExternCall& call) {
  Operands o{call.in[0], call.in[1], call.out[0], call.out[1], {}, 0, 0, 0};
  o.g = conv_geometry(o.x, o.w, o.y, call.ints.subspan(4));
  o.row_tiles = (o.g.k + kRows - 1) / kRows, o.column_tiles = (o.g.c + kColumns - 1) / kColumns * o.g.kh;
  o.pixels = o.g.batch * o.g.oh * o.g.ow;
  return o;
}

// Returns v, or a copy, with channels innermost and every pixel aligned to 16 bytes. dense: pixels follow each other.
ExternView innermost(Launcher& l, const ExternView& v, bool dense) {
  bool lies = v.strides[1] == 1 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
  int64_t stride = 1;
  ExternView to = v;
  for (int d : {1, 3, 2, 0}) {
    to.strides[d] = stride, stride *= v.sizes[d];
    if (d != 1 && v.sizes[d] > 1) lies &= dense ? v.strides[d] == to.strides[d] : v.strides[d] % 4 == 0;
  }
  if (lies) return v;
  to.data = l.scratch_bytes(size_t(stride) * sizeof(float));
  copy_view(l, v, to);
  return to;
}

}  // namespace

bool weight_ranges_supports(DType dtype) { return dtype == DType::kFloat32; }

bool weight_ranges_takes(const ExternCall& call) {
  if (!convolution_tf32()) return false;
  const Operands o = operands(call);
  const ConvGeometry& g = o.g;
  if (g.groups != 1 || g.c % 4 || g.k % 4 || g.c < 16 || g.k < 16 || g.kw > kMaxWidth) return false;
  if (std::max({o.x.numel(), o.y.numel(), o.pixels}) > INT_MAX / 2 || o.pixels < 1024 || o.x.numel() == 0) return false;
  const int64_t tiles = o.row_tiles * o.column_tiles;
  return tiles <= kMaxTiles && o.pixels * tiles * (kRows + kColumns * g.kw) * 4 <= kMaxTraffic;
}

void run_weight_ranges(const ExternCall& call) {
  Launcher l(call);
  const Operands o = operands(call);
  const ConvGeometry& g = o.g;
  const int64_t steps = (o.pixels + kPixels - 1) / kPixels;
  const int64_t wanted =
      std::clamp<int64_t>(numerics::kWeightBlocks / (o.row_tiles * o.column_tiles), 1, (steps + 1) / 2);
  const int64_t range = (steps + wanted - 1) / wanted * kPixels, ranges = (o.pixels + range - 1) / range;
  const int64_t rows = o.row_tiles * kRows, columns = (g.c + kColumns - 1) / kColumns * kColumns;
  const int64_t size = g.kh * g.kw * rows * columns;
  float* partial = l.scratch<float>(ranges * size);
  float* biases = o.bias.sizes[0] ? l.scratch<float>(ranges * rows) : nullptr;
  const ExternView y = innermost(l, o.y, true), x = innermost(l, o.x, false);
  const int shared = int(2 * kPixels * (kRows + 8 + g.kw * (kColumns + 8)) * 4);
  l.run({kSource, "weight_ranges", {DType::kFloat32}, int(g.kw), shared}, {ranges, o.row_tiles, o.column_tiles}, 256, g,
        y, x, partial, biases, int(range));
  l.run({kSource, "weight_sum", {DType::kFloat32}, int(g.kw)}, {size / 32 + (biases ? rows / 32 : 0)}, 256, partial,
        biases, o.w, o.bias, int(ranges), int(rows), int(columns));
}

}  // namespace lutra::cuda
