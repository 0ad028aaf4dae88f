// flat rows T1 V4 block256 R0 of 1
struct Block {
  Head head;
  void* p[3];
  i64 n[2];
};
extern "C" __global__ void __launch_bounds__(256) lutra_add_mul(const __grid_constant__ Block b) {
  sync_dependencies();
  const float* const p0 = static_cast<const float*>(b.p[0]);
  const float* const p1 = static_cast<const float*>(b.p[1]);
  float* const p2 = static_cast<float*>(b.p[2]);
  const i64 n0 = b.n[0];
  const i64 n1 = b.n[1];
  const i64 c1 = (i64(blockIdx.x) * 256 + threadIdx.x) * 4;
  const i64 g = blockIdx.y + i64(blockIdx.z) * gridDim.y;
  if (c1 >= n1 || g >= n0) return;
  const i64 i0 = g;
  const i64 m1 = n1;
  if (((u64(p0) & 15) | (u64(p1) & 15) | (u64(p2) & 15) | ((n1) & 3)) == 0 && c1 + 4 <= n1) {
    const Pack<float, 4> x0 = load_pack<4>(p0 + (i0 * n1 + c1));
    const Pack<float, 4> x1 = read_pack<4>(p1 + (c1));
    Pack<float, 4> y0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const i64 i1 = c1 + j;
      const float v0 = x0.e[j];
      const float v1 = x1.e[j];
      const float v2 = v0 + v1;
      const float v3 = x0.e[j];
      const float v4 = v2 * v3;
      y0.e[j] = v4;
    }
    store_pack(p2 + (i0 * n1 + c1), y0);
  } else {
#pragma unroll 1
    for (int j = 0; j < 4; j++) {
      const i64 i1 = c1 + j;
      if (i1 < m1) {
        const float v0 = *(p0 + (i0 * n1 + i1));
        const float v1 = __ldg(p1 + (i1));
        const float v2 = v0 + v1;
        const float v3 = *(p0 + (i0 * n1 + i1));
        const float v4 = v2 * v3;
        p2[i0 * n1 + i1] = v4;
      }
    }
  }
}
