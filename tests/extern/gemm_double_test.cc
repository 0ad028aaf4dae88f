// Products of float64 on random shapes and strides: each element is a chain of fused multiply-adds over k in order, on
// every instruction set and however the work is shared out.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "ops/core/cpu.h"
#include "ops/extern/cpu/kernels.h"

namespace lutra {
namespace {

// A matrix, or a batch of them, whose dimensions lie in memory in the order `order`, each element `apart` from the
// next.
struct Matrices {
  std::vector<double> data;
  ExternView view;
  Matrices(std::vector<int64_t> sizes, std::vector<int> order, int64_t apart, std::mt19937& random) {
    view.dtype = DType::kFloat64;
    view.dim = int32_t(sizes.size());
    int64_t n = apart;
    for (size_t i = order.size(); i-- > 0;) {
      const int d = order[i];
      view.sizes[d] = sizes[size_t(d)], view.strides[d] = n;
      n *= sizes[size_t(d)];
    }
    std::normal_distribution<double> d;
    data.resize(size_t(n) + 1);
    for (double& x : data) x = d(random);
    view.data = data.data();
  }
  double& at(int64_t b, int64_t r, int64_t c) {
    const int64_t* s = view.strides;
    return data[size_t(view.dim == 3 ? b * s[0] + r * s[1] + c * s[2] : r * s[0] + c * s[1])];
  }
};

void in_pieces(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& body) {
  for (int64_t i = n; i-- > 0;) body(i, i + 1);
}

}  // namespace

TEST_CASE("extern: products of float64 are chains of fused multiply-adds", "[extern]") {
  std::mt19937 random(3);
  const auto pick = [&](std::vector<int64_t> of) { return of[random() % of.size()]; };
  for (int round = 0; round < 120; round++) {
    const bool batched = random() % 2;
    const int64_t batch = batched ? pick({0, 1, 3}) : 1, m = pick({0, 1, 5, 13, 14, 15, 113}),
                  n = pick({0, 1, 7, 8, 16, 17, 40, 257}), k = pick({0, 1, 9, 192, 193, 400});
    INFO(batch << " x " << m << " x " << k << " x " << n);
    const auto make = [&](int64_t rows, int64_t cols) {
      std::vector<std::vector<int>> orders = batched ? std::vector<std::vector<int>>{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}}
                                                     : std::vector<std::vector<int>>{{0, 1}, {1, 0}};
      const std::vector<int64_t> sizes =
          batched ? std::vector<int64_t>{batch, rows, cols} : std::vector<int64_t>{rows, cols};
      return Matrices(sizes, orders[random() % orders.size()], int64_t(1 + random() % 2), random);
    };
    Matrices a = make(m, k), b = make(k, n), c = make(m, n);
    for (ExternIsa isa : {ExternIsa::kBase, ExternIsa::kAvx2, ExternIsa::kAvx512}) {
      if (isa == ExternIsa::kAvx512 && !cpu::has_avx512()) continue;
      if (isa == ExternIsa::kAvx2 && !cpu::has_avx2()) continue;
      for (double& x : c.data) x = NAN;
      const ExternView in[] = {a.view, b.view};
      ExternCall call;
      call.op = batched ? OpId::bmm : OpId::mm;
      call.in = in;
      call.out = {&c.view, 1};
      call.isa = isa;
      if (round % 3 == 0) call.parallel = in_pieces;
      run_gemm_double(call);
      int wrong = 0;
      for (int64_t at = 0; at < batch * m * n; at++) {
        const int64_t i = at / n % m, j = at % n, matrix = at / n / m;
        double want = 0;
        for (int64_t l = 0; l < k; l++) want = std::fma(a.at(matrix, i, l), b.at(matrix, l, j), want);
        wrong += c.at(matrix, i, j) != want;
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace lutra
