// Every scalar instruction on every type: exact interpreter against native code, at all lengths around vector tails and
// with operands that are tensors, broadcast or constant.
#include "tests/codegen/support.h"

namespace lutra {
namespace {

const DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kInt32,   DType::kInt16,
                        DType::kInt8,    DType::kUInt8,   DType::kBool,  DType::kFloat16, DType::kBFloat16};

// p[out] = op of the operands, elementwise. strides: text of each operand's index ("i0", "i0*s1", "").
std::string elementwise(loop::Op op, DType operand, DType result, const std::vector<std::string>& index,
                        const std::string& out) {
  const int n = loop::info(op).operands;
  std::string head = "kernel @k(", body, args;
  for (int i = 0; i < n; i++) {
    const DType t = op == loop::Op::kSelect && i == 0 ? DType::kBool : operand;
    head += "p" + std::to_string(i) + ": " + ir(t) + " in, ";
    body +=
        "    %" + std::to_string(i) + " = load." + ir(t) + " p" + std::to_string(i) + "[" + index[size_t(i)] + "]\n";
    args += (i ? ", %" : "%") + std::to_string(i);
  }
  head += "p" + std::to_string(n) + ": " + ir(result) + " out; n0, s1, s2, s3, s4;) {\n  for i0 in n0 vector {\n";
  return head + body + "    %9 = " + name(op) + "." + ir(result) + " " + args + "\n    store." + ir(result) + " p" +
         std::to_string(n) + "[" + out + "], %9\n  }\n}\n";
}

template <class F>
void for_each_op(const F& f) {
  using loop::Op;
  for (int i = 0; i < int(Op::kCount); i++) {
    const Op op = Op(i);
    const loop::TypeRule rule = loop::info(op).rule;
    if (rule != loop::TypeRule::kSame && rule != loop::TypeRule::kCompare && rule != loop::TypeRule::kSelect &&
        rule != loop::TypeRule::kCast) {
      continue;
    }
    for (DType t : kTypes) {
      if (rule == loop::TypeRule::kCast) {
        for (DType to : kTypes) f(op, t, to);
      } else if (accepts(loop::info(op).types, t)) {
        f(op, t, rule == loop::TypeRule::kCompare ? DType::kBool : t);
      }
    }
  }
}

}  // namespace

TEST_CASE("every op and type agrees with the interpreter, unit strides", "[codegen]") {
  for_each_op([](loop::Op op, DType t, DType result) {
    const int n = loop::info(op).operands;
    Case c(elementwise(op, t, result, {"i0", "i0", "i0"}, "i0"));
    for (int64_t length : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 70, 300}) {
      c.buffers.clear();
      for (int i = 0; i < n; i++) c.buffer(op == loop::Op::kSelect && i == 0 ? DType::kBool : t, size_t(length));
      c.buffer(result, size_t(length));
      c.ints = {length, 0, 0, 0, 0};
      c.fill_all(uint64_t(length) * 31 + uint64_t(op), length == 300 ? 0.9 : 0.4);
      check_exact(c);
    }
  });
}

// An index beside numbers of the whole range, which are uniform where the index is that of the vector loop; and such an
// index that something else takes, too.
TEST_CASE("an index is compared with what is uniform as the interpreter does", "[codegen]") {
  const std::vector<int64_t> others = {INT64_MIN, -70, -1, 0,  1,   7,   8,   15,        16,        17,       31,
                                       32,        63,  64, 70, 128, 299, 300, INT32_MAX, 1ll << 32, INT64_MAX};
  const auto rows = int64_t(others.size());
  for (const bool alone : {true, false}) {
    for (const std::string op : {"eq", "ne", "lt", "le", "gt", "ge"}) {
      Case c("kernel @k(p0: i64 in, p1: f32 out, p2: b8 out, p3: i64 out; n0, n1;) {\n  for i0 in n1 {\n" +
             std::string("    %0 = load.i64 p0[i0]\n    store.i64 p3[i0*n0], %0\n    for i1 in n0 vector {\n") +
             "      %2 = index.i64 i1\n      %3 = " + op + ".b8 %2, %0\n      %4 = " + op + ".b8 %0, %2\n" +
             "      %5 = cast.f32 %3\n      store.f32 p1[i0*n0 + i1], %5\n      store.b8 p2[i0*n0 + i1], %4\n" +
             (alone ? "" : "      store.i64 p3[i0*n0 + i1], %2\n") + "    }\n  }\n}\n");
      for (int64_t length : {1, 5, 8, 16, 21, 64, 70, 130, 300}) {
        c.buffers.clear();
        c.buffer(DType::kInt64, size_t(rows));
        for (DType t : {DType::kFloat32, DType::kBool, DType::kInt64}) c.buffer(t, size_t(rows * length));
        c.ints = {length, rows};
        c.fill_all(uint64_t(length), 0.4);
        std::copy(others.begin(), others.end(), c.buffers[0]->as<int64_t>());
        check_exact(c);
      }
    }
  }
}

TEST_CASE("every op and type agrees with the interpreter, any stride", "[codegen]") {
  for_each_op([](loop::Op op, DType t, DType result) {
    const int n = loop::info(op).operands;
    // A gather, a row and a broadcast; all stored with a stride.
    Case c(elementwise(op, t, result, {"s4 + i0*s1", "i0", "0"}, "s2 + i0*s3"));
    for (int64_t length : {1, 5, 8, 21}) {
      for (int64_t stride : {0, 2, -1, -3}) {
        c.buffers.clear();
        const int64_t span = (length - 1) * std::abs(stride) + 1;
        for (int i = 0; i < n; i++) {
          c.buffer(op == loop::Op::kSelect && i == 0 ? DType::kBool : t, size_t(i == 0 ? span : length));
        }
        c.buffer(result, size_t(3 * length));
        c.ints = {length, stride, length % 2 ? 3 * length - 1 : 0, length % 2 ? -3 : 2, stride < 0 ? span - 1 : 0};
        c.fill_all(uint64_t(length) * 7 + uint64_t(op));
        check_exact(c);
      }
    }
  });
}

TEST_CASE("constants, scalars and indices as operands", "[codegen]") {
  for (const char* t : {"f32", "f64", "i64", "i32", "i16", "i8", "u8", "f16", "bf16"}) {
    const DType type = dtype_from_ir_name(t);
    for (const char* op : {"add", "sub", "mul", "div", "min", "max", "rem", "floordiv", "pow", "lt", "ne"}) {
      for (bool left : {false, true}) {
        for (const char* constant : {"2", "0", "-1"}) {
          const bool compare = std::string(op) == "lt" || std::string(op) == "ne";
          const std::string r = compare ? "b8" : t;
          Case c(str("kernel @k(p0: ", t, " in, p1: ", r, " out, p2: ", t,
                     " out; n0, n1; x0) {\n  for i0 in n0 vector {\n", "%0 = load.", t, " p0[i0]\n %1 = const.", t, " ",
                     constant, "\n %2 = ", op, ".", r, left ? " %1, %0" : " %0, %1", "\n store.", r,
                     " p1[i0], %2\n %3 = scalar.", t,
                     " x0\n %4 = intarg.i64 n1\n %5 = index.i64 i0\n %6 = mul.i64 %4, %5\n %7 = cast.", t,
                     " %6\n %8 = add.", t, " %3, %7\n store.", t, " p2[i0], %8\n} }"));
          for (int64_t n : {3, 8, 37, 700}) {
            c.buffers.clear();
            c.buffer(type, size_t(n)).buffer(dtype_from_ir_name(r), size_t(n)).buffer(type, size_t(n));
            c.ints = {n, 5};
            c.scalars = {-2.7};
            c.fill_all(uint64_t(n));
            check_exact(c);
          }
        }
      }
    }
  }
}

// Numbers around multiples of the divisor, where a quotient's rounding in floats could reach the next integer, and
// around the widths at which the way of dividing changes.
TEST_CASE("integers are divided exactly", "[codegen]") {
  std::mt19937_64 rng(5);
  const auto of_bits = [&](int most) { return int64_t(rng() >> (63 - rng() % uint64_t(most))); };
  for (const DType t : {DType::kInt64, DType::kInt32, DType::kInt16, DType::kInt8, DType::kUInt8}) {
    const int most = int(8 * size_of(t)) - 1;
    for (const loop::Op op : {loop::Op::kDiv, loop::Op::kRem, loop::Op::kFloorDiv}) {
      Case c(elementwise(op, t, t, {"i0", "i0"}, "i0"));
      constexpr size_t kRows = 200, kLanes = 8;  // a row: one width for a whole vector, so that each way is gone
      c.buffer(t, kRows * kLanes).buffer(t, kRows * kLanes).buffer(t, kRows * kLanes);
      c.ints = {kRows * kLanes, 0, 0, 0, 0};
      for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < kRows * kLanes; i += kLanes) {
          const int width = i % 3 ? most : 1 + int(rng() % uint64_t(most));
          for (size_t lane = i; lane < i + kLanes; lane++) {
            uint64_t b = uint64_t(of_bits(width)), a = b * uint64_t(of_bits(width)) + rng() % 3 - 1;
            if (rng() % 8 == 0) a = uint64_t(of_bits(width)), b = a + rng() % 3 - 1;
            if (rng() % 16 == 0) a = uint64_t(1) << (most - int(rng() % uint64_t(std::min(most, 12)))), b = rng() % 4;
            if (rng() % 2) a = 0 - a;
            if (rng() % 2) b = 0 - b;
            memcpy(c.buffers[0]->data + lane * size_of(t), &a, size_of(t));
            memcpy(c.buffers[1]->data + lane * size_of(t), &b, size_of(t));
          }
        }
        check_exact(c);
      }
    }
  }
}

TEST_CASE("any byte but 0 is true", "[codegen]") {
  Case c(
      "kernel @k(p0: b8 in, p1: b8 in, p2: b8 out, p3: b8 out; n0;) { for i0 in n0 vector {\n"
      "%0 = load.b8 p0[i0]\n %1 = load.b8 p1[i0]\n %2 = not.b8 %1\n %3 = and.b8 %0, %2\n store.b8 p2[i0], %3\n"
      "store.b8 p3[i0], %0\n} }");
  for (size_t n : {5, 64, 300}) {
    c.buffers.clear();
    for (int i = 0; i < 4; i++) c.buffer(DType::kBool, n);
    for (size_t i = 0; i < n; i++) c.buffers[0]->data[i] = char(i % 4), c.buffers[1]->data[i] = char(i % 5 * 64);
    c.ints = {int64_t(n)};
    check_exact(c);
    const auto r = c.run(best_isa());
    for (size_t i = 0; i < n; i++) CHECK(r[2]->data[i] == (i % 4 && !(char(i % 5 * 64))));
  }
}

TEST_CASE("random numbers: Philox, uniform, normal and bits", "[codegen]") {
  for (const char* t : {"f32", "f64"}) {
    const DType type = dtype_from_ir_name(t);
    Case c(str("kernel @k(p0: ", t, " out, p1: ", t, " out, p2: i64 out; n0;) { for i0 in n0 vector {\n",
               "%0 = index.i64 i0\n %1 = uniform.", t, " %0, 3\n store.", t, " p0[i0], %1\n %2 = normal.", t,
               " %0, 4\n store.", t, " p1[i0], %2\n %3 = randbits.i64 %0, 0\n store.i64 p2[i0], %3\n} }"));
    c.buffer(type, 1003).buffer(type, 1003).buffer(DType::kInt64, 1003);
    c.ints = {1003};
    check_exact(c);
    const auto r = c.run("interp");
    double sum = 0, squares = 0;
    for (size_t i = 0; i < 1003; i++) {
      CHECK((r[0]->real(i) >= 0 && r[0]->real(i) < 1));
      sum += r[1]->real(i), squares += r[1]->real(i) * r[1]->real(i);
    }
    CHECK(std::fabs(sum / 1003) < 0.15);
    CHECK(std::fabs(squares / 1003 - 1) < 0.2);
  }
  // The first words of Philox4x32-10 with zero key and counter are known: 6627e8d5 e169c58d.
  Case c("kernel @k(p0: i64 out; ;) { %0 = const.i64 0\n %1 = randbits.i64 %0, 0\n store.i64 p0[0], %1\n }");
  c.buffer(DType::kInt64, 1);
  c.seed = c.call = 0;
  check_exact(c);
  CHECK(c.run("interp")[0]->as<int64_t>()[0] == int64_t(0x6627e8d5e169c58dull >> 1));
}

}  // namespace lutra
