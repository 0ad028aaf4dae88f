// Reductions, nested loops, column reductions, gathers, scatters, checks: exact interpreter against native code.
#include "tests/codegen/support.h"

namespace lutra {
namespace {

const char* const kReductions[] = {"sum", "prod", "max", "min", "argmax", "argmin", "any", "all"};

bool takes(const std::string& op, const std::string& t) { return (op == "any" || op == "all") == (t == "b8"); }
std::string result_of(const std::string& op, const std::string& t) { return op.rfind("arg", 0) == 0 ? "i64" : t; }

}  // namespace

TEST_CASE("rows: every reduction, type and number of lanes", "[codegen]") {
  for (const char* op : kReductions) {
    for (const std::string t : {"f32", "f64", "i64", "i32", "u8", "b8", "f16", "bf16", "i16", "i8"}) {
      if (!takes(op, t)) continue;
      const std::string r = result_of(op, t);
      for (int lanes : {1, 2, 4, 8, 16, 32, 64}) {
        const std::string how =
            lanes > 1 ? " lanes acc(%9: " + str(op, ".", t, " x", lanes) : str(" acc(%9: ", op, ".", t);
        Case c(str("kernel @k(p0: ", t, " in, p1: ", r,
                   " out; n0, n1, s2, s3;) {\n for i0 in n0 parallel {\n  for i1 in n1", how, ") {\n %0 = load.", t,
                   " p0[i0*s2 + i1*s3]\n accum.", t, " %9, %0\n }\n store.", r, " p1[i0], %9\n} }"));
        Case unit(str("kernel @k(p0: ", t, " in, p1: ", r,
                      " out; n0, n1, s2, s3;) {\n for i0 in n0 parallel {\n  for i1 in n1", how, ") {\n %0 = load.", t,
                      " p0[i0*s2 + i1]\n accum.", t, " %9, %0\n }\n store.", r, " p1[i0], %9\n} }"));
        for (int64_t n : {0, 1, 2, 7, 8, 9, 16, 31, 64, 70, 133, 200}) {
          for (double special : {0.0, 0.01, 0.5}) {
            for (int64_t stride : {1, 3, -2}) {
              Case& k = stride == 1 ? unit : c;
              k.buffers.clear();
              const int64_t span = std::abs(stride) * n;
              k.buffer(dtype_from_ir_name(t), size_t(3 * span)).buffer(dtype_from_ir_name(r), 3);
              if (stride < 0) continue;
              k.ints = {3, n, span, stride};
              k.end = 3;
              k.fill_all(uint64_t(n * 7 + lanes), special);
              check_exact(k);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("lanes go on over outer serial loops, and several accumulators share a loop", "[codegen]") {
  Case c(
      "kernel @k(p0: f32 in, p1: f32 out, p2: i64 out; n0, n1, n2, s3, s4;) { for i0 in n0 parallel {\n"
      " for i1 in n1 acc(%5: sum.f32 x32, %6: max.f32 x32, %7: argmin.f32 x32) {\n"
      "  for i2 in n2 lanes {\n"
      "   %0 = load.f32 p0[i0*s3 + i1*s4 + i2]\n   accum.f32 %5, %0\n   accum.f32 %6, %0\n   accum.f32 %7, %0\n  }\n "
      "}\n"
      " store.f32 p1[i0*2], %5\n store.f32 p1[1 + i0*2], %6\n store.i64 p2[i0], %7\n} }");
  for (int64_t rows : {0, 1, 3}) {
    for (int64_t n : {1, 8, 31, 32, 33, 100}) {
      for (double special : {0.0, 0.02}) {
        c.buffers.clear();
        c.buffer(DType::kFloat32, size_t(2 * rows * n)).buffer(DType::kFloat32, 4).buffer(DType::kInt64, 2);
        c.ints = {2, rows, n, rows * n, n};
        c.end = 2;
        c.fill_all(uint64_t(n), special);
        check_exact(c);
      }
    }
  }
}

TEST_CASE("columns: accumulators within a vector loop", "[codegen]") {
  for (const char* op : kReductions) {
    for (const std::string t : {"f32", "f64", "i64", "i32", "u8", "b8", "f16", "bf16", "i16", "i8"}) {
      if (!takes(op, t)) continue;
      const std::string r = result_of(op, t);
      Case c(str("kernel @k(p0: ", t, " in, p1: ", r,
                 " out; n0, n1, s2;) {\n for i0 in n0 parallel vector {\n  for i1 in n1 acc(%9: ", op, ".", t,
                 ") {\n %0 = load.", t, " p0[i0 + i1*s2]\n accum.", t, " %9, %0\n }\n store.", r, " p1[i0], %9\n} }"));
      for (int64_t columns : {1, 5, 8, 16, 31, 64, 67, 130}) {
        for (int64_t rows : {0, 1, 5}) {
          c.buffers.clear();
          c.buffer(dtype_from_ir_name(t), size_t(rows * columns)).buffer(dtype_from_ir_name(r), size_t(columns));
          c.ints = {columns, rows, columns};
          c.begin = columns > 8 ? 3 : 0, c.end = columns;
          c.fill_all(uint64_t(columns + rows), 0.1);
          check_exact(c);
        }
      }
    }
  }
}

TEST_CASE("softmax, layer norm and cross entropy as one kernel each", "[codegen]") {
  const char* const kernels[] = {
      "kernel @softmax(p0: f32 in, p1: f32 out, p2: i64 in, p3: f32 out; n0, n1, s2; x0) { for i0 in n0 parallel {\n"
      " for i1 in n1 lanes acc(%10: max.f32 x64) {\n %0 = load.f32 p0[i0*s2 + i1]\n accum.f32 %10, %0\n }\n"
      " for i2 in n1 lanes acc(%11: sum.f32 x64) {\n %1 = load.f32 p0[i0*s2 + i2]\n %2 = sub.f32 %1, %10\n %3 = "
      "exp.f32 %2\n"
      "  accum.f32 %11, %3\n }\n"
      " for i3 in n1 vector {\n %4 = load.f32 p0[i0*s2 + i3]\n %5 = sub.f32 %4, %10\n %6 = exp.f32 %5\n %7 = div.f32 "
      "%6, %11\n"
      "  store.f32 p1[i0*n1 + i3], %7\n }\n"
      " %20 = load.i64 p2[i0]\n check.i64 %20, n1\n %21 = load.f32 p0[i0*s2 + %20]\n %22 = sub.f32 %21, %10\n"
      " %23 = log.f32 %11\n %24 = sub.f32 %22, %23\n %25 = neg.f32 %24\n store.f32 p3[i0], %25\n} }",
      "kernel @layer_norm(p0: f32 in, p1: f32 out, p2: i64 in, p3: f32 in; n0, n1, s2; x0) { for i0 in n0 parallel {\n"
      " %30 = intarg.i64 n1\n %31 = cast.f32 %30\n"
      " for i1 in n1 lanes acc(%10: sum.f32 x16) {\n %0 = load.f32 p0[i0*s2 + i1]\n accum.f32 %10, %0\n }\n"
      " %11 = div.f32 %10, %31\n"
      " for i2 in n1 lanes acc(%12: sum.f32 x16) {\n %1 = load.f32 p0[i0*s2 + i2]\n %2 = sub.f32 %1, %11\n %3 = "
      "mul.f32 %2, %2\n"
      "  accum.f32 %12, %3\n }\n"
      " %13 = div.f32 %12, %31\n %14 = scalar.f32 x0\n %15 = add.f32 %13, %14\n %16 = sqrt.f32 %15\n"
      " for i3 in n1 vector {\n %4 = load.f32 p0[i0*s2 + i3]\n %5 = sub.f32 %4, %11\n %6 = div.f32 %5, %16\n"
      "  %7 = load.f32 p3[i0]\n %8 = mul.f32 %6, %7\n store.f32 p1[i0*n1 + i3], %8\n }\n} }"};
  for (const char* text : kernels) {
    Case c{std::string(text)};
    for (int64_t n : {1, 10, 16, 64, 65, 100, 257}) {
      c.buffers.clear();
      c.buffer(DType::kFloat32, size_t(4 * n)).buffer(DType::kFloat32, size_t(4 * n));
      c.buffer(DType::kInt64, 4).buffer(DType::kFloat32, 4);
      c.ints = {4, n, n};
      c.scalars = {1e-5};
      c.end = 4;
      c.fill_all(uint64_t(n), 0);
      for (int i = 0; i < 4; i++) c.buffers[2]->as<int64_t>()[i] = (i * 7) % n;
      check_exact(c);
    }
  }
}

TEST_CASE("rows gathered by index, and elements gathered within a vector", "[codegen]") {
  for (const std::string t : {"f32", "f64", "i64", "u8", "b8", "i16", "f16", "bf16"}) {
    Case rows(str("kernel @k(p0: ", t, " in, p1: i64 in, p2: ", t, " out; n0, n1, s2, n3;) { for i0 in n0 parallel {\n",
                  " %0 = load.i64 p1[i0]\n check.i64 %0, n3\n for i1 in n1 vector {\n %1 = load.", t,
                  " p0[%0*s2 + i1]\n store.", t, " p2[i0*n1 + i1], %1\n } } }"));
    Case elements(str("kernel @k(p0: ", t, " in, p1: i64 in, p2: ", t,
                      " out; n0, n1, s2, n3;) { for i0 in n0 parallel {\n",
                      " for i1 in n1 vector {\n %0 = load.i64 p1[i0]\n %2 = index.i64 i1\n %3 = add.i64 %0, %2\n",
                      " %4 = intarg.i64 n3\n %5 = rem.i64 %3, %4\n check.i64 %5, n3\n %1 = load.", t,
                      " p0[%5*s2 + i1]\n store.", t, " p2[i0*n1 + %2], %1\n } } }"));
    for (Case* c : {&rows, &elements}) {
      for (int64_t n : {1, 7, 8, 16, 45}) {
        c->buffers.clear();
        c->buffer(dtype_from_ir_name(t), size_t(6 * n))
            .buffer(DType::kInt64, 5)
            .buffer(dtype_from_ir_name(t), size_t(5 * n));
        c->ints = {5, n, n, 6};
        c->end = 5;
        c->fill_all(uint64_t(n));
        for (int i = 0; i < 5; i++) c->buffers[1]->as<int64_t>()[i] = (i * 4) % 6;
        LaunchFault fault;
        check_exact(*c);
        for (const char* isa : native_isas()) c->run(isa, &fault);
        CHECK(fault.set == 0);
      }
    }
  }
}

TEST_CASE("a failing check reports its index and argument", "[codegen]") {
  const char* const kernels[] = {
      "kernel @k(p0: f32 in, p1: i64 in, p2: f32 out; n0, n1;) { for i0 in n0 parallel vector {\n %0 = load.i64 "
      "p1[i0]\n"
      " check.i64 %0, n1\n %1 = load.f32 p0[%0]\n store.f32 p2[i0], %1\n } }",
      "kernel @k(p0: f32 in, p1: i64 in, p2: f32 out; n0, n1;) { for i0 in n0 parallel {\n %0 = load.i64 p1[i0]\n"
      " check.i64 %0, n1\n %1 = load.f32 p0[%0]\n store.f32 p2[i0], %1\n } }"};
  for (const char* text : kernels) {
    Case c{std::string(text)};
    for (int64_t bad : {int64_t(-1), int64_t(4), INT64_MIN, INT64_MAX}) {
      for (size_t at : {size_t(0), size_t(9), size_t(12)}) {
        c.buffers.clear();
        c.buffer(DType::kFloat32, 4).buffer(DType::kInt64, 13).buffer(DType::kFloat32, 13);
        c.ints = {13, 4};
        c.end = 13;
        for (int i = 0; i < 13; i++) c.buffers[1]->as<int64_t>()[i] = i % 4;
        c.buffers[1]->as<int64_t>()[at] = bad;
        std::vector<const char*> isas = native_isas();
        isas.push_back("interp");
        for (const char* isa : isas) {
          LaunchFault fault;
          c.run(isa, &fault);
          CHECK(fault.set == 1);
          CHECK(fault.index == bad);
          CHECK(fault.arg == 1);
          c.run(isa);  // nowhere to report
        }
      }
    }
  }
}

TEST_CASE("store_add adds in loop order", "[codegen]") {
  for (const std::string t : {"f32", "f64", "i64", "i32", "u8", "f16", "bf16", "i8"}) {
    Case c(str("kernel @k(p0: ", t, " in, p1: i64 in, p2: ", t,
               " out; n0, n1, n2;) { for i0 in n0 {\n for i1 in n1 {\n",
               " %0 = load.i64 p1[i0*n1 + i1]\n check.i64 %0, n2\n %1 = load.", t, " p0[i0*n1 + i1]\n store_add.", t,
               " p2[%0], %1\n } } }"));
    c.buffer(dtype_from_ir_name(t), 60).buffer(DType::kInt64, 60).buffer(dtype_from_ir_name(t), 5);
    c.ints = {6, 10, 5};
    c.fill_all(3, 0.02);
    for (int i = 0; i < 60; i++) c.buffers[1]->as<int64_t>()[i] = (i * i) % 5;
    check_exact(c);
  }
}

TEST_CASE("two threads' ranges together are the whole", "[codegen]") {
  if (!native()) return;
  Case c(
      "kernel @k(p0: f32 in, p1: f32 out; n0;) { for i0 in n0 parallel vector {\n %0 = load.f32 p0[i0]\n %1 = tanh.f32 "
      "%0\n"
      " store.f32 p1[i0], %1\n } }");
  c.buffer(DType::kFloat32, 1000).buffer(DType::kFloat32, 1000);
  c.ints = {1000};
  c.fill_all(1);
  c.end = 1000;
  const auto whole = c.run(best_isa());
  c.end = 333;
  const auto first = c.run(best_isa());
  c.begin = 333, c.end = 1000;
  const auto second = c.run(best_isa());
  for (size_t i = 0; i < 1000; i++) CHECK(same_element(*whole[1], *(i < 333 ? first : second)[1], i));
}

TEST_CASE("an unknown instruction set and a wrong kernel are errors", "[codegen]") {
  const loop::Kernel k = loop::parse_kernel("kernel @k(; ;) { }");
  CHECK_THROWS_AS(compile_kernel(k, {{}, "avx1024", {}}), Error);
  CHECK_THROWS_AS(
      compile_kernel(loop::parse_kernel("kernel @k(p0: f32 out; ;) { store.f32 p0[0], %0 }"), {{}, "interp", {}}),
      Error);
}

TEST_CASE("a listing is given when asked for", "[codegen]") {
  const loop::Kernel k = loop::parse_kernel("kernel @k(p0: f32 out; ;) { %0 = const.f32 1\n store.f32 p0[0], %0 }");
  const std::string isa = best_isa(), wanted = isa == "interp" ? "store" : isa == "arm64" ? "str" : "vmovss";
  CHECK(compile_kernel(k, {{}, isa, {}}, true)->listing.find(wanted) != std::string::npos);
  CHECK(compile_kernel(k, {{}, best_isa(), {}})->listing.empty());
}

}  // namespace lutra
