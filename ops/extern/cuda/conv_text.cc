// The text that the sources of convolutions begin with, after the prelude.
//
// Geometry: has the layout of ConvGeometry (ops/extern/cpu/conv.h).
// eighths: adds the sums of 256 threads, for each lane over the eight warps, in a fixed tree. All warps get the result.
// sum_bands: a block of 1024 threads adds 32 channels of a tap (by row, column and channel), or of the bias behind
// them. A warp takes every 32nd of the blocks' sums.
#include "ops/extern/cuda/conv.h"

namespace lutra::cuda {

const char kConvText[] = R"cuda(
struct Geometry { i64 batch, groups, c, k, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw; };
template <class A> DEV A eighths(A* sums, A sum) {
  __syncthreads();
  sums[threadIdx.x] = sum;
  __syncthreads();
  A s[8];
  for (int m = 0; m < 8; m++) s[m] = sums[m * 32 + threadIdx.x % 32];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}
template <int kTaps, int kC, int kW, class T, class A>
DEV void sum_bands(A* sums, const A* partial, const View& w, const View& bias, int blocks, int channels) {
  const int t = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = blockIdx.y * 32 + lane;
  A sum = 0;
#pragma unroll 8
  for (int b = warp; b < blocks; b += 32) {
    sum = sum + partial[(((i64)b * gridDim.y + blockIdx.y) * (kTaps + 1) + t) * 32 + lane];
  }
  sums[threadIdx.x] = sum;
  for (int n = 512; n >= 32; n /= 2) {
    __syncthreads();
    if (threadIdx.x < n) sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + n];
  }
  if (warp > 0 || k >= channels) return;
  const T made = Num<T>::down(sums[lane]);
  const int c = t % kC, s = t / kC % kW, r = t / kC / kW;
  if (t < kTaps) ((T*)w.data)[k * w.strides[0] + c * w.strides[1] + r * w.strides[2] + s * w.strides[3]] = made;
  else if (bias.sizes[0]) ((T*)bias.data)[k * bias.strides[0]] = made;
}
)cuda";

}  // namespace lutra::cuda
