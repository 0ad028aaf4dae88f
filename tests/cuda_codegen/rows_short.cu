// rows T8 V4 block256 R2 of 4
struct Block {
  Head head;
  void* p[4];
  i64 n[2];
  double x[1];
};
extern "C" __global__ void __launch_bounds__(256, 4) lutra_layer_norm(const __grid_constant__ Block b) {
  sync_dependencies();
  const float* const p0 = static_cast<const float*>(b.p[0]);
  const float* const p1 = static_cast<const float*>(b.p[1]);
  const float* const p2 = static_cast<const float*>(b.p[2]);
  float* const p3 = static_cast<float*>(b.p[3]);
  const i64 n0 = b.n[0];
  const i64 n1 = b.n[1];
  const int t = threadIdx.x % 8;
  const i64 all = n0, own = i64(blockIdx.x) * 32 + threadIdx.x / 8;
  const bool live = own < all;
  const i64 g = live ? own : all - 1;
  const i64 i0 = g;
  const i64 v30 = n1;
  const float v31 = float(v30);
  const float v14 = float(b.x[0]);
  const bool first = live && t == 0;
  const bool packed = ((u64(p0) & 15) | (u64(p1) & 15) | (u64(p2) & 15) | (u64(p3) & 15) | ((n1) & 3)) == 0;
  if (packed && n1 <= 64) {
    Sum<float>::A a10[8];
#pragma unroll
    for (int j = 0; j < 8; j++) a10[j] = Sum<float>::none();
    const i64 m1 = live ? n1 : 0;
    Pack<float, 4> x0[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int c1 = (r * 8 + t) * 4;
      if (c1 < m1) {
        x0[r] = read_pack<4>(p0 + (i0 * n1 + c1));
      }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int c1 = (r * 8 + t) * 4;
      if (c1 < m1) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const i64 i1 = c1 + j;
          const float v0 = x0[r].e[j];
          a10[r % 2 * 4 + j] = Sum<float>::of(a10[r % 2 * 4 + j], v0);
        }
      }
    }
    halve<Sum<float>, 8, 4>(a10);
    const float v10 = Sum<float>::of(of_warp<Sum<float>, 8, 4>(a10, t), Sum<float>::none());
    const float v11 = v10 / v31;
    Sum<float>::A a12[8];
#pragma unroll
    for (int j = 0; j < 8; j++) a12[j] = Sum<float>::none();
    const i64 m2 = live ? n1 : 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int c2 = (r * 8 + t) * 4;
      if (c2 < m2) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const i64 i2 = c2 + j;
          const float v1 = x0[r].e[j];
          const float v2 = v1 - v11;
          const float v3 = v2 * v2;
          a12[r % 2 * 4 + j] = Sum<float>::of(a12[r % 2 * 4 + j], v3);
        }
      }
    }
    halve<Sum<float>, 8, 4>(a12);
    const float v12 = Sum<float>::of(of_warp<Sum<float>, 8, 4>(a12, t), Sum<float>::none());
    const float v13 = v12 / v31;
    const float v15 = v13 + v14;
    const float v16 = sqrtf(v15);
    const i64 m3 = live ? n1 : 0;
    Pack<float, 4> y0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int c3 = (r * 8 + t) * 4;
      if (c3 < m3) {
        const Pack<float, 4> x7 = read_pack<4>(p1 + (c3));
        const Pack<float, 4> x9 = read_pack<4>(p2 + (c3));
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const i64 i3 = c3 + j;
          const float v4 = x0[r].e[j];
          const float v5 = v4 - v11;
          const float v6 = v5 / v16;
          const float v7 = x7.e[j];
          const float v8 = v6 * v7;
          const float v9 = x9.e[j];
          const float v17 = v8 + v9;
          y0.e[j] = v17;
        }
        store_pack(p3 + (i0 * n1 + c3), y0);
      }
    }
    return;
  }
  Sum<float>::A a10[4];
#pragma unroll
  for (int j = 0; j < 4; j++) a10[j] = Sum<float>::none();
  const i64 m1 = live ? n1 : 0;
  Sum<float>::A f10[6][4];
#pragma unroll 1
  for (unsigned h = 0; h < 32; h++) {
    for (int j = 0; j < 4; j++) a10[j] = Sum<float>::none();
    const i64 s1 = i64(__brev(h) >> 27) * 32 + t * 4;
#pragma unroll 1
    for (i64 c1 = s1; c1 < m1; c1 += 1024) {
#pragma unroll 1
      for (int j = 0; j < 4; j++) {
        const i64 i1 = c1 + j;
        if (i1 < m1) {
          const float v0 = __ldg(p0 + (i0 * n1 + i1));
          a10[j] = Sum<float>::of(a10[j], v0);
        }
      }
    }
    int level = 0;
    for (; h >> level & 1; level++) {
      for (int j = 0; j < 4; j++) a10[j] = Sum<float>::of(f10[level][j], a10[j]);
    }
    for (int j = 0; j < 4; j++) f10[level][j] = a10[j];
  }
  const float v10 = of_warp<Sum<float>, 8, 4>(a10, t);
  const float v11 = v10 / v31;
  Sum<float>::A a12[4];
#pragma unroll
  for (int j = 0; j < 4; j++) a12[j] = Sum<float>::none();
  const i64 m2 = live ? n1 : 0;
  Sum<float>::A f12[6][4];
#pragma unroll 1
  for (unsigned h = 0; h < 32; h++) {
    for (int j = 0; j < 4; j++) a12[j] = Sum<float>::none();
    const i64 s2 = i64(__brev(h) >> 27) * 32 + t * 4;
#pragma unroll 1
    for (i64 c2 = s2; c2 < m2; c2 += 1024) {
#pragma unroll 1
      for (int j = 0; j < 4; j++) {
        const i64 i2 = c2 + j;
        if (i2 < m2) {
          const float v1 = __ldg(p0 + (i0 * n1 + i2));
          const float v2 = v1 - v11;
          const float v3 = v2 * v2;
          a12[j] = Sum<float>::of(a12[j], v3);
        }
      }
    }
    int level = 0;
    for (; h >> level & 1; level++) {
      for (int j = 0; j < 4; j++) a12[j] = Sum<float>::of(f12[level][j], a12[j]);
    }
    for (int j = 0; j < 4; j++) f12[level][j] = a12[j];
  }
  const float v12 = of_warp<Sum<float>, 8, 4>(a12, t);
  const float v13 = v12 / v31;
  const float v15 = v13 + v14;
  const float v16 = sqrtf(v15);
  const i64 m3 = live ? n1 : 0;
  i64 s3 = t * 4;
#pragma unroll 1
  for (; s3 < m3; s3 += 32) {
    const i64 c3 = s3;
#pragma unroll 1
    for (int j = 0; j < 4; j++) {
      const i64 i3 = c3 + j;
      if (i3 < m3) {
        const float v4 = __ldg(p0 + (i0 * n1 + i3));
        const float v5 = v4 - v11;
        const float v6 = v5 / v16;
        const float v7 = __ldg(p1 + (i3));
        const float v8 = v6 * v7;
        const float v9 = __ldg(p2 + (i3));
        const float v17 = v8 + v9;
        p3[i0 * n1 + i3] = v17;
      }
    }
  }
}
