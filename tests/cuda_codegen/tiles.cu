// tiles of 64 along i0 T1 V1 block256 R0 of 1
struct Block {
  Head head;
  void* p[3];
  i64 n[2];
};
extern "C" __global__ void __launch_bounds__(256) lutra_tadd(const __grid_constant__ Block b) {
  sync_dependencies();
  const float* const p0 = static_cast<const float*>(b.p[0]);
  const float* const p1 = static_cast<const float*>(b.p[1]);
  float* const p2 = static_cast<float*>(b.p[2]);
  const i64 n0 = b.n[0];
  const i64 n1 = b.n[1];
  i64 w1;
  const i64 g1 = split(blockIdx.x, ((n1 + 63) / 64), w1);
  const i64 o1 = w1 * 64;
  i64 w0;
  const i64 g0 = split(g1, ((n0 + 63) / 64), w0);
  const i64 o0 = w0 * 64;
  __shared__ float tile1[64][65];
#pragma unroll
  for (int k = 0; k < 64; k += 8) {
#pragma unroll
    for (int h = 0; h < 64; h += 32) {
      const i64 i0 = o0 + threadIdx.x + h, i1 = o1 + threadIdx.y + k;
      if (i0 < n0 && i1 < n1) {
        tile1[threadIdx.y + k][threadIdx.x + h] = __ldg(p1 + (i0 + i1 * n0));
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 64; k += 8) {
#pragma unroll
    for (int h = 0; h < 64; h += 32) {
      const i64 i0 = o0 + threadIdx.y + k, i1 = o1 + threadIdx.x + h;
      if (i0 < n0 && i1 < n1) {
        const float v0 = __ldg(p0 + (i0 * n1 + i1));
        const float v1 = tile1[threadIdx.x + h][threadIdx.y + k];
        const float v2 = v0 + v1;
        p2[i0 * n1 + i1] = v2;
      }
    }
  }
}
