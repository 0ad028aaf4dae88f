// Tests mm and bmm against sums in double; the bits are the same at any number of threads.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

#include "jit/runtime/pool.h"
#include "ops/core/settings.h"
#include "ops/extern/extern.h"

namespace lutra {
namespace {

struct Operand {
  std::vector<float> memory;
  ExternView view;
  float at(int64_t b, int64_t r, int64_t c) const {
    const int d = view.dim - 2;
    const int64_t offset = (d ? b * view.strides[0] : 0) + r * view.strides[d] + c * view.strides[d + 1];
    return static_cast<float*>(view.data)[offset];
  }
};

enum Layout { kRows, kColumns, kPaddedRows, kStrided, kExpandedRows };

// A matrix (or a batch of them, batch >= 0) whose elements are a fixed function of the seed and their order in memory.
Operand make(int64_t batch, int64_t rows, int64_t cols, Layout layout, uint32_t seed) {
  Operand m;
  int64_t row = cols, col = 1;
  if (layout == kColumns) row = 1, col = rows;
  if (layout == kPaddedRows) row = cols + 5;
  if (layout == kStrided) row = 2 * cols + 3, col = 2;
  if (layout == kExpandedRows) row = 0;
  const int64_t one = (rows + 1) * (std::max(row, col) + 2) + (cols + 1) * std::max(row, col) + 8;
  m.memory.resize(size_t(one * std::max<int64_t>(batch, 1)));
  for (float& x : m.memory) {
    seed = seed * 1664525u + 1013904223u;
    x = float(int32_t(seed)) * 0x1p-31f;
  }
  m.view.data = m.memory.data();
  m.view.dim = batch >= 0 ? 3 : 2;
  const int d = m.view.dim - 2;
  if (d) m.view.sizes[0] = batch, m.view.strides[0] = one;
  m.view.sizes[d] = rows, m.view.sizes[d + 1] = cols;
  m.view.strides[d] = row, m.view.strides[d + 1] = col;
  return m;
}

std::vector<float> multiply(const Operand& a, const Operand& b, Operand& c, int threads) {
  settings().num_threads = threads;
  for (float& x : c.memory) x = NAN;
  const ExternView in[] = {a.view, b.view};
  run_extern({a.view.dim == 3 ? OpId::bmm : OpId::mm, in, {&c.view, 1}, {}, {}, {}, parallel_for, thread_count()});
  settings().num_threads = 0;
  return c.memory;
}

void check_product(int64_t batch, int64_t m, int64_t n, int64_t k, Layout la, Layout lb, Layout lc) {
  INFO("batch " << batch << " " << m << "x" << k << "x" << n << " layouts " << la << lb << lc);
  Operand a = make(batch, m, k, la, 1), b = make(batch, k, n, lb, 2), c = make(batch, m, n, lc, 3);
  const auto one = multiply(a, b, c, 1), two = multiply(a, b, c, 2), five = multiply(a, b, c, 5);
  REQUIRE(std::memcmp(one.data(), two.data(), one.size() * 4) == 0);
  REQUIRE(std::memcmp(one.data(), five.data(), one.size() * 4) == 0);
  double worst = 0;
  const int64_t row_step = std::max<int64_t>(1, m / 17), col_step = std::max<int64_t>(1, n / 19);
  for (int64_t i = 0; i < std::abs(batch); i++) {
    for (int64_t r = 0; r < m; r += row_step) {
      for (int64_t q = 0; q < n; q += col_step) {
        double sum = 0, scale = 1e-30;
        for (int64_t p = 0; p < k; p++) {
          sum += double(a.at(i, r, p)) * double(b.at(i, p, q));
          scale += std::fabs(double(a.at(i, r, p)) * double(b.at(i, p, q)));
        }
        const double error = std::fabs(double(c.at(i, r, q)) - sum) / scale;
        worst = std::isnan(error) ? 1 : std::max(worst, error);
      }
    }
  }
  CHECK(worst < 2e-6);
}

}  // namespace

TEST_CASE("products agree with sums in double and do not depend on threads", "[runtime][gemm]") {
  CHECK_FALSE(extern_supports(OpId::mm, DType::kInt64, DeviceType::kCPU));
  CHECK_FALSE(extern_supports(OpId::add, DType::kFloat32, DeviceType::kCPU));
  for (const Layout la : {kRows, kColumns, kPaddedRows, kStrided, kExpandedRows}) {
    for (const Layout lb : {kRows, kColumns, kStrided}) {
      for (const Layout lc : {kRows, kColumns, kStrided}) check_product(-1, 33, 21, 17, la, lb, lc);
    }
  }
  check_product(-1, 128, 256, 784, kRows, kColumns, kRows);
  check_product(-1, 784, 256, 128, kColumns, kRows, kRows);
  check_product(-1, 300, 310, 320, kColumns, kColumns, kColumns);
  check_product(-1, 1, 3000, 1000, kRows, kRows, kRows);
  check_product(-1, 3000, 1, 1000, kRows, kRows, kRows);
  check_product(3, 65, 70, 31, kRows, kColumns, kRows);
  check_product(9, 64, 64, 64, kColumns, kRows, kRows);
}

TEST_CASE("products of empty operands", "[runtime][gemm]") {
  Operand a = make(-1, 3, 0, kRows, 1), b = make(-1, 0, 4, kRows, 2), c = make(-1, 3, 4, kRows, 3);
  multiply(a, b, c, 1);
  for (int64_t r = 0; r < 3; r++) {
    for (int64_t q = 0; q < 4; q++) CHECK(c.at(0, r, q) == 0);
  }
  Operand none = make(-1, 0, 4, kRows, 1), square = make(-1, 4, 4, kRows, 2), empty = make(-1, 0, 4, kRows, 3);
  multiply(none, square, empty, 1);
  check_product(0, 3, 4, 5, kRows, kRows, kRows);
}

}  // namespace lutra
