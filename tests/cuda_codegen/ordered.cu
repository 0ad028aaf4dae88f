// rows T1 V1 block32 R0 of 1 by 1
struct Block {
  Head head;
  void* p[3];
  i64 n[3];
};
extern "C" __global__ void __launch_bounds__(32) lutra_index_add(const __grid_constant__ Block b) {
  sync_dependencies();
  const float* const p0 = static_cast<const float*>(b.p[0]);
  const i64* const p1 = static_cast<const i64*>(b.p[1]);
  float* const p2 = static_cast<float*>(b.p[2]);
  const i64 n0 = b.n[0];
  const i64 n1 = b.n[1];
  const i64 n2 = b.n[2];
  bool ok = true;
  constexpr int t = 0;
  const i64 all = 1, own = i64(blockIdx.x) * 32 + threadIdx.x;
  const bool live = own < all;
  const i64 g = live ? own : all - 1;
  const bool first = live && t == 0;
  for (i64 i0 = 0; i0 < n0; i0++) {
    const i64 v0 = __ldg(p1 + (i0));
    ok &= live && within(v0, n2, 2, b.head.fault, b.head.site);
    for (i64 i1 = 0; i1 < n1; i1++) {
      const float v1 = __ldg(p0 + (i0 * n1 + i1));
      if (first && ok) p2[v0 * n1 + i1] = add(p2[v0 * n1 + i1], v1);
    }
  }
}
