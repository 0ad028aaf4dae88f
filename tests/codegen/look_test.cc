// Tests kernels that poll for an interrupt: how often they poll, that they write the same as other kernels, and that
// they stop.
#include "jit/runtime/pool.h"
#include "ops/core/interrupt.h"
#include "tests/codegen/support.h"

namespace lutra {
namespace {

constexpr int64_t kNever = int64_t(1) << 60;

struct Row {
  const char* text;
  std::vector<std::pair<DType, size_t>> buffers;
  std::vector<int64_t> ints;
  int64_t least, first;  // looks of a run after each iteration; the number of the one that it is stopped at
};

std::vector<Row> rows() {
  const DType f32 = DType::kFloat32, i64 = DType::kInt64;
  return {
      {"kernel @row(p0: f32 in, p1: f32 out; n0, n1;) { for i0 in n0 parallel {\n"
       " for i1 in n1 lanes acc(%5: sum.f32 x32 by 32, %6: argmax.f32 x32) {\n %0 = load.f32 p0[i0*n1 + i1]\n"
       " %1 = exp.f32 %0\n accum.f32 %5, %1\n accum.f32 %6, %0\n }\n %7 = cast.f32 %6\n %8 = div.f32 %7, %5\n"
       " for i2 in n1 vector {\n %9 = load.f32 p0[i0*n1 + i2]\n %10 = tanh.f32 %9\n %11 = mul.f32 %10, %8\n"
       " store.f32 p1[i0*n1 + i2], %11\n } } }",
       {{f32, 6000}, {f32, 6000}},
       {2, 3000},
       200,
       100},
      {"kernel @columns(p0: f32 in, p1: f32 out; n0, n1;) { for i0 in n1 parallel vector {\n"
       " for i1 in n0 acc(%5: sum.f32 by 32) {\n %0 = load.f32 p0[i0 + i1*n1]\n accum.f32 %5, %0\n }\n"
       " store.f32 p1[i0], %5\n } }",
       {{f32, 21000}, {f32, 21}},
       {1000, 21},
       1000,
       500},
      {"kernel @tiles(p0: f32 in, p1: f32 in, p2: f32 out; n0, n1;) { for i0 in n0 parallel { for i1 in n1 vector {\n"
       " %0 = load.f32 p0[i0 + i1*n0]\n %1 = load.f32 p1[i0*n1 + i1]\n %2 = add.f32 %0, %1\n"
       " store.f32 p2[i0*n1 + i1], %2\n } } }",
       {{f32, 10000}, {f32, 10000}, {f32, 10000}},
       {100, 100},
       20,
       10},
      {"kernel @gather(p0: f32 in, p1: i64 in, p2: f32 out; n0, n1;) { for i0 in n1 vector {\n"
       " %0 = load.i64 p1[i0]\n %1 = intarg.i64 n0\n %2 = rem.i64 %0, %1\n %3 = load.f32 p0[%2]\n"
       " %4 = sqrt.f32 %3\n store.f32 p2[i0], %4\n } }",
       {{f32, 100}, {i64, 999}, {f32, 999}},
       {100, 999},
       100,
       50},
      {"kernel @sums(p0: f32 in, p1: f32 out; n0, n1;) { for i0 in n0 { for i1 in n1 {\n"
       " %0 = load.f32 p0[i0*n1 + i1]\n store_add.f32 p1[i1], %0\n } } }",
       {{f32, 900}, {f32, 9}},
       {100, 9},
       1000,
       500},
  };
}

Case made(const Row& row) {
  Case c(row.text);
  for (const auto& [type, n] : row.buffers) c.buffer(type, n);
  c.ints = row.ints;
  c.end = std::string(row.text).find("n1 parallel") == std::string::npos ? row.ints[0] : row.ints[1];
  c.fill_all(7, 0.0);
  return c;
}

std::vector<std::string> executors() {
  std::vector<std::string> how = {"interp"};
  if (!native_isas().empty() && best_isa() != std::string("arm64")) {
    for (const char* isa : native_isas()) how.emplace_back(isa);
  }
  return how;
}

// A scope in which the code looks whether to stop; `pass` looks are counted and ignored.
struct Looks {
  explicit Looks(int64_t pass) { stop_reason = "pressed", looks_to_pass = pass; }
  ~Looks() { stop_reason = nullptr, looks_to_pass = 0; }
  const StoppableLoops loops{true};
};

}  // namespace

TEST_CASE("kernels look, and compute the same", "[codegen]") {
  for (const Row& row : rows()) {
    const Case c = made(row);
    INFO(c.kernel.name);
    const auto want = c.run("interp");
    for (const std::string& how : executors()) {
      INFO(how);
      int64_t often = 0;
      for (const int32_t after : {1, 1000, 1 << 30}) {
        const Looks looks(kNever);
        CHECK(difference(want, c.run(how, nullptr, after)) == "");
        const int64_t n = kNever - looks_to_pass;
        if (after == 1) often = n;
        if (after == 1) CHECK(n >= row.least);
        if (after == 1000) CHECK(n < often);
        if (after == 1 << 30) CHECK(n == 0);
      }
    }
  }
}

TEST_CASE("kernels leave where they are told to", "[codegen]") {
  for (const Row& row : rows()) {
    const Case c = made(row);
    INFO(c.kernel.name);
    const auto want = c.run("interp");
    for (const std::string& how : executors()) {
      INFO(how);
      for (const int64_t at : {int64_t(0), row.first}) {
        const Looks looks(at);
        CHECK_THROWS_WITH(c.run(how, nullptr, 1), "pressed");
        CHECK(looks_to_pass == 0);
        CHECK_FALSE(stop_reason);  // it was asked once, and not again
      }
      CHECK(difference(want, c.run(how, nullptr, 1)) == "");  // nothing is left of it
    }
  }
}

}  // namespace lutra
