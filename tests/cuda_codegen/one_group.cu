// rows T512 V2 block512 R4 exact of 2
struct Block {
  Head head;
  void* p[3];
  i64 n[1];
  double x[1];
};
extern "C" __global__ void __launch_bounds__(512, 2) lutra_sum_div(const __grid_constant__ Block b) {
  __shared__ __align__(16) unsigned char shared[20480], slots[32];
  sync_dependencies();
  const i64* const p0 = static_cast<const i64*>(b.p[0]);
  float* const p1 = static_cast<float*>(b.p[1]);
  float* const p2 = static_cast<float*>(b.p[2]);
  const i64 n0 = b.n[0];
  const int t = threadIdx.x;
  const i64 g = blockIdx.x;
  constexpr bool live = true;
  const bool first = live && t == 0;
  const bool packed = ((u64(p0) & 15) | (u64(p1) & 7) | ((n0) & 1)) == 0;
  if (packed && n0 == 4096) {
    Sum<float>::A a1[2];
#pragma unroll
    for (int j = 0; j < 2; j++) a1[j] = Sum<float>::none();
    i64 q2 = 0;
    ArgMax<i64>::A a2[2];
#pragma unroll
    for (int j = 0; j < 2; j++) a2[j] = ArgMax<i64>::none();
    const i64 m0 = n0;
#pragma unroll
    for (int r = 0; r < 4; r++) {
      const int c0 = (r * 512 + t) * 2;
      const Pack<i64, 2> x3 = read_pack<2>(p0 + (c0));
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const i64 i0 = c0 + j;
        const i64 v3 = x3.e[j];
        const float v5 = float(v3);
        a1[j] = Sum<float>::of(a1[j], v5);
        a2[j] = ArgMax<i64>::of(a2[j], At<i64>{v3, q2 + i0});
      }
    }
    q2 += n0;
    Sum<float>::A* const area1 = reinterpret_cast<Sum<float>::A*>(shared + 0);
    Sum<float>::A* const slot1 = reinterpret_cast<Sum<float>::A*>(slots + 0);
    park<512, 2>(area1, a1, t);
    ArgMax<i64>::A* const area2 = reinterpret_cast<ArgMax<i64>::A*>(shared + 4096);
    ArgMax<i64>::A* const slot2 = reinterpret_cast<ArgMax<i64>::A*>(slots + 16);
    park<512, 2>(area2, a2, t);
    __syncthreads();
    if (t / 32 == 0) {
      const Sum<float>::A r = of_block<Sum<float>, 512, 2>(area1, t % 32);
      if (t % 32 == 0) *slot1 = r;
    }
    if (t / 32 == 1) {
      const ArgMax<i64>::A r = of_block<ArgMax<i64>, 512, 2>(area2, t % 32);
      if (t % 32 == 0) *slot2 = r;
    }
    __syncthreads();
    const float v1 = slot1[0];
    const i64 v2 = slot2[0].at;
    const float v6 = float(b.x[0]);
    const float v7 = v6 / v1;
    if (first) p2[0] = v7;
    const i64 m1 = n0;
    Pack<float, 2> y0;
#pragma unroll
    for (int r = 0; r < 4; r++) {
      const int c1 = (r * 512 + t) * 2;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const i64 i1 = c1 + j;
        const float v8 = float(v2);
        const float v9 = v8 + v7;
        y0.e[j] = v9;
      }
      store_pack(p1 + (c1), y0);
    }
    return;
  }
  Sum<float>::A a1[2];
#pragma unroll
  for (int j = 0; j < 2; j++) a1[j] = Sum<float>::none();
  i64 q2 = 0;
  ArgMax<i64>::A a2[2];
#pragma unroll
  for (int j = 0; j < 2; j++) a2[j] = ArgMax<i64>::none();
  const i64 m0 = n0;
  i64 s0 = t * 2;
#pragma unroll 1
  for (; s0 < m0; s0 += 1024) {
    const i64 c0 = s0;
#pragma unroll 1
    for (int j = 0; j < 2; j++) {
      const i64 i0 = c0 + j;
      if (i0 < m0) {
        const i64 v3 = __ldg(p0 + (i0));
        const float v5 = float(v3);
        a1[j] = Sum<float>::of(a1[j], v5);
        a2[j] = ArgMax<i64>::of(a2[j], At<i64>{v3, q2 + i0});
      }
    }
  }
  q2 += n0;
  Sum<float>::A* const area1 = reinterpret_cast<Sum<float>::A*>(shared + 0);
  Sum<float>::A* const slot1 = reinterpret_cast<Sum<float>::A*>(slots + 0);
  park<512, 2>(area1, a1, t);
  ArgMax<i64>::A* const area2 = reinterpret_cast<ArgMax<i64>::A*>(shared + 4096);
  ArgMax<i64>::A* const slot2 = reinterpret_cast<ArgMax<i64>::A*>(slots + 16);
  park<512, 2>(area2, a2, t);
  __syncthreads();
  if (t / 32 == 0) {
    const Sum<float>::A r = of_block<Sum<float>, 512, 2>(area1, t % 32);
    if (t % 32 == 0) *slot1 = r;
  }
  if (t / 32 == 1) {
    const ArgMax<i64>::A r = of_block<ArgMax<i64>, 512, 2>(area2, t % 32);
    if (t % 32 == 0) *slot2 = r;
  }
  __syncthreads();
  const float v1 = slot1[0];
  const i64 v2 = slot2[0].at;
  const float v6 = float(b.x[0]);
  const float v7 = v6 / v1;
  if (first) p2[0] = v7;
  const i64 m1 = n0;
  i64 s1 = t * 2;
#pragma unroll 1
  for (; s1 < m1; s1 += 1024) {
    const i64 c1 = s1;
#pragma unroll 1
    for (int j = 0; j < 2; j++) {
      const i64 i1 = c1 + j;
      if (i1 < m1) {
        const float v8 = float(v2);
        const float v9 = v8 + v7;
        p1[i1] = v9;
      }
    }
  }
}
