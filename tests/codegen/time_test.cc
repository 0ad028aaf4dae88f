// How long code takes to make: not run by default (lutra-tests "[.time]").
#include <chrono>
#include <iostream>

#include "tests/codegen/support.h"

namespace lutra {

TEST_CASE("codegen time of a kernel of ten ops", "[.time]") {
  const loop::Kernel k = loop::parse_kernel(
      "kernel @k(p0: f32 in, p1: f32 in, p2: f32 out; n0; x0) { for i0 in n0 parallel vector {\n %0 = load.f32 p0[i0]\n"
      " %1 = load.f32 p1[i0]\n %2 = add.f32 %0, %1\n %3 = mul.f32 %2, %0\n %4 = exp.f32 %3\n %5 = sub.f32 %4, %1\n"
      " %6 = scalar.f32 x0\n %7 = div.f32 %5, %6\n %8 = max.f32 %7, %0\n %9 = abs.f32 %8\n %10 = sqrt.f32 %9\n"
      " %11 = neg.f32 %10\n %12 = tanh.f32 %11\n store.f32 p2[i0], %12\n } }");
  for (const char* isa : native_isas()) {
    double best = 1e9;
    for (int i = 0; i < 50; i++) {
      const auto begin = std::chrono::steady_clock::now();
      const auto code = compile_kernel(k, isa);
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      CHECK(code->bytes > 0);
    }
    std::cout << isa << ": " << best * 1e3 << " ms\n";
  }
}

}  // namespace lutra
