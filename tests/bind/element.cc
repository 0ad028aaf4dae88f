// Tests that elements of every dtype are stored as PyTorch casts them, and are read back unchanged.
#include "ops/defs/element.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace lutra;

namespace {

double through(DType dtype, double v) {
  char bytes[8] = {};
  store_element(bytes, dtype, Scalar(v));
  return load_element(bytes, dtype).to_double();
}

}  // namespace

TEST_CASE("half types round to nearest, ties to even", "[bind]") {
  CHECK(through(DType::kFloat16, 1.0 / 3) == 0.333251953125);
  CHECK(through(DType::kFloat16, 65504) == 65504);
  CHECK(through(DType::kFloat16, 65519) == 65504);
  CHECK(std::isinf(through(DType::kFloat16, 65520)));
  CHECK(through(DType::kFloat16, 2049) == 2048);
  CHECK(through(DType::kFloat16, 2051) == 2052);
  CHECK(through(DType::kFloat16, std::ldexp(1, -24)) == std::ldexp(1, -24));
  CHECK(through(DType::kFloat16, std::ldexp(1, -25)) == 0);
  CHECK(through(DType::kFloat16, std::ldexp(1023.5, -24)) == std::ldexp(1, -14));
  CHECK(std::signbit(through(DType::kFloat16, -0.0)));
  CHECK(std::isnan(through(DType::kFloat16, NAN)));
  CHECK(through(DType::kBFloat16, 3.14159) == 3.140625);
  CHECK(through(DType::kBFloat16, 257) == 256);
  CHECK(through(DType::kBFloat16, 259) == 260);
}

TEST_CASE("every half number comes back", "[bind]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t h = uint16_t(bits);
    const double v = load_element(&h, DType::kFloat16).to_double();
    if (std::isnan(v)) continue;
    uint16_t again = 0;
    store_element(&again, DType::kFloat16, Scalar(v));
    REQUIRE(again == h);
  }
}

TEST_CASE("integers take the whole part", "[bind]") {
  CHECK(through(DType::kInt64, 1.9) == 1);
  CHECK(through(DType::kInt64, -1.9) == -1);
  CHECK(through(DType::kUInt8, 255) == 255);
  CHECK(through(DType::kInt8, -128) == -128);
  CHECK(through(DType::kBool, 0.5) == 1);
  CHECK(through(DType::kInt64, NAN) == double(INT64_MIN));
}

TEST_CASE("elements of a view in row-major order", "[bind]") {
  Tensor t = make_tensor({2, 3}, DType::kInt64);
  for (int i = 0; i < 6; ++i) t->data_as<int64_t>()[i] = i;
  std::string text;
  Elements(alias(t, {3, 2}, {1, 3}, 0)).each([&](const Scalar& s) { text += std::to_string(s.i) + " "; });
  CHECK(text == "0 3 1 4 2 5 ");
}
