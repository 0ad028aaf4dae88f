// The tiles of convolutions: every instruction set that this machine has gives the same bits as plain C++.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "ops/core/cpu.h"
#include "ops/extern/cpu/conv_micro.h"

namespace lutra {
namespace {

template <class T>
std::vector<T> noise(size_t n, std::mt19937& random) {
  std::uniform_real_distribution<double> d(-1, 1);
  std::vector<T> v(n);
  for (T& x : v) x = T(d(random));
  return v;
}

// rows x columns results of one table: a step of 3 in the image, two runs, columns in vectors of the table's width.
template <class T>
std::vector<T> tiles(const ConvMicro<T>& m, int rows, int columns, const std::vector<T>& a, const std::vector<T>& b,
                     const std::vector<T>& start) {
  std::vector<T> c(size_t(rows * columns));
  const ConvRun runs[] = {{0, 5, 0}, {20, 7, 5}};
  for (int at = 0; at < columns; at += m.width) {
    std::vector<T> panel;
    for (int r = 0; r < 12; r++)
      panel.insert(panel.end(), &b[size_t(r * columns + at)], &b[size_t(r * columns + at)] + m.width);
    for (int first = 0; first < rows; first += m.tile_rows[0]) {
      const int n = std::min(m.tile_rows[0], rows - first);
      const ConvTile<T> t{
          a.data() + first * 3, 3, panel.data(), runs, 2, start.data() + at, &c[size_t(first * columns + at)], columns};
      m.tile[0][n](t);
    }
  }
  return c;
}

template <class T>
std::vector<T> outers(const ConvMicro<T>& m, int rows, int columns, const std::vector<T>& a, const std::vector<T>& g) {
  std::vector<T> c(size_t((rows + 1) * columns));
  ConvOuter<T> t{a.data(), 2, 17, g.data(), columns, 3 * columns, 3, 4, nullptr, columns};
  for (int at = 0; at < columns; at += m.width) {
    t.g = g.data() + at;
    for (int first = 0; first < rows; first += m.outer_rows[0]) {
      t.a = a.data() + first, t.c = &c[size_t(first * columns + at)];
      m.outer[0][std::min(m.outer_rows[0], rows - first)](t);
    }
    t.c = &c[size_t(rows * columns + at)];
    m.sum[0](t);
  }
  return c;
}

template <class T>
void check_same(const ConvMicro<T>& one, const ConvMicro<T>& other) {
  std::mt19937 random(7);
  for (int rows : {1, 3, 6, 14, 20}) {
    const int columns = 32;
    const auto a = noise<T>(200, random), b = noise<T>(12 * columns, random), start = noise<T>(columns, random);
    const auto x = tiles(one, rows, columns, a, b, start), y = tiles(other, rows, columns, a, b, start);
    CHECK(std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
    const auto v = outers(one, rows, columns, a, b), w = outers(other, rows, columns, a, b);
    CHECK(std::memcmp(v.data(), w.data(), v.size() * sizeof(T)) == 0);
  }
}

}  // namespace

TEST_CASE("tiles of convolutions give the same bits on every instruction set", "[extern]") {
  if constexpr (cpu::kX64) {
    if (cpu::has_avx2()) {
      check_same(conv_plain::kF32, conv_avx2::kF32);
      check_same(conv_plain::kF64, conv_avx2::kF64);
    }
    if (cpu::has_avx512()) {
      check_same(conv_plain::kF32, conv_avx512::kF32);
      check_same(conv_plain::kF64, conv_avx512::kF64);
    }
  }
}

}  // namespace lutra
