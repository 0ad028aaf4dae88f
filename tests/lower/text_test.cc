// Tests the text of lowered graphs: one golden file for each kind, print-parse-print, malformed and damaged text.
#include <random>

#include <catch2/catch.hpp>

#include "jit/lower/lower.h"
#include "ops/core/error.h"
#include "tests/golden.h"
#include "tests/schedule/graphs.h"
#include "tests/seeds.h"

namespace lutra {
namespace {

std::string text_of(const Graph& graph) {
  const LoweredGraph l = lower(graph);
  CHECK(verify(l) == "");
  return print(graph, l);
}

std::string printed_again(const std::string& text) {
  const ParsedLowering p = parse_lowered(text);
  CHECK(verify(p.lowered) == "");
  return print(*p.graph, p.lowered);
}

const char* const kKinds[] = {"pointwise", "reduce",      "view", "extern", "scatter",
                              "strided",   "overlapping", "copy", "join",   "join_rows"};

std::string golden(const std::string& kind) { return read_text("tests/lower/" + kind + ".lowered"); }

std::string error_of(const std::string& text) {
  try {
    parse_lowered(text);
    return "accepted";
  } catch (const Error& e) {
    CHECK(e.kind == ErrorKind::kUser);
    CHECK(std::string(e.what()).starts_with("lowered text, line "));
    return e.what();
  }
}

// `what` is one node; %0 is f32[4], %1 is i64[2], %2 c64[3].
std::string verdict(const std::string& what) {
  return error_of("lowered {\n  %0 = input 'x' : f32[4] strides [1]\n  %1 = input 'i' : i64[2] strides [1]\n" +
                  ("  %2 = input 'z' : c64[3] strides [1]\n" + what) + "\n}\n");
}

std::string pointwise(const std::string& stmts) {
  return verdict("%3 = pointwise neg(%0, %1, %2) : f32[4] strides [1] {\n" + stmts + "\n}");
}
std::string reduce(const std::string& order) {
  return verdict("%3 = reduce sum(%0) : f32[] strides [] {\n" + order + "\n%0 = const.f32 1.0\nreturn %0 }");
}
std::string join(const std::string& stmts) {
  return verdict("%3 = join cat(%0, %1) : f32[4] strides [1] {\n" + stmts + "\n}");
}

}  // namespace

TEST_CASE("each kind of lowering has its text", "[lower]") {
  for (const std::string kind : kKinds) {
    INFO(kind);
    const auto graph = lowered_graph(*parse_graph(read_text("tests/lower/" + kind + ".graph")));
    const std::string text = text_of(*graph);
    check_golden("lower/" + kind + ".lowered", text);
    CHECK(printed_again(text) == text);
  }
}

TEST_CASE("a scatter of nothing goes with an index and a source of any dimensions", "[lower]") {
  for (const char* operands :
       {"i64[0] strides [1]|f32[0, 3, 7] strides [21, 7, 1]", "i64[0, 1] strides [1, 1]|f32[2] strides [1]",
        "i64[0, 1] strides [1, 1]|f32[0, 3, 7] strides [21, 7, 1]"}) {
    INFO(operands);
    const std::string both = operands;
    const size_t bar = both.find('|');
    const auto graph =
        parse_graph("graph {\n  %0 = input 'x' : f32[0, 7] strides [7, 1]\n  %1 = input 'i' : " + both.substr(0, bar) +
                    "\n  %2 = input 's' : " + both.substr(bar + 1) +
                    "\n  %3 = scatter_add(%0, 1, %1, %2) : f32[0, 7] strides [7, 1]\n  return %3\n}\n");
    text_of(*graph);
  }
}

TEST_CASE("random graphs: lowered text is read as it was written", "[lower]") {
  const auto [first, last] = seeds(1000);
  for (uint32_t seed = uint32_t(first); seed <= last; seed++) {
    CAPTURE(seed);
    const auto graph = lowered_if_allowed(*random_graph(seed));
    if (!graph) continue;
    const std::string text = text_of(*graph);
    const std::string again = printed_again(text);
    if (again != text) CHECK(again == text);
  }
}

TEST_CASE("sums and products of sizes are read as they were written, whatever was made first", "[lower]") {
  Graph graph;
  SymEnv& env = *graph.env;
  SymScope scope(&env);
  const auto leaf = [&](int32_t dim) { return SymInt::of_expr(env, env.leaf(SymOp::kSize, 0, dim, 4)); };
  const SymInt a = leaf(0), b = leaf(1), late = b + 1, early = a + 1, c = leaf(2);
  const Tensor x = graph.add_input("x", {a, b, c}, {b * c, c, 1}, DType::kFloat32);
  const Tensor y = graph.add_input("y", {early * late, early + c, late + c, floor_div(early * late + c, 2)},
                                   {1, 1, 1, 1}, DType::kFloat32);
  const std::string text = text_of(graph);
  CHECK(printed_again(text) == text);
}

TEST_CASE("malformed lowered text is an error with its line", "[lower]") {
  std::string all;
  for (const char* text :
       {"", "lowered", "lowered {", "lowered {} more", "lowered {\n %1 = input 'x' : f32[] strides []\n}",
        "lowered {\n %0 = input 'x' : f33[] strides []\n}", "lowered {\n %0 = input 'x' : f32[2] strides []\n}",
        "lowered {\n %0 = input 'x' : f32[-2] strides [1]\n}",
        "lowered {\n %0 = input 'x' : f32[99999999999999999999] strides [1]\n}",
        "lowered {\n sym size(0, 0) = 0\n\n let $0 = floordiv(4, size(0, 0))\n}",
        "lowered {\n sym size(0, 0) = 4\n let $0 = mul(size(0, 0), 9223372036854775807)\n}",
        "lowered {\n let $1 = 4\n}", "lowered {\n %0 = extern mm(%0) : f32[] strides []\n}",
        "lowered {\n %0 = extern nosuch() : f32[] strides []\n}",
        "lowered {\n %0 = external mm() : f32[] strides []\n}", "lowered {\n extern mm() : f32[] strides []\n}",
        "lowered {\n copy copy_() {\n}\n}"}) {
    all += error_of(text) + "\n";
  }
  const auto add = [&](const std::string& what, const std::string& wrong) { all += what + "\n  -> " + wrong + "\n"; };
  for (const char* s : {"%0 = nosuch.f32 %0",
                        "%0 = neg.f32 %1",
                        "%1 = const.f32 1.0",
                        "neg.f32 %0",
                        "%0 = const.f32 1.0 %1 = neg.i64 %0",
                        "%0 = const.f32 1.0 %1 = const.f64 1.0 %2 = add.f32 %0, %1",
                        "%0 = const.f32 x",
                        "%0 = const.i64 99999999999999999999",
                        "%0 = load.f32 %0",
                        "%0 = read.f32 a3[0]",
                        "%0 = read.f32 a0[0, 0]",
                        "%0 = read.f64 a0[0]",
                        "%0 = read.f32 a0[i1]",
                        "%0 = read.f32 a0[%0]",
                        "%0 = read.f32 a0[i99999999999]",
                        "%0 = const.f32 1.0 %1 = read.f32 a0[%0]",
                        "%0 = const.f32 1.0 %1 = part.f32 %0, 0",
                        "%0 = read.c64 a2[0] %1 = part.f32 %0, 2",
                        "%0 = const.f32 1.0 check %0, 4",
                        "%0 = read.i64 a1[0] %1 = check %0, 4",
                        "%0 = const.i64 1 return %0",
                        "",
                        "return %0",
                        "for i1 in 4 {\n }",
                        "%0 = const.f32 1.0 store [0], %0",
                        "%0 = read.i64 a1[0] %1 = normal.f32 %0, -1",
                        "%0 = scalar.f32 scalar(0)",
                        "%0 = const.f32 1.0 return %0 %1 = const.f32 1.0"}) {
    add(s, pointwise(s));
  }
  for (const char* s :
       {"sun.f32 over [4] nest (0)", "sum.b8 over [4] nest (0)", "sum.f32 over [4]", "sum.f32 over [4] nest (1)",
        "sum.f32 over [4] nest (0) kept (0)", "sum.f32 over [4] nest (0 0)", "sum.f32 over [4] nest () kept (0)",
        "sum.f32 over [4] nest (0) lanes 3", "sum.f32 over [4] nest (0) lanes 2048", "amax.f32 over [4] nest (0)",
        "max.f32 over [4] nest (0) block 32", "sum.f64 over [4] nest (0)"}) {
    add(s, reduce(s));
  }
  for (const char* s : {"for i1 in 4 {\n }", "for i0 in 4 {", "}", "%0 = const.i64 1 store [0], %0",
                        "for i0 in 4 { %1 = const.f32 1.0 } store [0], %1",
                        "for i0 in 4 { } %2 = const.f32 1.0 store [i0], %2", "%0 = const.f32 1.0 return %0"}) {
    add(s, join(s));
  }
  for (const char* s :
       {"%3 = view neg(%0) : f32[4] strides [1] [i1]", "%3 = view neg(%0) : f32[4] strides [1] [%0]",
        "%3 = view neg(%0) : f32[4] strides [1] [i0, i0]", "%3 = view neg(%0, %0) : f32[4] strides [1] [i0]",
        "%3 = result topk() : f32[4] strides [1]", "%3 = copy copy_(%0, %0) : f32[4] strides [1] {\n}",
        "%3 = strided as_strided_scatter(%0, %0) : f32[4] strides [1]"}) {
    add(s, verdict(s));
  }
  check_golden("lower/malformed.txt", all);
}

TEST_CASE("the parser of lowered text survives damage", "[lower]") {
  std::mt19937 rng(11);
  uint64_t accepted = 0, all = 0;
  for (const std::string kind : kKinds) {
    const std::string text = golden(kind);
    REQUIRE_FALSE(text.empty());
    for (uint64_t round = 0; round < rounds(1000); round++, all++) {
      std::string t = text;
      for (uint64_t n = 0; n < 1 + round % 3 && !t.empty(); n++) {
        const size_t at = rng() % t.size();
        switch (rng() % 4) {
          case 0: t.erase(at, 1 + rng() % 5); break;
          case 1: t.insert(at, 1, "%(){}[]iasx*+:;,.$-0189 \n\xff"[rng() % 27]); break;
          case 2: t.insert(at, t, rng() % t.size(), rng() % 40); break;
          default: t.resize(at + 1);
        }
      }
      INFO(t);
      std::string wrong;
      try {
        const ParsedLowering p = parse_lowered(t);
        wrong = verify(p.lowered);
        const std::string once = print(*p.graph, p.lowered);
        if (wrong.empty() && printed_again(once) != once) wrong = "printed otherwise: " + once;
        accepted++;
      } catch (const Error& e) {
        if (!std::string(e.what()).starts_with("lowered text, line ")) wrong = e.what();
      }
      if (!wrong.empty()) CHECK(wrong == "");
    }
  }
  CHECK(accepted < all / 2);
}

}  // namespace lutra
