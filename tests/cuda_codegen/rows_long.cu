// rows T256 V4 block256 R0 of 1 by 8
struct Block {
  Head head;
  void* p[2];
  i64 n[2];
};
extern "C" __global__ void __launch_bounds__(256) lutra_sum(const __grid_constant__ Block b) {
  __shared__ __align__(16) unsigned char shared[4096], slots[16];
  sync_dependencies();
  const float* const p0 = static_cast<const float*>(b.p[0]);
  float* const p1 = static_cast<float*>(b.p[1]);
  const i64 n0 = b.n[0];
  const i64 n1 = b.n[1];
  const int t = threadIdx.x;
  const i64 g = blockIdx.x;
  constexpr bool live = true;
  const i64 i0 = g;
  const bool first = live && t == 0;
  const bool packed = ((u64(p0) & 15) | ((n1) & 3)) == 0;
  Sum<float>::A a1[4];
#pragma unroll
  for (int j = 0; j < 4; j++) a1[j] = Sum<float>::none();
  const i64 m1 = n1;
  i64 s1 = t * 4;
  if (packed) {
    for (; s1 + 3076 <= m1; s1 += 4096) {
      Pack<float, 4> x0[4];
#pragma unroll
      for (int r = 0; r < 4; r++) {
        const i64 c1 = s1 + r * 1024;
        x0[r] = read_pack<4>(p0 + (i0 * n1 + c1));
      }
#pragma unroll
      for (int r = 0; r < 4; r++) {
        const i64 c1 = s1 + r * 1024;
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const i64 i1 = c1 + j;
          const float v0 = x0[r].e[j];
          a1[j] = Sum<float>::of(a1[j], v0);
        }
      }
    }
  }
#pragma unroll 1
  for (; s1 < m1; s1 += 1024) {
    const i64 c1 = s1;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const i64 i1 = c1 + j;
      if (i1 < m1) {
        const float v0 = __ldg(p0 + (i0 * n1 + i1));
        a1[j] = Sum<float>::of(a1[j], v0);
      }
    }
  }
  Sum<float>::A* const area1 = reinterpret_cast<Sum<float>::A*>(shared + 0);
  Sum<float>::A* const slot1 = reinterpret_cast<Sum<float>::A*>(slots + 0);
  park<256, 4>(area1, a1, t);
  __syncthreads();
  if (t / 32 == 0) {
    const Sum<float>::A r = of_block<Sum<float>, 256, 4>(area1, t % 32);
    if (t % 32 == 0) *slot1 = r;
  }
  __syncthreads();
  const float v1 = slot1[0];
  if (first) p1[i0] = v1;
}
