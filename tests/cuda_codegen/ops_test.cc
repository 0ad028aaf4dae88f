// Tests CUDA source against the interpreter, bit for bit: every scalar instruction on every type, reductions of every
// type and number of lanes, and kernels of the kinds that have a mapping of their own, at sizes around their limits.
#include "tests/cuda_codegen/shim_library.h"

namespace lutra {
namespace {

const DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kInt32,   DType::kInt16,
                        DType::kInt8,    DType::kUInt8,   DType::kBool,  DType::kFloat16, DType::kBFloat16};

// One instruction after the other, each with operands and a result of its own.
struct AllOps {
  std::string params, body;
  std::vector<DType> types;
  int values = 0;

  int load(DType t) {
    params += str(types.empty() ? "" : ", ", "p", types.size(), ": ", ir(t), " in");
    body += str("    %", values, " = load.", ir(t), " p", types.size(), "[i0]\n");
    types.push_back(t);
    return values++;
  }
  void store(DType t, int v) {
    params += str(", p", types.size(), ": ", ir(t), " out");
    body += str("    store.", ir(t), " p", types.size(), "[i0], %", v, "\n");
    types.push_back(t);
  }
  void op(loop::Op op, DType of, DType result) {
    std::vector<int> in;
    for (int i = 0; i < loop::info(op).operands; i++) {
      in.push_back(load(op == loop::Op::kSelect && i == 0 ? DType::kBool : of));
    }
    body += str("    %", values, " = ", loop::name(op), ".", ir(result));
    for (size_t i = 0; i < in.size(); i++) body += str(i ? ", %" : " %", in[i]);
    body += "\n";
    store(result, values++);
  }
  std::string text() const {
    return "kernel @ops(" + params + "; n0;) {\n  for i0 in n0 parallel vector {\n" + body + "  }\n}\n";
  }
};

void check_all(ShimLibrary& library, std::vector<Run>& runs) {
  library.build();
  for (Run& r : runs) library.check(r.kernel, r.c);
}

Case elements_of(const AllOps& ops, int64_t n, uint64_t seed) {
  Case c(ops.text());
  for (DType t : ops.types) c.buffer(t, size_t(n));
  c.ints = {n};
  c.end = n;
  c.fill_all(seed, 0.5);
  return c;
}

}  // namespace

TEST_CASE("every op and type as CUDA source", "[cuda]") {
  ShimLibrary library;
  std::vector<Run> runs;
  for (DType t : kTypes) {
    AllOps all;
    for (int i = 0; i < int(loop::Op::kCount); i++) {
      const loop::Op op = loop::Op(i);
      const loop::TypeRule rule = loop::info(op).rule;
      if (rule == loop::TypeRule::kCast) {
        for (DType to : kTypes) all.op(op, t, to);
      } else if (rule == loop::TypeRule::kSame || rule == loop::TypeRule::kSelect) {
        if (loop::accepts(loop::info(op).types, t)) all.op(op, t, t);
      } else if (rule == loop::TypeRule::kCompare && loop::accepts(loop::info(op).types, t)) {
        all.op(op, t, DType::kBool);
      }
    }
    // Packs of several elements, and one by one.
    const size_t packed = library.add(elements_of(all, 1, 0).kernel, {1 << 24});
    const size_t single = library.add(elements_of(all, 1, 0).kernel, {100});
    for (int64_t n : {0, 1, 7, 400}) {
      runs.push_back({packed, elements_of(all, n, uint64_t(n) + 3)});
      runs.push_back({single, elements_of(all, n, uint64_t(n) + 5)});
    }
  }
  check_all(library, runs);
}

TEST_CASE("constants, scalars, indices and random numbers as CUDA source", "[cuda]") {
  ShimLibrary library;
  std::vector<Run> runs;
  for (const char* t : {"f32", "f64", "i64", "i32", "u8", "f16", "bf16"}) {
    const std::string random = t[0] == 'f' && t[1] != '1' ? str("%9 = uniform.", t, " %5, 3\n store.", t,
                                                                " p1[i0], %9\n %10 = normal.", t, " %5, 4\n store.", t,
                                                                " p2[i0], %10\n %11 = randbits.i64 %5, 0\n store.i64 "
                                                                "p3[i0], %11\n")
                                                          : "";
    Case c(str("kernel @k(p0: ", t, " out, p1: ", t, " out, p2: ", t, " out, p3: i64 out; n0, n1; x0) { %1 = const.", t,
               " -3\n %2 = scalar.", t,
               " x0\n for i0 in n0 parallel vector {\n %4 = intarg.i64 n1\n %5 = index.i64 i0\n",
               " %6 = mul.i64 %4, %5\n %7 = cast.", t, " %6\n %8 = add.", t, " %2, %7\n %3 = mul.", t, " %8, %1\n",
               random, " store.", t, " p0[i0], %3\n} }"));
    const DType type = dtype_from_ir_name(t);
    c.buffer(type, 37).buffer(type, 37).buffer(type, 37).buffer(DType::kInt64, 37);
    c.ints = {37, 5};
    c.scalars = {-2.7};
    c.end = 37;
    c.fill_all(1);
    const size_t i = library.add(c.kernel, c.ints);
    runs.push_back({i, std::move(c)});
  }
  check_all(library, runs);
}

TEST_CASE("rows: every reduction and type as CUDA source", "[cuda]") {
  ShimLibrary library;
  std::vector<Run> runs;
  const char* const names[] = {"sum", "prod", "max", "min", "argmax", "argmin", "any", "all"};
  for (const std::string t : {"f32", "f64", "i64", "i32", "u8", "b8", "f16", "bf16", "i16", "i8"}) {
    for (int lanes : {2, 32, 1024}) {
      // All reductions of a type in one kernel.
      std::string params = "p0: " + t + " in", accs, feeds, stores;
      std::vector<DType> results;
      for (const std::string op : names) {
        if ((op == "any" || op == "all") != (t == "b8")) continue;
        const std::string r = op.rfind("arg", 0) == 0 ? "i64" : t;
        const size_t n = results.size();
        results.push_back(dtype_from_ir_name(r));
        params += str(", p", n + 1, ": ", r, " out");
        accs += str(n ? ", " : "", "%", n + 1, ": ", op, ".", t, " x", lanes);
        feeds += str(" accum.", t, " %", n + 1, ", %0\n");
        stores += str(" store.", r, " p", n + 1, "[i0], %", n + 1, "\n");
      }
      const Case proto(str("kernel @k(", params, "; n0, n1, s2;) {\n for i0 in n0 parallel {\n for i1 in n1 lanes acc(",
                           accs, ") {\n %0 = load.", t, " p0[i0*s2 + i1]\n", feeds, " }\n", stores, "} }"));
      for (int64_t likely : {4, 200, 4096}) {
        const size_t kernel = library.add(proto.kernel, {lanes == 32 ? 100000 : 64, likely, likely});
        for (int64_t n : {int64_t(0), int64_t(1), int64_t(70), likely}) {
          for (double special : {0.0, 0.3}) {
            Case c(clone(proto.kernel));
            c.buffer(dtype_from_ir_name(t), size_t(2 * n));
            for (DType r : results) c.buffer(r, 2);
            c.ints = {2, n, n};
            c.end = 2;
            c.fill_all(uint64_t(n + lanes), special);
            runs.push_back({kernel, std::move(c)});
          }
        }
      }
    }
  }
  check_all(library, runs);
}

TEST_CASE("zeros keep the signs that the order of a reduction gives them", "[cuda]") {
  ShimLibrary library;
  std::vector<Run> runs;
  for (int lanes : {4, 64, 1024}) {
    const Case proto(
        str("kernel @k(p0: f32 in, p1: f32 out, p2: f32 out, p3: f32 out; n0, n1;) {\n for i0 in n0 parallel "
            "{\n for i1 in n1 lanes acc(%1: sum.f32 x",
            lanes, ", %2: max.f32 x", lanes, ", %3: min.f32 x", lanes,
            ") {\n %0 = load.f32 p0[i0*n1 + i1]\n accum.f32 %1, %0\n accum.f32 %2, %0\n accum.f32 %3, "
            "%0\n }\n store.f32 p1[i0], %1\n store.f32 p2[i0], %2\n store.f32 p3[i0], %3\n} }"));
    for (int64_t n : {8, 63, 64, 65, 600, 2048}) {
      for (bool mixed : {false, true}) {
        Case c(clone(proto.kernel));
        c.buffer(DType::kFloat32, size_t(4 * n));
        for (int i = 0; i < 3; i++) c.buffer(DType::kFloat32, 4);
        for (int64_t i = 0; i < 4 * n; i++) c.buffers[0]->as<float>()[i] = mixed && (i * i) % 3 ? 0.0f : -0.0f;
        c.ints = {4, n};
        c.end = 4;
        runs.push_back({library.add(proto.kernel, {4, n}), std::move(c)});
      }
    }
  }
  check_all(library, runs);
}

namespace {
const char* const kSoftmax =
    "kernel @softmax(p0: f32 in, p1: f32 out, p2: i64 in, p3: f32 out; n0, n1, s2;) { %30 = const.f32 1\n for i0 in n0 "
    "parallel {\n for i1 in n1 lanes acc(%10: max.f32 x1024) {\n %0 = load.f32 p0[i0*s2 + i1]\n accum.f32 %10, %0\n }\n"
    " for i2 in n1 lanes acc(%11: sum.f32 x1024) {\n %1 = load.f32 p0[i0*s2 + i2]\n %2 = sub.f32 %1, %10\n %3 = "
    "exp.f32 "
    "%2\n accum.f32 %11, %3\n store.f32 p1[i0*n1 + i2], %3\n }\n %12 = div.f32 %30, %11\n for i3 in n1 vector {\n %4 = "
    "load.f32 p1[i0*n1 + i3]\n %5 = mul.f32 %4, %12\n store.f32 p1[i0*n1 + i3], %5\n }\n %20 = load.i64 p2[i0]\n "
    "check.i64 %20, n1\n %21 = load.f32 p1[i0*n1 + %20]\n store.f32 p3[i0], %21\n} }";
const char* const kLayerNorm =
    "kernel @layer_norm(p0: f16 in, p1: f16 out, p2: f32 in, p3: f32 out; n0, n1, s2;) { for i0 in n0 parallel {\n %30 "
    "= "
    "intarg.i64 n1\n %31 = cast.f32 %30\n for i1 in n1 lanes acc(%10: sum.f32 x1024, %40: argmax.f32 x1024) {\n %0 = "
    "load.f16 p0[i0*s2 + i1]\n %41 = cast.f32 %0\n accum.f32 %10, %41\n accum.f32 %40, %41\n }\n %11 = div.f32 %10, "
    "%31\n for i2 in n1 lanes acc(%12: sum.f32 x1024) {\n %1 = load.f16 p0[i0*s2 + i2]\n %42 = cast.f32 %1\n %2 = "
    "sub.f32 %42, %11\n %3 = mul.f32 %2, %2\n accum.f32 %12, %3\n }\n %13 = div.f32 %12, %31\n %16 = sqrt.f32 %13\n "
    "for "
    "i3 in n1 vector {\n %4 = load.f16 p0[i0*s2 + i3]\n %43 = cast.f32 %4\n %5 = sub.f32 %43, %11\n %6 = div.f32 %5, "
    "%16\n %7 = load.f32 p2[i3]\n %8 = mul.f32 %6, %7\n %44 = cast.f16 %8\n store.f16 p1[i0*n1 + i3], %44\n }\n %45 = "
    "cast.f32 %40\n store.f32 p3[i0], %45\n} }";
}  // namespace

TEST_CASE("softmax and layer norm in all their paths as CUDA source", "[cuda]") {
  ShimLibrary library;
  std::vector<Run> runs;
  for (const char* text : {kSoftmax, kLayerNorm}) {
    const bool half = text == kLayerNorm;
    // Likely rows that stay in registers, whole and not, in a part of a warp or in a block, and longer ones.
    for (int64_t likely : {10, 64, 96, 1024, 1000, 4096, 20000}) {
      for (int64_t rows : {3, 100000}) {
        const size_t kernel = library.add(Case(std::string(text)).kernel, {rows, likely, likely});
        for (int64_t n : {int64_t(1), int64_t(64), int64_t(65), std::min<int64_t>(likely, 5000)}) {
          Case c{std::string(text)};
          const DType type = half ? DType::kFloat16 : DType::kFloat32;
          c.buffer(type, size_t(3 * n)).buffer(type, size_t(3 * n));
          if (half)
            c.buffer(DType::kFloat32, size_t(n));
          else
            c.buffer(DType::kInt64, 3);
          c.buffer(DType::kFloat32, 3);
          c.ints = {3, n, n};
          c.end = 3;
          c.fill_all(uint64_t(n), 0);
          for (int i = 0; i < 3 && !half; i++) c.buffers[2]->as<int64_t>()[i] = (i * 7) % n;
          runs.push_back({kernel, std::move(c)});
        }
      }
    }
  }
  check_all(library, runs);
}

TEST_CASE("columns as CUDA source: every type, lanes and not", "[cuda]") {
  ShimLibrary library;
  std::vector<Run> runs;
  for (const std::string t : {"f32", "f64", "f16", "i64", "u8"}) {
    for (const std::string how : {"lanes acc(%9: max.", "acc(%9: sum."}) {
      const bool lanes = how[0] == 'l';
      const Case proto(
          str("kernel @k(p0: ", t, " in, p1: ", t,
              " out; n0, n1, n2, s3, s4;) {\n for i0 in n0 parallel {\n for i1 in n1 parallel vector {\n for "
              "i2 in n2 ",
              how, t, lanes ? " x32" : "", ") {\n %0 = load.", t, " p0[i0*s3 + i1 + i2*s4]\n %1 = abs.", t,
              " %0\n accum.", t, " %9, %1\n }\n %2 = neg.", t, " %9\n store.", t, " p1[i0*n1 + i1], %2\n } } }"));
      for (int64_t likely : {3, 8192}) {
        const size_t kernel = library.add(proto.kernel, {2, likely, likely, likely * likely, likely});
        for (int64_t columns : {1, 31, 64, 130}) {
          for (int64_t rows : {0, 1, 5, 70}) {
            Case c(clone(proto.kernel));
            c.buffer(dtype_from_ir_name(t), size_t(2 * rows * columns))
                .buffer(dtype_from_ir_name(t), size_t(2 * columns));
            c.ints = {2, columns, rows, rows * columns, columns};
            c.end = 2;
            c.fill_all(uint64_t(columns + rows), 0.1);
            runs.push_back({kernel, std::move(c)});
          }
        }
      }
    }
  }
  check_all(library, runs);
}

TEST_CASE("single elements that threads take several of", "[cuda]") {
  ShimLibrary library;
  std::vector<Run> runs;
  for (const char* head : {"for i0 in n0 parallel {\n for i1 in n1 parallel vector {\n",
                           "for i0 in n0 parallel {\n for i1 in n1 vector {\n"}) {
    const Case proto(
        str("kernel @k(p0: f32 in, p1: f32 out, p2: i64 in; n0, n1, s2, n3;) { %9 = const.f32 3\n ", head,
            " %0 = load.i64 p2[i1]\n check.i64 %0, n3\n %1 = load.f32 p0[i0*s2 + %0]\n %2 = mul.f32 %1, %9\n "
            "store.f32 p1[i0*n1 + i1], %2\n } } }"));
    for (int64_t likely : {31, 12001}) {
      const size_t kernel = library.add(proto.kernel, {likely == 31 ? 1000001 : 1000, likely, 12001, 5});
      for (int64_t rows : {1, 3, 300}) {
        for (int64_t columns : {1, 7, 1024, 1100}) {
          Case c(clone(proto.kernel));
          c.buffer(DType::kFloat32, size_t(5 * rows)).buffer(DType::kFloat32, size_t(rows * columns));
          c.buffer(DType::kInt64, size_t(columns));
          c.ints = {rows, columns, 5, 5};
          c.end = rows;
          c.fill_all(uint64_t(rows + columns), 0.1);
          for (int64_t i = 0; i < columns; i++) c.buffers[2]->as<int64_t>()[i] = (i * i) % 5;
          runs.push_back({kernel, std::move(c)});
        }
      }
    }
  }
  check_all(library, runs);
}

TEST_CASE("transposes as CUDA source", "[cuda]") {
  ShimLibrary library;
  std::vector<Run> runs;
  for (const std::string t : {"f32", "f64", "i64", "f16", "u8"}) {
    const Case proto(
        str("kernel @k(p0: ", t, " in, p1: ", t, " in, p2: ", t,
            " out; n0, n1, n2, s3, s4, s5;) {\n for i0 in n0 parallel {\n for i1 in n1 parallel {\n for i2 in "
            "n2 parallel vector {\n %0 = load.",
            t, " p0[i0*s3 + i1 + i2*s4]\n %1 = load.", t, " p1[i0*s5 + i1*n2 + i2]\n %2 = add.", t, " %0, %1\n store.",
            t, " p2[i0*s5 + i1*n2 + i2], %2\n } } } }"));
    for (int64_t likely : {8, 200, 4096}) {
      const size_t kernel = library.add(proto.kernel, {2, likely, likely, likely * likely, likely, likely * likely});
      for (int64_t rows : {1, 5, 32, 33, 70}) {
        for (int64_t columns : {1, 4, 32, 50}) {
          Case c(clone(proto.kernel));
          const size_t n = size_t(2 * rows * columns);
          const DType type = dtype_from_ir_name(t);
          c.buffer(type, n).buffer(type, n).buffer(type, n);
          c.ints = {2, rows, columns, rows * columns, rows, rows * columns};
          c.end = 2;
          c.fill_all(uint64_t(rows + columns), 0.1);
          runs.push_back({kernel, std::move(c)});
        }
      }
    }
  }
  check_all(library, runs);
}

TEST_CASE("gathers, checks and ordered additions as CUDA source", "[cuda]") {
  ShimLibrary library;
  const Case rows(
      "kernel @k(p0: f32 in, p1: i64 in, p2: f32 out; n0, n1, s2, n3;) { for i0 in n0 parallel {\n %0 = load.i64 "
      "p1[i0]\n "
      "check.i64 %0, n3\n for i1 in n1 parallel vector {\n %1 = load.f32 p0[%0*s2 + i1]\n store.f32 p2[i0*n1 + i1], "
      "%1\n } "
      "} }");
  const Case elements(
      "kernel @k(p0: f32 in, p1: i64 in, p2: f32 out; n0, n1, s2, n3;) { for i0 in n0 parallel {\n for i1 in n1 vector "
      "{\n "
      "%0 = load.i64 p1[i0]\n check.i64 %0, n3\n %1 = load.f32 p0[%0*s2 + i1]\n store.f32 p2[i0*n1 + i1], %1\n } } }");
  const Case adds(
      "kernel @k(p0: f16 in, p1: i64 in, p2: f16 out; n0, n1, n2;) { for i0 in n0 {\n for i1 in n1 {\n %0 = load.i64 "
      "p1[i0*n1 + i1]\n check.i64 %0, n2\n %1 = load.f16 p0[i0*n1 + i1]\n store_add.f16 p2[%0], %1\n } } }");
  const size_t first = library.add(rows.kernel, {1000, 1024, 1024, 50});
  const size_t second = library.add(elements.kernel, {1000, 1024, 1024, 50});
  const size_t third = library.add(adds.kernel, {6, 10, 5});
  library.build();
  for (int64_t n : {1, 7, 8, 16, 45}) {
    for (const auto& [i, proto] : {std::pair(first, &rows), std::pair(second, &elements)}) {
      Case c(clone(proto->kernel));
      c.buffer(DType::kFloat32, size_t(6 * n)).buffer(DType::kInt64, 5).buffer(DType::kFloat32, size_t(5 * n));
      c.ints = {5, n, n, 6};
      c.end = 5;
      c.fill_all(uint64_t(n));
      for (int k = 0; k < 5; k++) c.buffers[1]->as<int64_t>()[k] = (k * 4) % 6;
      library.check(i, c);
      LaunchFault none;
      library.run(i, c, &none);
      CHECK(none.set == 0);
      for (int64_t bad : {int64_t(-1), int64_t(6), INT64_MIN, INT64_MAX}) {
        c.buffers[1]->as<int64_t>()[3] = bad;
        LaunchFault fault;
        library.run(i, c, &fault);
        CHECK(fault.set == 1);
        CHECK(fault.index == bad);
        CHECK(fault.arg == 3);
        CHECK(fault.bound == 6);
        library.run(i, c);  // nowhere to report
      }
    }
  }
  Case c(clone(adds.kernel));
  c.buffer(DType::kFloat16, 60).buffer(DType::kInt64, 60).buffer(DType::kFloat16, 5);
  c.ints = {6, 10, 5};
  c.fill_all(3, 0.02);
  for (int k = 0; k < 60; k++) c.buffers[1]->as<int64_t>()[k] = (k * k) % 5;
  library.check(third, c);
}

}  // namespace lutra
