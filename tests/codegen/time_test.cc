// Measures the time to generate code. Not run by default (lutra-tests "[.time]").
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
      const auto code = compile_kernel(k, {{}, isa, {}});
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      CHECK(code->bytes > 0);
    }
    std::cout << isa << ": " << best * 1e3 << " ms\n";
  }
}

namespace {
// Seconds of a run of the kernel on n by n buffers.
double seconds(const char* text, const char* isa, DType type, int64_t n) {
  const auto code = compile_kernel(loop::parse_kernel(text), {{}, isa, {}});
  Bytes from(type, size_t(n * n)), to(type, size_t(n * n));
  std::vector<uint64_t> block(sizeof(BlockHead) / 8);
  BlockHead head;
  head.end = n;
  memcpy(block.data(), &head, sizeof head);
  for (const Bytes* b : {&from, &to}) block.push_back(uint64_t(uintptr_t(b->data)));
  block.push_back(uint64_t(n));
  double best = 1e9;
  for (int i = 0; i < 20; i++) {
    const auto begin = std::chrono::steady_clock::now();
    code->run(block.data());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}
}  // namespace

TEST_CASE("transposes beside copies", "[.time]") {
  for (const char* isa : native_isas()) {
    for (const std::string t : {"f32", "f64", "bf16", "u8"}) {
      const auto kernel = [&](const char* access) {
        return "kernel @k(p0: " + t + " in, p1: " + t +
               " out; n0;) { for i0 in n0 parallel { for i1 in n0 vector {\n %0 = load." + t + " p0[" + access +
               "]\n store." + t + " p1[i0*n0 + i1], %0\n } } }";
      };
      for (int64_t n : {1000, 1024, 2048}) {
        const DType type = dtype_from_ir_name(t);
        const double copy = seconds(kernel("i0*n0 + i1").c_str(), isa, type, n);
        const double transposed = seconds(kernel("i0 + i1*n0").c_str(), isa, type, n);
        std::cout << isa << " " << t << " " << n << ": copy " << copy * 1e3 << " ms, transposed " << transposed * 1e3
                  << " ms\n";
        CHECK(transposed > 0);
      }
    }
  }
}

}  // namespace lutra
