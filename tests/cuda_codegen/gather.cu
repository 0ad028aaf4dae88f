// flat T1 V8 block128 R0 of 1
struct Block {
  Head head;
  void* p[3];
  i64 n[4];
};
extern "C" __global__ void __launch_bounds__(128) lutra_index_select(const __grid_constant__ Block b) {
  sync_dependencies();
  const uint16_t* const p0 = static_cast<const uint16_t*>(b.p[0]);
  const i64* const p1 = static_cast<const i64*>(b.p[1]);
  uint16_t* const p2 = static_cast<uint16_t*>(b.p[2]);
  const i64 n0 = b.n[0];
  const i64 n1 = b.n[1];
  const i64 n2 = b.n[2];
  const i64 n3 = b.n[3];
  bool ok = true;
  const i64 g = i64(blockIdx.x) * 128 + threadIdx.x;
  if (g >= max1(n0) * (max1(n1) + 7 >> 3)) return;
  i64 w1;
  const i64 g1 = split(g, (max1(n1) + 7 >> 3), w1);
  const i64 c1 = w1 * 8;
  const i64 i0 = g1;
  const i64 v0 = __ldg(p1 + (i0));
  ok &= within(v0, n3, 3, b.head.fault, b.head.site);
  if (c1 >= n1) return;
  const i64 m1 = n1;
  if (((u64(p0) & 15) | (u64(p2) & 15) | ((n2 | n1) & 7)) == 0 && c1 + 8 <= n1) {
    const Pack<uint16_t, 8> x1 = ok ? read_pack<8>(p0 + (v0 * n2 + c1)) : Pack<uint16_t, 8>{};
    Pack<uint16_t, 8> y0;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const i64 i1 = c1 + j;
      const float v1 = f16_value(x1.e[j]);
      y0.e[j] = f16_bits(v1);
    }
    store_pack(p2 + (i0 * n1 + c1), y0);
  } else {
#pragma unroll 1
    for (int j = 0; j < 8; j++) {
      const i64 i1 = c1 + j;
      if (i1 < m1) {
        const float v1 = f16_value((ok ? __ldg(p0 + (v0 * n2 + i1)) : uint16_t(0)));
        p2[i0 * n1 + i1] = f16_bits(v1);
      }
    }
  }
}
