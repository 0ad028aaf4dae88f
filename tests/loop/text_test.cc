// Tests loop IR's text: golden print, print-parse-print, malformed text, and programs that the verifier rejects.
#include <random>

#include <catch2/catch.hpp>

#include "jit/loop/loop.h"
#include "ops/core/error.h"
#include "tests/golden.h"

namespace lutra {
namespace {

using namespace loop;

// A kernel with every form of the grammar, built by hand.
Kernel everything() {
  Kernel k;
  k.name = "everything";
  k.params = {{DType::kFloat32, false}, {DType::kInt64, false}, {DType::kFloat32, true}, {DType::kBool, true}};
  k.ints = 5, k.scalars = 2, k.values = 40, k.loops = 4;
  auto inst = [](Op op, DType t, int32_t id, int32_t a = -1, int32_t b = -1, int32_t c = -1, int32_t arg = -1) {
    Inst i{};
    i.op = op, i.type = t, i.id = id, i.a = a, i.b = b, i.c = c, i.arg = arg;
    return i;
  };
  auto row = std::make_unique<Loop>();
  row->id = 0, row->size = Coef::of_arg(0), row->parallel = true;
  Inst index = inst(Op::kLoad, DType::kInt64, 0);
  index.access = {1, Coef::of(0), {{false, 0, Coef::of(1)}}};
  row->body.push_back(index);
  row->body.push_back(inst(Op::kCheck, DType::kInt64, -1, 0, -1, -1, 3));
  auto lanes = std::make_unique<Loop>();
  lanes->id = 1, lanes->size = Coef::of_arg(1), lanes->mode = LoopMode::kLanes;
  lanes->accs = {{RedOp::kSum, DType::kFloat32, 10, 16}, {RedOp::kArgMax, DType::kFloat32, 11, 16}};
  Inst x = inst(Op::kLoad, DType::kFloat32, 1);
  x.access = {0, Coef::of_arg(4), {{true, 0, Coef::of_arg(2)}, {false, 1, Coef::of(1)}}};
  lanes->body.push_back(x);
  lanes->body.push_back(inst(Op::kExp, DType::kFloat32, 2, 1));
  lanes->body.push_back(inst(Op::kAccum, DType::kFloat32, -1, 2, -1, -1, 10));
  lanes->body.push_back(inst(Op::kAccum, DType::kFloat32, -1, 1, -1, -1, 11));
  row->body.push_back(std::move(lanes));
  auto vector = std::make_unique<Loop>();
  vector->id = 2, vector->size = Coef::of_arg(1), vector->mode = LoopMode::kVector;
  const double reals[] = {0.1, -INFINITY, INFINITY, NAN, 1e-300, -0.0, 5};
  for (int i = 0; i < 7; i++) {
    vector->body.push_back(inst(Op::kConst, i % 2 ? DType::kFloat64 : DType::kFloat32, 12 + i));
    std::get<Inst>(vector->body.back()).imm = reals[i];
  }
  vector->body.push_back(inst(Op::kConst, DType::kInt64, 20));
  std::get<Inst>(vector->body.back()).iimm = INT64_MIN;
  vector->body.push_back(inst(Op::kScalar, DType::kFloat32, 21, -1, -1, -1, 1));
  vector->body.push_back(inst(Op::kIntArg, DType::kInt64, 22, -1, -1, -1, 3));
  vector->body.push_back(inst(Op::kIndex, DType::kInt64, 23, -1, -1, -1, 2));
  vector->body.push_back(inst(Op::kNormal, DType::kFloat32, 24, 23, -1, -1, 2));
  vector->body.push_back(inst(Op::kLt, DType::kBool, 25, 24, 21));
  vector->body.push_back(inst(Op::kSelect, DType::kFloat32, 26, 25, 24, 10));
  vector->body.push_back(inst(Op::kCast, DType::kBool, 27, 26));
  Inst s = inst(Op::kStore, DType::kFloat32, -1, 26);
  s.access = {2, Coef::of(0), {{false, 0, Coef::of_arg(1)}, {false, 2, Coef::of(1)}}};
  vector->body.push_back(s);
  Inst b = inst(Op::kStore, DType::kBool, -1, 27);
  b.access = {3, Coef::of(7), {{false, 0, Coef::of_arg(1)}, {false, 2, Coef::of(2)}}};
  vector->body.push_back(b);
  row->body.push_back(std::move(vector));
  auto serial = std::make_unique<Loop>();
  serial->id = 3, serial->size = Coef::of(2);
  Inst add = inst(Op::kStoreAdd, DType::kFloat32, -1, 10);
  add.access = {2, Coef::of(0), {}};
  serial->body.push_back(add);
  row->body.push_back(std::move(serial));
  k.body.push_back(std::move(row));
  return k;
}

std::string error_of(const std::string& text) {
  try {
    return "accepted: " + verify(parse_kernel(text));
  } catch (const Error& e) {
    return e.what();
  }
}

std::string verdict(const std::string& body) {
  return verify(parse_kernel("kernel @k(p0: f32 in, p1: f32 out; n0, n1; x0) {" + body + "}"));
}

}  // namespace

TEST_CASE("print, parse, print is the identity", "[loop]") {
  const Kernel k = everything();
  CHECK(verify(k) == "");
  const std::string text = print(k);
  check_golden("loop/everything.txt", text);
  CHECK(print(parse_kernel(text)) == text);
  CHECK(print(clone(k)) == text);
  CHECK(verify(parse_kernel(text)) == "");
}

TEST_CASE("malformed text is an error with its line", "[loop]") {
  std::string all;
  for (const char* text :
       {"", "kernel", "kernel @k(", "kernel @k(p0: f32 in; n0; ) {", "kernel @k(p1: f32 in; ; ) {}",
        "kernel @k(p0: f33 in; ; ) {}", "kernel @k(; ; ) {\n %0 = nosuch.f32 %1\n}",
        "kernel @k(; ; ) {\n add.f32 %0, %1\n}", "kernel @k(; ; ) { %99999999999999999999 = const.f32 1 }",
        "kernel @k(; ; ) { %0 = const.f32 x }", "kernel @k(; ; ) {} more",
        "kernel @k(; n0; ) { for i0 in n0 acc(%1: sun.f32) {} }", "kernel @k(p0: f32 in; ; ) { %0 = load.f32 p0[ }",
        "kernel @k(p0: f32 in; ; ) { %0 = load.f32 p0[i0 + ] }"}) {
    all += error_of(text) + "\n";
  }
  check_golden("loop/malformed.txt", all);
}

TEST_CASE("the parser survives damaged text", "[loop]") {
  const std::string text = print(everything());
  std::mt19937 rng(7);
  int accepted = 0;
  for (int round = 0; round < 4000; round++) {
    std::string t = text;
    for (int n = 0; n < 1 + round % 3; n++) {
      const size_t at = rng() % t.size();
      switch (rng() % 3) {
        case 0: t.erase(at, 1 + rng() % 5); break;
        case 1: t.insert(at, 1, "%(){}[]ipnsx*+:;,.-0189 \n\xff"[rng() % 26]); break;
        default: t.resize(at + 1);
      }
    }
    if (error_of(t).rfind("accepted", 0) == 0) accepted++;
  }
  CHECK(accepted < 4000);
}

TEST_CASE("what the verifier rejects", "[loop]") {
  std::string all;
  for (const char* body :
       {"%0 = load.f32 p0[0] store.f32 p1[0], %0",
        "%0 = load.f64 p0[0]",
        "store.f32 p1[0], %0",
        "%0 = load.f32 p2[0]",
        "%0 = load.f32 p0[i0]",
        "%0 = load.f32 p0[s7]",
        "%0 = load.f32 p0[0] store.f32 p0[0], %0",
        "%0 = load.f32 p0[0] %0 = load.f32 p0[0]",
        "%0 = const.f32 1 %1 = const.f64 1 %2 = add.f32 %0, %1",
        "%0 = const.f32 1 %1 = and.f32 %0, %0",
        "%0 = const.b8 1 %1 = add.b8 %0, %0",
        "%0 = const.i64 1 %1 = exp.i64 %0",
        "for i0 in n0 { %0 = const.f32 1 } store.f32 p1[0], %0",
        "for i0 in n0 { for i1 in n0 parallel { } }",
        "for i0 in n0 parallel { } for i1 in n0 { }",
        "for i0 in n0 vector { for i1 in n1 vector { } }",
        "for i0 in n0 vector { for i1 in n1 lanes { } }",
        "for i0 in n0 lanes { for i1 in n1 { } }",
        "for i0 in n0 { } for i0 in n0 { }",
        "for i0 in n0 lanes acc(%1: sum.f32 x3) { }",
        "for i0 in n0 lanes acc(%1: sum.f32) { }",
        "for i0 in n0 acc(%1: any.f32) { }",
        "for i0 in n0 acc(%1: sum.f32 x16) { %0 = const.f32 1 accum.f32 %1, %0 }",
        "%0 = const.f32 1 accum.f32 %1, %0",
        "for i0 in n0 acc(%1: sum.f32) { for i1 in n1 vector { %0 = const.f32 1 accum.f32 %1, %0 } }",
        "%0 = const.i64 1 check.i64 %0, n5",
        "%0 = scalar.f32 x3",
        "%0 = index.i64 i0",
        "%0 = const.f32 1 check.i64 %0, n0",
        "for i0 in n0 lanes acc(%1: sum.f32 x8) { %0 = const.f32 1 accum.f32 %1, %0 accum.f32 %1, %0 }",
        "for i0 in n0 lanes acc(%1: sum.f32 x8, %2: sum.f32 x4) { %0 = const.f32 1 accum.f32 %1, %0 accum.f32 %2, %0 }",
        "for i0 in n0 vector { %0 = const.f32 1 store_add.f32 p1[i0], %0 }",
        "%0 = const.f32 0 %1 = load.f32 p0[%0]"}) {
    all += std::string(body) + "\n  -> " + verdict(body) + "\n";
  }
  check_golden("loop/verifier.txt", all);
}

}  // namespace lutra
