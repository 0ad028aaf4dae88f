// Kernels under construction: numbering by value, hoisting, merging of loops, checks before loads.
#include <catch2/catch.hpp>

#include "jit/lower/body.h"
#include "ops/core/error.h"

namespace lutra {
namespace {

using loop::LoopMode;
using loop::Op;

constexpr double kShare = 1 << 17;  // additions that are worth a thread

struct Building {
  SymEnv env;
  SymScope scope{&env};
  SymFacts facts{env};
  Body body{facts};
  SymInt n = SymInt::of_expr(env, env.leaf(SymOp::kSize, 0, 0, 4));
  SymInt m = SymInt::of_expr(env, env.leaf(SymOp::kSize, 0, 1, 9));

  std::string text() {
    while (body.depth()) body.close();
    CHECK(body.merge_loops());
    body.make_parallel(false, kShare);
    BodyArgs args;
    loop::Kernel k = body.finish("k", args);
    CHECK(loop::verify(k) == "");
    return loop::print(k);
  }
};

}  // namespace

TEST_CASE("contiguous loops become one", "[lower]") {
  Building b;
  Affine i = Affine::loop(b.body.open(b.n, LoopMode::kSerial)), j = Affine::loop(b.body.open(b.m, LoopMode::kVector));
  Affine at = i * b.m + j;
  int32_t x = b.body.load(0, DType::kFloat32, at);
  CHECK(b.body.load(0, DType::kFloat32, at) == x);
  b.body.store(Op::kStore, 1, at, b.body.op(Op::kAdd, DType::kFloat32, x, x));
  CHECK(b.text() ==
        "kernel @k(p0: f32 in, p1: f32 out; n0;) {\n"
        "  for i0 in n0 parallel vector {\n"
        "    %0 = load.f32 p0[i0]\n"
        "    %1 = add.f32 %0, %0\n"
        "    store.f32 p1[i0], %1\n"
        "  }\n"
        "}\n");
}

namespace {

// {4, 9, 2^20} elements of a view into a tensor; op: how they are stored.
std::string stored(Op op) {
  Building b;
  const SymInt rows = SymInt::of_expr(b.env, b.env.leaf(SymOp::kSize, 0, 2, 1 << 20));
  const SymInt stride = SymInt::of_expr(b.env, b.env.leaf(SymOp::kStride, 0, 0, 1 << 24));
  const LoopMode inner = op == Op::kStore ? LoopMode::kVector : LoopMode::kSerial;
  const Affine i = Affine::loop(b.body.open(b.n, LoopMode::kSerial));
  const Affine j = Affine::loop(b.body.open(b.m, LoopMode::kSerial)), k = Affine::loop(b.body.open(rows, inner));
  b.body.store(op, 1, (i * b.m + j) * rows + k, b.body.load(0, DType::kFloat32, i * b.m + j * stride + k * b.n));
  return b.text();
}

}  // namespace

TEST_CASE("outer loops of long iterations become one", "[lower]") {
  CHECK(stored(Op::kStore) ==
        "kernel @k(p0: f32 in, p1: f32 out; n0, n1, n2, s3, s4, s5;) {\n"
        "  for i0 in n0 parallel {\n"
        "    %0 = index.i64 i0\n"
        "    %1 = intarg.i64 n1\n"
        "    %2 = rem.i64 %0, %1\n"
        "    %3 = floordiv.i64 %0, %1\n"
        "    for i1 in n2 vector {\n"
        "      %4 = load.f32 p0[i1*s3 + %2*s4 + %3*n1]\n"
        "      store.f32 p1[i1 + %2*n2 + %3*s5], %4\n"
        "    }\n"
        "  }\n"
        "}\n");
  CHECK(stored(Op::kStoreAdd).find("    for i1 in n1 {\n      for i2 in n2 {\n") != std::string::npos);
}

TEST_CASE("long rows that were merged from loops are split again", "[lower]") {
  Building b;
  const SymInt high = SymInt::of_expr(b.env, b.env.leaf(SymOp::kSize, 0, 2, 1 << 10));
  const SymInt wide = SymInt::of_expr(b.env, b.env.leaf(SymOp::kSize, 0, 3, 1 << 14));
  const Affine i = Affine::loop(b.body.open(b.n, LoopMode::kSerial));
  const Affine j = Affine::loop(b.body.open(high, LoopMode::kSerial));
  const Affine k = Affine::loop(b.body.open(wide, LoopMode::kVector));
  const Affine at = j * wide + k;
  b.body.store(Op::kStore, 1, i * high * wide + at, b.body.load(0, DType::kFloat32, i * b.m + at));
  CHECK(b.text() ==
        "kernel @k(p0: f32 in, p1: f32 out; n0, n1, n2, s3, s4;) {\n"
        "  for i0 in n0 parallel {\n"
        "    %0 = index.i64 i0\n"
        "    %1 = intarg.i64 n1\n"
        "    %2 = rem.i64 %0, %1\n"
        "    %3 = floordiv.i64 %0, %1\n"
        "    for i1 in n2 vector {\n"
        "      %4 = load.f32 p0[i1 + %2*n2 + %3*s3]\n"
        "      store.f32 p1[i1 + %2*n2 + %3*s4], %4\n"
        "    }\n"
        "  }\n"
        "}\n");
}

namespace {

// {4, size, columns} elements, loaded by columns or by rows.
std::string loaded(int64_t size, int columns, bool by_columns) {
  Building b;
  const SymInt high = SymInt::of_expr(b.env, b.env.leaf(SymOp::kSize, 0, 2, size));
  const SymInt wide = SymInt::of_expr(b.env, b.env.leaf(SymOp::kSize, 0, 3, columns));
  const Affine i = Affine::loop(b.body.open(b.n, LoopMode::kSerial));
  const Affine j = Affine::loop(b.body.open(high, LoopMode::kSerial));
  const Affine k = Affine::loop(b.body.open(wide, LoopMode::kVector));
  const Affine from = by_columns ? k * high + j : j * (wide + 1) + k;
  b.body.store(Op::kStore, 1, (i * high + j) * wide + k, b.body.load(0, DType::kFloat32, i * b.m + from));
  return b.text();
}

}  // namespace

TEST_CASE("loops along columns and loops of short rows stay apart", "[lower]") {
  const std::string joined = " = rem.i64 ";
  CHECK(loaded(1 << 9, 1 << 15, false).find(joined) != std::string::npos);
  CHECK(loaded(1 << 9, 1 << 15, true).find(joined) == std::string::npos);
  CHECK(loaded(1 << 22, 3, false).find(joined) == std::string::npos);
}

TEST_CASE("the few iterations of a large loop are joined with those of loops within it", "[lower]") {
  const auto extent = [](int64_t outer, int64_t inner, int64_t of_row) {
    Building b;
    const SymInt rows = SymInt::of_expr(b.env, b.env.leaf(SymOp::kSize, 0, 2, outer));
    const SymInt places = SymInt::of_expr(b.env, b.env.leaf(SymOp::kSize, 0, 3, inner));
    const SymInt n = SymInt::of_expr(b.env, b.env.leaf(SymOp::kSize, 0, 4, of_row));
    const SymInt stride = SymInt::of_expr(b.env, b.env.leaf(SymOp::kStride, 0, 0, 1 << 24));
    const Affine i = Affine::loop(b.body.open(rows, LoopMode::kSerial));
    const Affine j = Affine::loop(b.body.open(places, LoopMode::kSerial));
    const Affine k = Affine::loop(b.body.open(n, LoopMode::kVector));
    b.body.store(Op::kStore, 1, (i * places + j) * n + k, b.body.load(0, DType::kFloat32, i * n + j * stride + k));
    while (b.body.depth()) b.body.close();
    CHECK(b.body.merge_loops());
    b.body.make_parallel(false, kShare);
    BodyArgs args;
    b.body.finish("k", args);
    return args.extent.hint;
  };
  CHECK(extent(2, 256, 2048) == 2 * 256);
  CHECK(extent(64, 8, 2048) == 64);  // enough iterations
  CHECK(extent(2, 8, 2048) == 2);    // no work for more than one thread
  CHECK(extent(2, 4096, 128) == 2);  // an iteration of both would be too short
}

TEST_CASE("places of joined loops are no elements that say where to load", "[lower]") {
  const auto work = [](SymInt of_rows) {
    Building b;
    const SymInt rows = SymInt::of_expr(b.env, b.env.leaf(SymOp::kSize, 0, 2, of_rows.hint));
    const SymInt stride = SymInt::of_expr(b.env, b.env.leaf(SymOp::kStride, 0, 0, 1 << 24));
    const Affine i = Affine::loop(b.body.open(b.n, LoopMode::kSerial));
    const Affine j = Affine::loop(b.body.open(b.m, LoopMode::kSerial));
    const Affine k = Affine::loop(b.body.open(rows, LoopMode::kVector));
    b.body.store(Op::kStore, 1, (i * b.m + j) * rows + k, b.body.load(0, DType::kFloat32, i + j * stride + k));
    while (b.body.depth()) b.body.close();
    CHECK(b.body.merge_loops());
    b.body.make_parallel(false, kShare);
    BodyArgs args;
    b.body.finish("k", args);
    return args.extent.hint * args.work.hint / (4 * 9);
  };
  CHECK(work(1 << 10) == 1 << 10);
  CHECK(work(1 << 20) == 1 << 20);
}

TEST_CASE("what does not depend on a loop leaves it, and keeps loops apart", "[lower]") {
  Building b;
  Affine i = Affine::loop(b.body.open(b.n, LoopMode::kSerial)), j = Affine::loop(b.body.open(b.m, LoopMode::kVector));
  int32_t row = b.body.op(Op::kNeg, DType::kFloat32, b.body.load(0, DType::kFloat32, i));
  int32_t x = b.body.load(1, DType::kFloat32, i * b.m + j);
  b.body.store(Op::kStore, 2, i * b.m + j, b.body.op(Op::kMul, DType::kFloat32, x, row));
  CHECK(b.text() ==
        "kernel @k(p0: f32 in, p1: f32 in, p2: f32 out; n0, n1;) {\n"
        "  for i0 in n0 parallel {\n"
        "    %0 = load.f32 p0[i0]\n"
        "    %1 = neg.f32 %0\n"
        "    for i1 in n1 vector {\n"
        "      %2 = load.f32 p1[i0*n1 + i1]\n"
        "      %3 = mul.f32 %2, %1\n"
        "      store.f32 p2[i0*n1 + i1], %3\n"
        "    }\n"
        "  }\n"
        "}\n");
}

TEST_CASE("a gathered load stays behind its check", "[lower]") {
  Building b;
  Affine i = Affine::loop(b.body.open(b.n, LoopMode::kVector));
  int32_t index = b.body.load(0, DType::kInt64, Affine());  // the same for all
  b.body.check(index, b.m, 0);
  int32_t x = b.body.load(1, DType::kFloat32, Affine::value(index));
  b.body.store(Op::kStore, 2, i, x);
  CHECK(b.text() ==
        "kernel @k(p0: i64 in, p1: f32 in, p2: f32 out; n0, n1;) {\n"
        "  %0 = load.i64 p0[0]\n"
        "  for i0 in n0 parallel vector {\n"
        "    check.i64 %0, n1\n"
        "    %1 = load.f32 p1[%0]\n"
        "    store.f32 p2[i0], %1\n"
        "  }\n"
        "}\n");
}

TEST_CASE("what was rounded is not rounded again, what was loaded is", "[lower]") {
  Building b;
  Affine i = Affine::loop(b.body.open(b.n, LoopMode::kVector));
  const auto there_and_back = [&](int32_t v, DType t) { return b.body.cast(b.body.cast(v, DType::kFloat32), t); };
  int32_t x = b.body.cast(b.body.load(0, DType::kFloat32, i), DType::kBFloat16);
  CHECK(there_and_back(x, DType::kBFloat16) == x);
  CHECK(there_and_back(x, DType::kFloat16) != x);
  int32_t y = b.body.load(1, DType::kBFloat16, i);  // perhaps a signalling NaN
  int32_t z = there_and_back(y, DType::kBFloat16);
  CHECK(z != y);
  b.body.store(Op::kStore, 2, i, z);
  b.body.store(Op::kStore, 3, i, x);
  CHECK(b.text() ==
        "kernel @k(p0: f32 in, p1: bf16 in, p2: bf16 out, p3: bf16 out; n0;) {\n"
        "  for i0 in n0 parallel vector {\n"
        "    %0 = load.f32 p0[i0]\n"
        "    %1 = cast.bf16 %0\n"
        "    %2 = load.bf16 p1[i0]\n"
        "    %3 = cast.f32 %2\n"
        "    %4 = cast.bf16 %3\n"
        "    store.bf16 p2[i0], %4\n"
        "    store.bf16 p3[i0], %1\n"
        "  }\n"
        "}\n");
}

TEST_CASE("loops that a reduction joins must merge", "[lower]") {
  Building b;
  b.body.open(b.n, LoopMode::kSerial, true);
  Affine j = Affine::loop(b.body.open(b.m, LoopMode::kLanes));
  int32_t acc = b.body.accumulator(1, loop::RedOp::kSum, DType::kFloat32, 32, 0);
  b.body.accum(acc, b.body.load(0, DType::kFloat32, j));  // each row reads the same: not one run of n * m elements
  b.body.close();
  b.body.close();
  CHECK_FALSE(b.body.merge_loops());
}

}  // namespace lutra
