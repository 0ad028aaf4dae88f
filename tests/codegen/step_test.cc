// Tests loads whose elements lie one or more steps apart, backwards and forwards. Every executor gives the same, at
// every length, and touches nothing beyond the last element.
#include "tests/codegen/support.h"

namespace lutra {
namespace {

std::string name_of(DType t) {
  switch (t) {
    case DType::kBool: return "b8";
    case DType::kUInt8: return "u8";
    case DType::kInt8: return "i8";
    case DType::kInt16: return "i16";
    case DType::kInt32: return "i32";
    case DType::kInt64: return "i64";
    case DType::kFloat16: return "f16";
    case DType::kBFloat16: return "bf16";
    case DType::kFloat32: return "f32";
    default: return "f64";
  }
}

constexpr DType kSteppedTypes[] = {DType::kBool,  DType::kUInt8,   DType::kInt8,     DType::kInt16,   DType::kInt32,
                                   DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

// n elements, `step` apart. The last that is read is the last of its buffer, which ends at a page that is not there.
Case stepping(DType t, int64_t n, int64_t step) {
  const std::string name = name_of(t);
  Case c("kernel @k(p0: " + name + " in, p1: " + name +
         " out; n0, s1, s2;) { for i0 in n0 parallel vector { %0 = load." + name + " p0[s1 + i0*s2]\n store." + name +
         " p1[i0], %0 } }");
  const int64_t reach = (n - 1) * std::abs(step);
  c.buffer(t, size_t(reach + 1)).buffer(t, size_t(n));
  c.ints = {n, step < 0 ? reach : 0, step};
  c.end = n;
  c.fill_all(uint64_t(n * 16 + step), 0.1);
  return c;
}

}  // namespace

TEST_CASE("loads step by any stride", "[codegen]") {
  for (DType t : kSteppedTypes) {
    for (int64_t step : {-3, -2, -1, 2, 3}) {
      for (int64_t n = 1; n <= 70; n++) check_exact(stepping(t, n, step));
    }
  }
}

TEST_CASE("sums take elements that step by any stride", "[codegen]") {
  for (const char* type : {"f32", "f64", "i32", "i64"}) {
    const std::string name = type;
    const DType t = name == "f32"   ? DType::kFloat32
                    : name == "f64" ? DType::kFloat64
                    : name == "i32" ? DType::kInt32
                                    : DType::kInt64;
    for (int64_t step : {-2, -1, 2, 3}) {
      for (int64_t n : {1, 15, 16, 31, 64, 65, 200}) {
        Case c("kernel @k(p0: " + name + " in, p1: " + name + " out; n0, s1, s2;) { for i0 in n0 lanes acc(%5: sum." +
               name + " x32) { %0 = load." + name + " p0[s1 + i0*s2]\n accum." + name + " %5, %0 }\n store." + name +
               " p1[0], %5 }");
        const int64_t reach = (n - 1) * std::abs(step);
        c.buffer(t, size_t(reach + 1)).buffer(t, 1);
        c.ints = {n, step < 0 ? reach : 0, step};
        c.fill_all(uint64_t(n), 0);
        check_exact(c);
      }
    }
  }
}

}  // namespace lutra
