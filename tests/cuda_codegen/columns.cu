// columns T32 V1 block1024 R0 of 1 by 8
struct Block {
  Head head;
  void* p[2];
  i64 n[2];
};
extern "C" __global__ void __launch_bounds__(1024) lutra_sum(const __grid_constant__ Block b) {
  __shared__ __align__(16) unsigned char shared[4096], slots[512];
  sync_dependencies();
  const float* const p0 = static_cast<const float*>(b.p[0]);
  float* const p1 = static_cast<float*>(b.p[1]);
  const i64 n0 = b.n[0];
  const i64 n1 = b.n[1];
  const int t = threadIdx.y;
  const i64 all = n0, own = i64(blockIdx.x) * 32 + threadIdx.x;
  const bool live = own < all;
  const i64 g = live ? own : all - 1;
  const i64 i0 = g;
  const bool first = live && t == 0;
  Sum<float>::A a1[1];
#pragma unroll
  for (int j = 0; j < 1; j++) a1[j] = Sum<float>::none();
  const i64 m1 = live ? n1 : 0;
  i64 s1 = t;
  for (; s1 + 225 <= m1; s1 += 256) {
#pragma unroll
    for (int r = 0; r < 8; r++) {
      const i64 c1 = s1 + r * 32;
      {
        const i64 i1 = c1;
        constexpr int j = 0;
        const float v0 = __ldg(p0 + (i1 * n0 + i0));
        a1[0] = Sum<float>::of(a1[0], v0);
      }
    }
  }
#pragma unroll 1
  for (; s1 < m1; s1 += 32) {
    const i64 c1 = s1;
    {
      const i64 i1 = c1;
      if (i1 < m1) {
        const float v0 = __ldg(p0 + (i1 * n0 + i0));
        a1[0] = Sum<float>::of(a1[0], v0);
      }
    }
  }
  Sum<float>::A* const area1 = reinterpret_cast<Sum<float>::A*>(shared + 0);
  Sum<float>::A* const slot1 = reinterpret_cast<Sum<float>::A*>(slots + 0);
  area1[threadIdx.y * 32 + threadIdx.x] = a1[0];
  __syncthreads();
  if (threadIdx.y == 0) slot1[threadIdx.x] = of_column<Sum<float>, 32>(area1, threadIdx.x);
  __syncthreads();
  const float v1 = slot1[threadIdx.x];
  if (first) p1[i0] = v1;
}
