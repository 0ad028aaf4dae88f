// Tests products on random shapes, strides and dtypes: each element is a sum of chains of fused multiply-adds
// (gemm.cc), on every instruction set and for any division of the work.
#include <catch2/catch.hpp>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ops/core/cpu.h"
#include "ops/core/half.h"
#include "ops/core/numerics.h"
#include "ops/extern/cpu/kernels.h"

namespace lutra {
namespace {

// A matrix, or a batch of them, whose dimensions lie in memory in the order `order`, each element `apart` from the
// next.
struct Matrices {
  std::vector<double> memory;  // of elements of any dtype
  ExternView view;
  Matrices(DType dtype, std::vector<int64_t> sizes, std::vector<int> order, int64_t apart) {
    view.dtype = dtype;
    view.dim = int32_t(sizes.size());
    int64_t n = apart;
    for (size_t i = order.size(); i-- > 0;) {
      const int d = order[i];
      view.sizes[d] = sizes[size_t(d)], view.strides[d] = n;
      n *= sizes[size_t(d)];
    }
    memory.resize(size_t(n) + 1);
    view.data = memory.data();
  }
  int64_t place(int64_t b, int64_t r, int64_t c) const {
    const int64_t* s = view.strides;
    return view.dim == 3 ? b * s[0] + r * s[1] + c * s[2] : r * s[0] + c * s[1];
  }
  double get(int64_t at) const {
    switch (view.dtype) {
      case DType::kFloat64: return static_cast<double*>(view.data)[at];
      case DType::kFloat32: return static_cast<float*>(view.data)[at];
      case DType::kBFloat16: return bfloat16_to_float(static_cast<uint16_t*>(view.data)[at]);
      default: return half_to_float(static_cast<uint16_t*>(view.data)[at]);
    }
  }
  void set(int64_t at, double v) {
    switch (view.dtype) {
      case DType::kFloat64: static_cast<double*>(view.data)[at] = v; break;
      case DType::kFloat32: static_cast<float*>(view.data)[at] = float(v); break;
      case DType::kBFloat16: static_cast<uint16_t*>(view.data)[at] = float_to_bfloat16(float(v)); break;
      default: static_cast<uint16_t*>(view.data)[at] = float_to_half(float(v));
    }
  }
  void fill(const std::function<double()>& next) {
    const int64_t n = int64_t(memory.size() * sizeof(double)) / int64_t(size_of(view.dtype));
    for (int64_t i = 0; i < n; i++) set(i, next());
  }
};

void in_pieces(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& body) {
  for (int64_t i = n; i-- > 0;) body(i, i + 1);
}

// The order of bfloat16: sums of numerics::kPairSteps terms, of blocks of two chains.
double sum_of_pairs(const Matrices& a, const Matrices& b, int64_t matrix, int64_t i, int64_t j, int64_t k) {
  const auto flushed = [](float v) { return std::fabs(v) < FLT_MIN ? std::copysign(0.0f, v) : v; };
  const auto multiply = [&](int64_t l, float sum) {
    const float x = l < k ? flushed(float(a.get(a.place(matrix, i, l)))) : 0;
    const float y = l < k ? flushed(float(b.get(b.place(matrix, l, j)))) : 0;
    const double whole = double(x) * double(y) + double(sum);
    if (std::fabs(whole) < 0x1p-126 - 0x1p-151) return std::copysign(0.0f, std::fma(x, y, sum));
    return std::fma(x, y, sum);
  };
  float all = 0;
  for (int64_t at = 0; at < k; at += numerics::kPairSteps) {
    float sum = 0;
    for (int64_t l = at; l < std::min(k, at + numerics::kPairSteps); l += numerics::kPairBlock) {
      float even = 0, odd = 0;
      for (int64_t p = 0; p < numerics::kPairBlock; p += 2)
        even = multiply(l + p, even), odd = multiply(l + p + 1, odd);
      sum = flushed(sum + flushed(even + odd));
    }
    all = at ? flushed(all + sum) : sum;
  }
  return double(all);
}

template <class T>
double sum_of_chains(const Matrices& a, const Matrices& b, int64_t matrix, int64_t i, int64_t j, int64_t k) {
  T sum = 0;
  for (int64_t at = 0; at < k; at += numerics::kProductSteps) {
    T chain = 0;
    for (int64_t l = at; l < std::min(k, at + numerics::kProductSteps); l++) {
      chain = std::fma(T(a.get(a.place(matrix, i, l))), T(b.get(b.place(matrix, l, j))), chain);
    }
    sum = at ? sum + chain : chain;
  }
  return double(sum);
}

}  // namespace

TEST_CASE("extern: products are sums of chains of fused multiply-adds", "[extern]") {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  const auto pick = [&](auto of) { return of[random() % of.size()]; };
  for (int round = 0; round < 200; round++) {
    const auto dtype = pick(std::vector{DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16});
    const bool batched = random() % 2;
    int64_t batch = batched ? pick(std::vector<int64_t>{0, 1, 3}) : 1;
    int64_t m = pick(std::vector<int64_t>{0, 1, 5, 8, 13, 14, 15, 28, 29, 113}),
            n = pick(std::vector<int64_t>{0, 1, 7, 8, 16, 17, 40, 130}),
            k = pick(std::vector<int64_t>{0, 1, 9, 33, 256, 257, 600});
    // Beyond one block of rows or columns, or of what is kept.
    if (round % 50 == 7) batch = 1, m = 1100, n = 40, k = 20;
    if (round % 50 == 17) batch = 1, m = 30, n = 1200, k = 20;
    if (round % 50 == 27) batch = 1, m = 3, n = 9000, k = 40;
    // More than what is packed at once.
    if (round % 50 == 37) batch = 1, m = 200, n = 50, k = 1100;
    if (round % 50 == 47) batch = 1, m = 120, n = 400, k = 520;
    INFO(info(dtype).name << ": " << batch << " x " << m << " x " << k << " x " << n);
    const auto make = [&](int64_t rows, int64_t cols) {
      const auto orders = batched ? std::vector<std::vector<int>>{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}}
                                  : std::vector<std::vector<int>>{{0, 1}, {1, 0}};
      const std::vector<int64_t> sizes =
          batched ? std::vector<int64_t>{batch, rows, cols} : std::vector<int64_t>{rows, cols};
      return Matrices(dtype, sizes, pick(orders), random() % 4 ? 1 : 2);
    };
    Matrices a = make(m, k), b = make(k, n), c = make(m, n);
    a.fill([&] { return normal(random); });
    b.fill([&] { return normal(random); });
    std::vector<double> want;
    for (int64_t at = 0; at < batch * m * n; at++) {
      const int64_t i = at / n % m, j = at % n, matrix = at / n / m;
      const bool wide = dtype == DType::kFloat64;
      if (dtype == DType::kBFloat16)
        want.push_back(sum_of_pairs(a, b, matrix, i, j, k));
      else
        want.push_back(wide ? sum_of_chains<double>(a, b, matrix, i, j, k)
                            : sum_of_chains<float>(a, b, matrix, i, j, k));
    }
    Matrices rounded = c;
    rounded.view.data = rounded.memory.data();
    for (ExternIsa isa : {ExternIsa::kBase, ExternIsa::kAvx2, ExternIsa::kAvx512, ExternIsa::kAmx}) {
      if (isa == ExternIsa::kAmx && !cpu::has_amx()) continue;
      if (isa == ExternIsa::kAvx512 && !cpu::has_avx512()) continue;
      if (isa == ExternIsa::kAvx2 && !cpu::has_avx2()) continue;
      c.fill([] { return 7; });
      rounded.fill([] { return 7; });
      const ExternView in[] = {a.view, b.view};
      ExternCall call;
      call.op = batched ? OpId::bmm : OpId::mm;
      call.in = in;
      call.out = {&c.view, 1};
      call.isa = isa;
      if (round % 3) call.parallel = in_pieces, call.threads = round % 3 * 4;
      run_gemm(call);
      for (int64_t at = 0; at < batch * m * n; at++) {
        rounded.set(rounded.place(at / n / m, at / n % m, at % n), want[size_t(at)]);
      }
      // Nothing else is written, either.
      CHECK(c.memory.size() == rounded.memory.size());
      CHECK(std::memcmp(c.memory.data(), rounded.memory.data(), c.memory.size() * sizeof(double)) == 0);
    }
  }
}

// Any bits, numbers of all sizes, and numbers whose products lie around the least normal one.
TEST_CASE("extern: products of any bits of bfloat16 are the same on every instruction set", "[extern]") {
  if (!cpu::has_avx2())
    WARN("this machine has neither AVX2 nor more: there is one instruction set");
  else if (!cpu::has_avx512())
    WARN("this machine has no AVX-512: AVX2 alone is compared with the base");
  else if (!cpu::has_amx())
    WARN("this machine has no AMX: AVX-512 and AVX2 are compared with the base");
  std::mt19937 random(9);
  int64_t zeros = 0, negative_zeros = 0, infinite = 0, unordered = 0;
  for (int round = 0; round < 400; round++) {
    const int64_t m = 1 + int64_t(random() % 40), n = 1 + int64_t(random() % 40), k = 1 + int64_t(random() % 90);
    INFO(round << ": " << m << " x " << k << " x " << n);
    Matrices a(DType::kBFloat16, {m, k}, {round & 1, !(round & 1)}, 1),
        b(DType::kBFloat16, {k, n}, {round / 2 & 1, !(round / 2 & 1)}, 1), c(DType::kBFloat16, {m, n}, {0, 1}, 1);
    const auto bits = [&]() -> uint16_t {
      const auto x = uint16_t(random()), rest = uint16_t(x & 0x807f);
      switch (round % 5) {
        case 0: return x;
        case 1: return uint16_t(rest | (60 + random() % 8) << 7);  // around 2^-63
        case 2: return random() % 2 ? uint16_t(rest | 63 << 7) : uint16_t(random() % 4 ? x & 0x8000 : rest);
        case 3: return random() % 60 ? uint16_t(rest | (189 + random() % 3) << 7) : uint16_t(rest | 0x7f80);
        default: return uint16_t((x & 0x8040) | (63 + random() % 2) << 7);  // sums that come to nothing
      }
    };
    for (Matrices* x : {&a, &b}) {
      auto* to = static_cast<uint16_t*>(x->view.data);
      for (int64_t i = 0; i < x->view.sizes[0] * x->view.sizes[1]; i++) to[i] = bits();
    }
    std::vector<double> want;
    for (int64_t at = 0; at < m * n; at++) want.push_back(sum_of_pairs(a, b, 0, at / n, at % n, k));
    for (ExternIsa isa : {ExternIsa::kBase, ExternIsa::kAvx2, ExternIsa::kAvx512, ExternIsa::kAmx}) {
      if (isa == ExternIsa::kAmx && !cpu::has_amx()) continue;
      if (isa == ExternIsa::kAvx512 && !cpu::has_avx512()) continue;
      if (isa == ExternIsa::kAvx2 && !cpu::has_avx2()) continue;
      const ExternView in[] = {a.view, b.view};
      ExternCall call;
      call.op = OpId::mm, call.in = in, call.out = {&c.view, 1}, call.isa = isa;
      run_gemm(call);
      int64_t wrong = 0;
      for (int64_t at = 0; at < m * n; at++) {
        const double got = c.get(at);
        const double expected = bfloat16_to_float(float_to_bfloat16(float(want[size_t(at)])));
        const bool nan = std::isnan(got) && std::isnan(expected);  // all of them are equal
        wrong += !nan && std::memcmp(&got, &expected, sizeof got) != 0;
        zeros += got == 0 && !std::signbit(got), negative_zeros += got == 0 && std::signbit(got);
        infinite += std::isinf(got), unordered += std::isnan(got);
      }
      INFO("instruction set " << int(isa));
      CHECK(wrong == 0);
    }
  }
  CHECK(zeros > 1000);
  CHECK(negative_zeros > 0);
  CHECK(infinite > 1000);
  CHECK(unordered > 1000);
}

TEST_CASE("extern: blocks of steps that are added in several rounds make the same product", "[extern]") {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    INFO(info(dtype).name);
    Matrices a(dtype, {450, 12000}, {1, 0}, 1), b(dtype, {12000, 500}, {0, 1}, 1), alone(dtype, {450, 500}, {0, 1}, 1);
    Matrices shared = alone;
    shared.view.data = shared.memory.data();
    a.fill([&] { return normal(random); });
    b.fill([&] { return normal(random); });
    const ExternView in[] = {a.view, b.view};
    ExternCall call;
    call.op = OpId::mm;
    call.in = in;
    call.isa = cpu::has_amx() ? ExternIsa::kAmx : cpu::has_avx2() ? ExternIsa::kAvx2 : ExternIsa::kBase;
    call.out = {&alone.view, 1};
    run_gemm(call);
    static int64_t rounds = 0;
    rounds = 0;
    call.parallel = [](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
      rounds++;
      in_pieces(n, grain, body);
    };
    call.threads = 32;
    call.out = {&shared.view, 1};
    run_gemm(call);
    CHECK(rounds > 1);
    CHECK(shared.memory == alone.memory);
  }
}

#if defined(__x86_64__)
// Whether some operand was denormal since the last call: processors may take a hundred times as long for it.
bool had_denormals() {
  const unsigned flags = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(flags & ~2u);
  return flags & 2u;
}

TEST_CASE("extern: what fills up vectors of a product is not what lay in memory", "[extern]") {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (ExternIsa isa : {ExternIsa::kBase, ExternIsa::kAvx2, ExternIsa::kAvx512, ExternIsa::kAmx}) {
      if (isa == ExternIsa::kAmx && !cpu::has_amx()) continue;
      if (isa == ExternIsa::kAvx512 && !cpu::has_avx512()) continue;
      if (isa == ExternIsa::kAvx2 && !cpu::has_avx2()) continue;
      const auto multiply = [&](int64_t rows, int64_t cols, std::vector<int> order, double factor) {
        Matrices a(dtype, {rows, 64}, {0, 1}, 1), b(dtype, {64, cols}, std::move(order), 1),
            c(dtype, {rows, cols}, {0, 1}, 1);
        a.fill([&] { return normal(random); });
        b.fill([&] { return factor * normal(random); });
        c.fill([] { return 0; });
        const ExternView in[] = {a.view, b.view};
        ExternCall call;
        call.op = OpId::mm, call.in = in, call.out = {&c.view, 1}, call.isa = isa;
        had_denormals();
        run_gemm(call);
        return had_denormals();
      };
      for (int64_t rows : {30, 200}) {
        for (int64_t cols : {3, 8, 21}) {
          for (std::vector<int> order : {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
            INFO(info(dtype).name << ' ' << rows << ' ' << cols << ' ' << order[0]);
            CHECK(multiply(rows, 64, order, dtype == DType::kFloat32 ? 1e-42 : 1e-318));
            CHECK_FALSE(multiply(rows, cols, order, 1));
          }
        }
      }
    }
  }
}
#endif

}  // namespace lutra
