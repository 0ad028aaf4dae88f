// Products of few rows and with weights of few bits: the GPU's kernels, run by the host, against the CPU's.
#include <catch2/catch.hpp>

#include "tests/cuda_extern/calls.h"

namespace lutra::cuda {
namespace {

constexpr double kHalfBound = 1e-2, kFloatBound = 2e-5;

double bound_of(DType t) { return t == DType::kFloat32 ? kFloatBound : kHalfBound; }

struct ProductShape {
  int64_t m, n, k;
};

// Each text is compiled: one shape for most dtypes.
std::vector<ProductShape> shapes_of(DType t, std::vector<ProductShape> all) {
  if (t != DType::kFloat32) all.erase(all.begin() + (t == DType::kBFloat16 ? 2 : 1), all.end());
  return all;
}

}  // namespace

TEST_CASE("cuda extern: products of few rows") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (ProductShape s : shapes_of(t, {{1, 9, 64}, {2, 5, 33}, {1, 40, 1300}, {2, 7, 1100}})) {
      INFO(name(t) << " " << s.m << " " << s.n << " " << s.k);
      const Operand x = random_operand(t, {s.m, s.k}, -1, 1), w = random_operand(t, {s.k, s.n}, -0.1, 0.1, {1, 0});
      CHECK(difference(m, {OpId::mm, {x, w}, {make_operand(t, {s.m, s.n})}, {}, {}, {}}) <= bound_of(t));
      const Operand a = random_operand(t, {s.n, s.k}, -1, 1), b = random_operand(t, {s.k, s.m}, -0.1, 0.1);
      CHECK(difference(m, {OpId::mm, {a, b}, {make_operand(t, {s.n, s.m}, {1, 0})}, {}, {}, {}}) <= bound_of(t));
    }
  }
  CHECK(m.launches["few_rows"] == 14);
}

TEST_CASE("cuda extern: weights of int8") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (ProductShape s : shapes_of(t, {{1, 9, 64}, {40, 30, 50}, {2, 5, 37}, {5, 40, 1300}, {9, 7, 48}})) {
      INFO(name(t) << " " << s.m << " " << s.n << " " << s.k);
      const Operand x = random_operand(t, {s.m, s.k}, -1, 1), w = random_operand(DType::kInt8, {s.n, s.k}, -128, 127);
      const Operand scales = random_operand(t == DType::kFloat16 ? DType::kFloat32 : t, {s.n}, 0.001, 0.002);
      const Case plain{OpId::weight_int8pack_mm, {x, w, scales}, {make_operand(t, {s.m, s.n})}, {}, {}, {}};
      CHECK(difference(m, plain) <= bound_of(t));
      const Operand turned = random_operand(DType::kInt8, {s.n, s.k}, -128, 127, {1, 0});
      const Operand by = random_operand(scales.view.dtype, {s.n}, 0.001, 0.002, {}, 2);
      const Operand rows = random_operand(t, {s.m, s.k}, -1, 1, {1, 0});
      const Case c{OpId::weight_int8pack_mm, {rows, turned, by}, {make_operand(t, {s.m, s.n}, {1, 0})}, {}, {}, {}};
      CHECK(difference(m, c) <= bound_of(t));
    }
  }
  CHECK(m.launches["few_rows"] > 0);
  CHECK(m.launches["widen_int8"] > 0);
}

TEST_CASE("cuda extern: weights of int4") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (int64_t group : {32, 64, 128, 256}) {
      for (ProductShape s : shapes_of(t, {{1, 9, 2}, {40, 30, 1}, {3, 5, 1}, {6, 21, 5}})) {
        const int64_t k = s.k * group;
        INFO(name(t) << " " << s.m << " " << s.n << " " << k << " by " << group);
        const Operand x = random_operand(t, {s.m, k}, -1, 1), w = random_operand(DType::kUInt8, {s.n, k / 2}, 0, 255);
        const Operand by = random_operand(t, {s.k, s.n, 2}, -0.01, 0.01);
        const Case c{OpId::weight_int4pack_mm, {x, w, by}, {make_operand(t, {s.m, s.n})}, {group}, {}, {}};
        CHECK(difference(m, c) <= bound_of(t));
      }
    }
  }
  CHECK(m.launches["widen_int4"] > 0);
}

TEST_CASE("cuda extern: weights of few bits on tensor cores") {
  HostMachine m;
  // More blocks of k than warps, rows of x in two tiles and in four, rows of the weight in several blocks.
  for (ProductShape s : {ProductShape{2, 20, 1216}, ProductShape{12, 40, 128}, ProductShape{20, 40, 640}}) {
    const DType t = s.m == 12 ? DType::kFloat16 : DType::kBFloat16;
    const Operand x = random_operand(t, {s.m, s.k}, -1, 1), w = random_operand(DType::kInt8, {s.n, s.k}, -128, 127);
    const Operand by = random_operand(t, {s.n}, 0.001, 0.002), out = make_operand(t, {s.m, s.n});
    CHECK(difference(m, {OpId::weight_int8pack_mm, {x, w, by}, {out}, {}, {}, {}}) <= kHalfBound);
    const int64_t k = s.k / 128 * 128;
    const Operand y = random_operand(t, {s.m, k}, -1, 1), v = random_operand(DType::kUInt8, {s.n, k / 2}, 0, 255);
    const Operand zeros = random_operand(t, {k / 128, s.n, 2}, -0.01, 0.01);
    CHECK(difference(m, {OpId::weight_int4pack_mm, {y, v, zeros}, {out}, {128}, {}, {}}) <= kHalfBound);
  }
  CHECK(m.launches["few_bits"] == 6);
}

TEST_CASE("cuda extern: bits of few rows do not depend on alignment or neighbours") {
  HostMachine m;
  const int64_t n = 11, k = 256;
  for (DType t : {DType::kFloat32, DType::kBFloat16}) {
    const auto size = int64_t(size_of(t));
    const Operand x = random_operand(t, {8, k}, -1, 1), w = random_operand(DType::kInt8, {n, k}, -128, 127);
    const Operand by = random_operand(t, {n}, 0, 1);
    std::string error;
    const Case all{OpId::weight_int8pack_mm, {x, w, by}, {make_operand(t, {8, n})}, {}, {}, {}};
    const std::vector<char> want = all.run(DeviceType::kCUDA, error)[0];
    // Half floats of two rows and more are multiplied on tensor cores.
    const int64_t each = t == DType::kBFloat16 ? 2 : 1;
    for (int64_t row = 0; row < 8; row += each) {
      Operand some = make_operand(t, {each, k});
      std::memcpy(some.bytes.data(), x.bytes.data() + row * k * size, size_t(each * k * size));
      // Rows one byte further apart are nowhere aligned.
      Operand odd = make_operand(DType::kInt8, {n, k + 1});
      odd.view.sizes[1] = k;
      for (int64_t r = 0; r < n; r++) {
        std::memcpy(odd.bytes.data() + r * (k + 1), w.bytes.data() + r * k, size_t(k));
      }
      for (const Operand& weight : {w, odd}) {
        const Case c{OpId::weight_int8pack_mm, {some, weight, by}, {make_operand(t, {each, n})}, {}, {}, {}};
        const std::vector<char> got = c.run(DeviceType::kCUDA, error)[0];
        CHECK(std::memcmp(got.data(), want.data() + row * n * size, size_t(each * n * size)) == 0);
      }
    }
  }
  CHECK(m.launches["few_bits"] == 9);
}

}  // namespace lutra::cuda
