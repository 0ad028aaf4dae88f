// Tests the exact interpreter against the wide one: over ordinary data their results differ by a few roundings, and
// integers are equal.
#include "tests/codegen/support.h"

namespace lutra {
namespace {

// Largest difference relative to the wide result (absolute below 1).
double distance(const Bytes& exact, const Bytes& wide) {
  double most = 0;
  for (size_t i = 0; i < exact.elements; i++) {
    const double e = exact.real(i), w = wide.real(i);
    most = std::max(most, std::fabs(e - w) / std::max(1.0, std::fabs(w)));
  }
  return most;
}

}  // namespace

TEST_CASE("exact results are close to wide ones", "[codegen]") {
  for (const char* op : {"exp", "log", "tanh", "sqrt", "sin", "cos", "erf", "floor", "abs", "neg"}) {
    Case c(
        str("kernel @k(p0: f32 in, p1: f32 out; n0;) { for i0 in n0 vector { %0 = load.f32 p0[i0]\n %1 = abs.f32 %0\n "
            "%2 = ",
            op, ".f32 %1\n store.f32 p1[i0], %2 } }"));
    c.buffer(DType::kFloat32, 500).buffer(DType::kFloat32, 500);
    c.ints = {500};
    c.fill_all(3, 0);
    CHECK(distance(*c.run("interp")[1], *c.run("wide")[1]) < 3e-7);
  }
}

TEST_CASE("a sum's rounding is bounded, and wide is not exact", "[codegen]") {
  Case c(
      "kernel @k(p0: f32 in, p1: f32 out, p2: i64 in, p3: i64 out; n0;) { for i0 in n0 lanes acc(%5: sum.f32 x16, %6: "
      "sum.i64 x16) {\n"
      " %0 = load.f32 p0[i0]\n %1 = mul.f32 %0, %0\n accum.f32 %5, %1\n %2 = load.i64 p2[i0]\n accum.i64 %6, %2 }\n"
      " store.f32 p1[0], %5\n store.i64 p3[0], %6 }");
  c.buffer(DType::kFloat32, 10000).buffer(DType::kFloat32, 1).buffer(DType::kInt64, 10000).buffer(DType::kInt64, 1);
  c.ints = {10000};
  c.fill_all(4, 0);
  const auto exact = c.run("interp"), wide = c.run("wide");
  CHECK(distance(*exact[1], *wide[1]) < 1e-5);
  CHECK(exact[3]->as<int64_t>()[0] == wide[3]->as<int64_t>()[0]);
  double sum = 0;
  for (size_t i = 0; i < 10000; i++) sum += c.buffers[0]->real(i) * c.buffers[0]->real(i);
  CHECK(std::fabs(wide[1]->real(0) - sum) < 1e-3);
  CHECK(exact[1]->real(0) != 0);
}

}  // namespace lutra
