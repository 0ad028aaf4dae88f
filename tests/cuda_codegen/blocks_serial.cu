// flat T1 V1 block256 R0 of 1
struct Block {
  Head head;
  void* p[2];
  i64 n[2];
};
extern "C" __global__ void __launch_bounds__(256) lutra_sum(const __grid_constant__ Block b) {
  sync_dependencies();
  const float* const p0 = static_cast<const float*>(b.p[0]);
  float* const p1 = static_cast<float*>(b.p[1]);
  const i64 n0 = b.n[0];
  const i64 n1 = b.n[1];
  const i64 g = i64(blockIdx.x) * 256 + threadIdx.x;
  if (g >= n0) return;
  const i64 c0 = g;
  const i64 i0 = c0;
  Sum<float>::A a1 = Sum<float>::none();
  Earlier<float> e1;
  for (i64 i1 = 0; i1 < n1;) {
    end_block(a1, e1);
    const i64 z1 = n1 - i1 < 32 ? n1 : i1 + 32;
#pragma unroll 8
    for (; i1 < z1; i1++) {
      const float v0 = __ldg(p0 + (i1 * n0 + i0));
      a1 = Sum<float>::of(a1, v0);
    }
  }
  a1 = of_blocks(a1, e1);
  const float v1 = a1;
  p1[i0] = v1;
}
