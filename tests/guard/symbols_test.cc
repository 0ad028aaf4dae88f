// Tests expressions and guards of symbols: they may have any size, and a program holds only those that are needed.
#include <catch2/catch.hpp>
#include <cmath>

#include "jit/graph/graph.h"
#include "jit/graph/text.h"
#include "jit/lower/facts.h"
#include "jit/runtime/host_program.h"
#include "vm/guard/program.h"

namespace lutra {
namespace {

constexpr int kTerms = 1'000'000;

// s = s * s + 1, or s = s + x: a tree of these is exponential, or deep.
int32_t chain(SymEnv& env, int32_t x, int n, bool shared) {
  int32_t s = x;
  for (int i = 0; i < n; i++) {
    s = shared ? env.make(SymOp::kNAdd, env.make(SymOp::kNMul, s, s), env.number(-1 - i))
               : env.make(SymOp::kNAdd, s, x);
  }
  return s;
}

bool holds(SymbolProgram& p, const std::vector<double>& scalars) {
  std::vector<SymbolValue> values;
  int failed = 0;
  return p.run({}, scalars, values, &failed);
}

// The guards of one question about a size of 7 that says it is `n`.
std::string guards_text(SymEnv& env) {
  std::string text;
  for (const auto& [g, origin] : env.needed_guards()) {
    text +=
        str(text.empty() ? "" : "; ", g.outcome ? "" : "not ", name(g.cmp), " ", env.print(g.a), " ", env.print(g.b));
  }
  return text;
}

}  // namespace

TEST_CASE("symbols: chains of a million terms", "[symbols]") {
  for (bool shared : {false, true}) {
    Graph g;
    SymEnv& env = *g.env;
    SymScope scope(&env);
    const Scalar x = g.add_scalar("x", 0.5);
    const int32_t s = chain(env, x.expr, kTerms, shared);
    CHECK(env.print(s).size() < 10000);
    CHECK(expr_text(env.exprs(), s).size() < 10000);
    env.ask(SymCmp::kLt, s, env.number(0.25));
    SymbolProgram p;
    CHECK(p.add_guards(env).size() == 1);
    CHECK(holds(p, {0.5}));
    GuardProgram program;
    program.symbols = std::move(p);
    program.scalar_sources = {nullptr};
    CHECK(relation_text(program, 0).size() < 10000);
    CHECK(relation_source(program, 0) == nullptr);
    HostProgram host;
    host.begin(env.exprs(), {});
    std::vector<HostValue> values;
    const int32_t slot = host.number_slot(s);
    values = host.start_values();
    const double half = 0.5;
    host.run(values.data(), nullptr, &half);
    const double got = values[size_t(slot)].d;
    CHECK((got == env[s].d || (std::isnan(got) && std::isnan(env[s].d))));
  }
}

TEST_CASE("symbols: polynomials of shared sizes stay small", "[symbols]") {
  SymEnv env;
  SymScope scope(&env);
  const int32_t n = env.leaf(SymOp::kSize, 0, 0, 3), m = env.leaf(SymOp::kSize, 0, 1, 3);
  int32_t s = n, t = m;
  for (int i = 0; i < 2000; i++) {
    const int32_t next =
        env.make(SymOp::kFloorDiv, env.make(SymOp::kAdd, s, env.make(SymOp::kMul, t, n)), env.constant(5));
    s = t, t = next;
  }
  for (int i = 0; i < 40; i++) t = env.make(SymOp::kSub, env.make(SymOp::kAdd, t, m), env.make(SymOp::kMin, t, n));
  SymFacts facts(env);
  CHECK(facts.equal(SymInt::of_expr(env, t), SymInt::of_expr(env, t)));
  facts.equal(SymInt::of_expr(env, t), SymInt::of_expr(env, s));
}

TEST_CASE("symbols: a graph's text names what is large, and reads back", "[symbols]") {
  Graph g;
  SymScope scope(g.env.get());
  const Scalar x = g.add_scalar("x", 0.5);
  Scalar s(0.5);
  s.expr = chain(*g.env, x.expr, 1000, true);
  s.d = (*g.env)[s.expr].d;
  g.outputs = {s};
  const std::string text = print(g);
  CHECK(text.size() < 200000);
  CHECK(text.find("let $0 = ") != std::string::npos);
  CHECK(print(*parse_graph(text)) == text);
}

TEST_CASE("symbols: guards that others imply are not kept", "[symbols]") {
  SymEnv env;
  env.assume_sizes({2, 1000});
  const int32_t n = env.leaf(SymOp::kSize, 0, 0, 7), x = env.leaf(SymOp::kScalarInput, 0, 0, 0, 2.5);
  const int32_t number = env.make(SymOp::kToNum, n);
  const auto constant = [&](int64_t v) { return env.constant(v); };
  SECTION("bounds") {
    for (int i = 1; i < 10; i++) env.ask(SymCmp::kLe, env.number(i), number);
    CHECK(guards_text(env) == "eq size(0, 0) 7");
  }
  SECTION("what sizes are") {
    CHECK(env.ask(SymCmp::kLt, constant(0), n));
    CHECK(env.ask(SymCmp::kLe, number, env.number(HUGE_VAL)));
    CHECK_FALSE(env.ask(SymCmp::kEq, number, env.number(NAN)));
    CHECK_FALSE(env.ask(SymCmp::kEq, number, env.number(2.5)));
    CHECK_FALSE(env.ask(SymCmp::kEq, env.make(SymOp::kMul, n, constant(2)), constant(9)));
    CHECK(guards_text(env).empty());
  }
  SECTION("sums and products with constants") {
    env.ask(SymCmp::kLt, env.make(SymOp::kSub, constant(10), n), constant(5));
    env.ask(SymCmp::kLe, env.make(SymOp::kAdd, env.make(SymOp::kMul, n, constant(3)), constant(1)), constant(100));
    CHECK(guards_text(env) == "not lt size(0, 0) 6; le size(0, 0) 33");
  }
  SECTION("numbers, NaN among them") {
    env.ask(SymCmp::kLt, x, env.number(5));
    env.ask(SymCmp::kLt, x, env.number(9));  // implied
    env.ask(SymCmp::kLe, env.make(SymOp::kNNeg, x), env.number(7));
    env.ask(SymCmp::kLt, env.number(-8), x);                  // implied
    CHECK_FALSE(env.ask(SymCmp::kLt, x, env.number(-9)));     // implied: x is no NaN
    CHECK_FALSE(env.ask(SymCmp::kEq, x, env.number(100.5)));  // implied
    CHECK(guards_text(env) == "lt scalar(0) num(5); le num(-7) scalar(0)");
  }
  SECTION("a false answer is true of NaN") {
    CHECK_FALSE(env.ask(SymCmp::kLt, x, env.number(1)));
    CHECK_FALSE(env.ask(SymCmp::kLt, x, env.number(0)));  // implied
    CHECK(env.ask(SymCmp::kLe, env.number(0), x));        // not: NaN is not at least 0
    CHECK(guards_text(env) == "not lt scalar(0) num(1); le num(0) scalar(0)");
  }
  SECTION("what is pinned answers everything") {
    env.pin(x);
    CHECK(env.ask(SymCmp::kLt, x, env.number(3)));
    CHECK_FALSE(env.ask(SymCmp::kWhole, x, 0));
    CHECK(guards_text(env) == "same scalar(0) num(2.5)");
  }
}

TEST_CASE("symbols: a difference of bounds is the length that they were made of", "[symbols]") {
  SymEnv env;
  SymScope scope(&env);
  const auto leaf = [&](int dim, int64_t hint) { return SymInt::of_expr(env, env.leaf(SymOp::kSize, 0, dim, hint)); };
  const SymInt n = leaf(0, 12), m = leaf(1, 5);
  CHECK(same_expr((n + m) - m, n));
  CHECK(same_expr((n + m) - n, m));
  CHECK(same_expr((n - m) + m, n));
  CHECK(same_expr(m + (n - m), n));
  CHECK(same_expr(n * 3 - n * 2, n));
  CHECK(same_expr(n * 3 - n, n * 2));
  CHECK(same_expr(n * m * 4 - n * m, n * m * 3));
  CHECK((n * 2 - n * 2).is_constant());
  CHECK((n * 3 - m).hint == 31);
  CHECK((n - n * 3).hint == -24);
}

TEST_CASE("symbols: a pin compares bits", "[symbols]") {
  for (double v : {std::nan(""), -std::nan(""), 0.0, -0.0, 3.0}) {
    SymEnv env;
    const int32_t x = env.leaf(SymOp::kScalarInput, 0, 0, 0, v);
    env.pin(x);
    SymbolProgram p;
    p.add_guards(env);
    for (double w : {std::nan(""), -std::nan(""), 0.0, -0.0, 3.0, 4.0}) {
      CHECK(holds(p, {w}) == compare_number(SymCmp::kSame, v, w));
    }
  }
}

TEST_CASE("symbols: an integer that does not fit a double is a miss, not a wrong value", "[symbols]") {
  SymEnv env;
  env.assume_sizes(kSymbolicSizes);
  const int32_t n = env.leaf(SymOp::kSize, 0, 0, 7), m = env.leaf(SymOp::kSize, 0, 1, 7);
  CHECK(env.ask_exact(env.make(SymOp::kMul, n, env.constant(8))));
  CHECK(env.guards().empty());
  CHECK(env.ask_exact(env.make(SymOp::kMul, n, m)));
  SymbolProgram p;
  p.add_guards(env);
  std::vector<SymbolValue> values;
  for (int64_t size : {int64_t(5), int64_t(1) << 25, int64_t(1) << 27, int64_t(1) << 32, int64_t(1) << 40}) {
    int failed = -1;
    const bool fits = p.run({make_fake({size, size}, {1, 1}, DType::kFloat32)}, {}, values, &failed);
    CHECK(fits == (size < int64_t(1) << 27));
  }
}

}  // namespace lutra
