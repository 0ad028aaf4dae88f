// The simple kernel of products against the CPU's; the precision settings.
#include <catch2/catch.hpp>

#include "ops/cuda/library.h"
#include "ops/extern/precision.h"
#include "tests/cuda_extern/calls.h"

namespace lutra::cuda {

TEST_CASE("cuda extern: products without cuBLASLt") {
  HostMachine m;
  struct Shape {
    int64_t m, n, k;
  };
  for (DType t : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (!extern_supports(OpId::mm, t, DeviceType::kCPU)) continue;
    for (Shape s : {Shape{5, 7, 3}, Shape{70, 90, 33}, Shape{1, 8, 20}, Shape{4, 4, 0}}) {
      INFO(name(t) << s.m << " " << s.n << " " << s.k);
      const double tolerance = t == DType::kFloat32 ? 1e-5 : 1e-2;
      const Operand a = random_operand(t, {s.m, s.k}, -1, 1), b = random_operand(t, {s.k, s.n}, -1, 1, {1, 0});
      CHECK(difference(m, {OpId::mm, {a, b}, {make_operand(t, {s.m, s.n})}, {}, {}, {}}) <= tolerance);
      const Operand x = random_operand(t, {3, s.m, s.k}, -1, 1, {2, 0, 1}), y = random_operand(t, {3, s.k, s.n}, -1, 1);
      CHECK(difference(m, {OpId::bmm, {x, y}, {make_operand(t, {3, s.m, s.n}, {0, 2, 1})}, {}, {}, {}}) <= tolerance);
    }
  }
  CHECK(extern_supports(OpId::mm, DType::kFloat64, DeviceType::kCUDA));
  CHECK_FALSE(extern_supports(OpId::mm, DType::kInt64, DeviceType::kCUDA));
  CHECK(m.launches["gemm_tiled"] > 0);
}

TEST_CASE("cuda extern: copies of rows into rows further apart") {
  HostMachine m;
  for (int64_t columns : {255, 257, 5000}) {
    const Operand from = random_operand(DType::kFloat32, {3, columns}, -1, 1);
    std::vector<float> room(size_t(3 * columns + 6), 7.0f);
    const std::vector<char>& bytes = from.bytes;
    ExternView a = from.view, b = from.view;
    a.data = const_cast<char*>(bytes.data()), b.data = room.data(), b.strides[0] = columns + 2;
    const ExternCall call;
    Launcher l(call);
    copy_view(l, a, b);
    for (int64_t r = 0; r < 3; r++) {
      CHECK(std::memcmp(room.data() + r * (columns + 2), bytes.data() + size_t(r * columns) * 4, size_t(columns) * 4) ==
            0);
      CHECK(room[size_t(r * (columns + 2) + columns)] == 7.0f);
    }
  }
  CHECK(m.launches["copy_rows"] == 2);
}

TEST_CASE("cuda extern: settings of precision") {
  CHECK(matmul_precision() == MatmulPrecision::kHighest);
  set_matmul_precision(MatmulPrecision::kHigh);
  CHECK(matmul_precision() == MatmulPrecision::kHigh);
  set_matmul_precision(MatmulPrecision::kHighest);
  CHECK(convolution_tf32());
}

TEST_CASE("cuda extern: a library that is not there") {
  std::string why;
  CHECK(open_library({"libnothing_of_lutra.so.1", "libnothing_of_lutra.so.2"}, why) == nullptr);
  CHECK(why.find("libnothing_of_lutra.so.1 was not found") == 0);
}

}  // namespace lutra::cuda
