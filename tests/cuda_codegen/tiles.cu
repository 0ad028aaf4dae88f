// tiles of i0 T1 V1 block256 R0 of 1
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
  const i64 g1 = split(blockIdx.x, ((n1 + 31) / 32), w1);
  const i64 o1 = w1 * 32;
  i64 w0;
  const i64 g0 = split(g1, ((n0 + 31) / 32), w0);
  const i64 o0 = w0 * 32;
  __shared__ float tile1[32][33];
#pragma unroll
  for (int k = 0; k < 32; k += 8) {
    const i64 i0 = o0 + threadIdx.x, i1 = o1 + threadIdx.y + k;
    if (i0 < n0 && i1 < n1) {
      tile1[threadIdx.y + k][threadIdx.x] = __ldg(p1 + (i0 + i1 * n0));
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 32; k += 8) {
    const i64 i0 = o0 + threadIdx.y + k, i1 = o1 + threadIdx.x;
    if (i0 < n0 && i1 < n1) {
      const float v0 = __ldg(p0 + (i0 * n1 + i1));
      const float v1 = tile1[threadIdx.x][threadIdx.y + k];
      const float v2 = v0 + v1;
      p2[i0 * n1 + i1] = v2;
    }
  }
}
