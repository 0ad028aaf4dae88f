// Column loads in tiles: transposed reads of every nest, type and ragged edge, against the interpreter.
#include "tests/codegen/support.h"

namespace lutra {
namespace {

void check_sizes(const std::string& text, const std::string& t,
                 const std::function<void(Case&, int64_t, int64_t)>& set) {
  for (int64_t rows : {1, 3, 15, 16, 17, 63, 64, 65, 130}) {
    for (int64_t columns : {1, 4, 7, 8, 9, 16, 33, 50}) {
      Case c(text);
      set(c, rows, columns);
      c.end = rows;
      c.fill_all(uint64_t(rows * 100 + columns));
      INFO(t << " " << rows << " by " << columns);
      check_exact(c);
    }
  }
}

}  // namespace

TEST_CASE("columns are read in tiles", "[codegen]") {
  for (const std::string t : {"f32", "f64", "i64", "f16", "bf16", "u8", "i8", "i16"}) {
    const DType type = dtype_from_ir_name(t);
    const std::string load = "load." + t, store = "store." + t, add = "add." + t;
    // The other operand is a row, a value of the outer loop, or uniform.
    const std::string two = "kernel @k(p0: " + t + " in, p1: " + t + " in, p2: " + t +
                            " out; n0, n1, s2;) {\n for i0 in n0 parallel {\n %5 = " + load +
                            " p1[i0]\n for i1 in n1 vector {\n %0 = " + load + " p0[i0 + i1*s2]\n %1 = " + load +
                            " p1[i0*n1 + i1]\n %2 = " + add + " %0, %1\n %3 = " + add + " %2, %5\n " + store +
                            " p2[i0*n1 + i1], %3\n } } }";
    check_sizes(two, t, [&](Case& c, int64_t rows, int64_t columns) {
      c.buffer(type, size_t(columns * (rows + 3) - 3))
          .buffer(type, size_t(rows * columns))
          .buffer(type, size_t(rows * columns));
      c.ints = {rows, columns, rows + 3};
    });
    // A loop between, and two columns.
    const std::string between =
        "kernel @k(p0: " + t + " in, p1: " + t + " in, p2: " + t +
        " out; n0, n1, n2, s3, s4;) {\n for i0 in n0 parallel {\n for i1 in n2 {\n for i2 in n1 "
        "vector {\n %0 = " +
        load + " p0[i0 + i1*n0 + i2*s3]\n %1 = " + load + " p1[i0 + i2*n0]\n %2 = " + add + " %0, %1\n " + store +
        " p2[i0*s4 + i1*n1 + i2], %2\n } } } }";
    check_sizes(between, t, [&](Case& c, int64_t rows, int64_t columns) {
      c.buffer(type, size_t(3 * rows * columns))
          .buffer(type, size_t(rows * columns))
          .buffer(type, size_t(3 * rows * columns));
      c.ints = {rows, columns, 3, 3 * rows, 3 * columns};
    });
  }
}

TEST_CASE("columns beside wide lanes and gathers", "[codegen]") {
  const std::string text =
      "kernel @k(p0: f32 in, p1: i64 in, p2: f64 out; n0, n1;) {\n for i0 in n0 parallel {\n for i1 in n1 vector {\n"
      " %0 = load.f32 p0[i0 + i1*n0]\n %1 = load.i64 p1[i0 + i1*n0]\n %2 = cast.f64 %0\n %3 = cast.f64 %1\n"
      " %4 = add.f64 %2, %3\n store.f64 p2[i0*n1 + i1], %4\n } } }";
  check_sizes(text, "mixed", [&](Case& c, int64_t rows, int64_t columns) {
    const size_t n = size_t(rows * columns);
    c.buffer(DType::kFloat32, n).buffer(DType::kInt64, n).buffer(DType::kFloat64, n);
    c.ints = {rows, columns};
  });
  const std::string gather =
      "kernel @k(p0: f32 in, p1: i64 in, p2: f32 in, p3: f32 out; n0, n1;) {\n for i0 in n0 parallel {\n"
      " for i1 in n1 vector {\n %0 = load.f32 p0[i0 + i1*n0]\n %6 = load.i64 p1[i1]\n %7 = const.i64 5\n %1 = rem.i64 "
      "%6, %7\n %2 = load.f32 p2[%1]\n"
      " %3 = mul.f32 %0, %2\n store.f32 p3[i0*n1 + i1], %3\n } } }";
  check_sizes(gather, "gather", [&](Case& c, int64_t rows, int64_t columns) {
    const size_t n = size_t(rows * columns);
    c.buffer(DType::kFloat32, n).buffer(DType::kInt64, size_t(columns)).buffer(DType::kFloat32, 5);
    c.buffer(DType::kFloat32, n);
    c.ints = {rows, columns};
  });
}

}  // namespace lutra
