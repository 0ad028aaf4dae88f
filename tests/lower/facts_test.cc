// Tests facts about symbols that are known without a guard, and orders of symbols that need one.
#include <catch2/catch.hpp>

#include "jit/lower/lower.h"

namespace lutra {
namespace {

struct Symbols {
  SymEnv env;
  SymScope scope{&env};
  SymFacts facts{env};
  SymInt size(int32_t dim, int64_t hint) { return SymInt::of_expr(env, env.leaf(SymOp::kSize, 0, dim, hint)); }
  SymInt stride(int32_t dim, int64_t hint) { return SymInt::of_expr(env, env.leaf(SymOp::kStride, 0, dim, hint)); }
};

}  // namespace

TEST_CASE("equality of sizes modulo ring arithmetic", "[lower]") {
  Symbols s;
  SymInt n = s.size(0, 6), m = s.size(1, 6), k = s.size(2, 12);
  CHECK(s.facts.equal(n * 2 + n, n * 3));
  CHECK(s.facts.equal((n + 1) * (n - 1), n * n - 1));
  CHECK(s.facts.equal(m * n, n * m));
  CHECK_FALSE(s.facts.equal(n, m));  // equal by hints only
  CHECK_FALSE(s.facts.equal(n, SymInt(6)));
  CHECK(s.env.guards().empty());
  CHECK(n == m);  // asks
  CHECK(s.facts.equal(n * 5, m * 5));
  CHECK(m + n == k);
  CHECK(s.facts.equal(k, m * 2));
  CHECK(s.facts.equal(n * 2 * k, k * k));
  CHECK(s.env.guards().size() == 2);
}

TEST_CASE("what follows from equations that define no size", "[lower]") {
  Symbols s;
  SymInt n = s.size(0, 2), m = s.size(1, 6), k = s.size(2, 3), a = s.size(3, 12), b = s.size(4, 6);
  // A layout of constant strides, whose sizes changed: a loop over n in one over 2.
  CHECK(s.facts.ask_equal(SymInt(6), n * 3));
  CHECK(s.facts.equal(SymInt(12), SymInt(3) * (SymInt(2) * n)));
  CHECK(s.facts.equal(n, SymInt(2)));
  // Products: each multiple of a known equation, and the sum of two.
  CHECK(s.facts.ask_equal(m * k, SymInt(18)));
  CHECK(s.facts.equal(m * k * 2, SymInt(36)));
  CHECK(s.facts.equal(a * m * k, a * 18));
  CHECK_FALSE(s.facts.equal(m, SymInt(6)));
  CHECK(s.facts.ask_equal(a * k, b * m));
  CHECK(s.facts.equal(a * k * k, b * 18));
  // A size that is known only later is put into what stands.
  CHECK(k == 3);
  CHECK(s.facts.equal(m * 2, SymInt(12)));
  CHECK(s.facts.equal(a * 3, b * 6));
}

// One size settles several equations at once; what the first of them defines goes into the others.
TEST_CASE("equations that one size settles together", "[lower]") {
  Symbols s;
  SymInt n = s.size(0, 4), m = s.size(1, 2), k = s.size(3, 4);
  CHECK(s.facts.ask_equal(m * m * 4, m * m * k));
  CHECK(s.facts.ask_equal(m * k, SymInt(8)));
  CHECK(s.facts.ask_equal(n * m, k * 2));
  CHECK(s.facts.ask_equal(m, SymInt(2)));
  CHECK(s.facts.equal(k, SymInt(4)));
  CHECK(s.facts.equal(n, SymInt(4)));
  CHECK(s.facts.equal(n * m, k * m));
}

TEST_CASE("dimensions in the order of strides", "[lower]") {
  Symbols s;
  SymInt n = s.size(0, 4), m = s.size(1, 9);
  CHECK(stride_order(s.facts, {n * m, m, SymInt(1)}) == std::vector<int>{0, 1, 2});
  CHECK(s.env.guards().empty());  // provable: a dense layout asks nothing
  CHECK(stride_order(s.facts, {SymInt(1), n}) == std::vector<int>{1, 0});
  CHECK(stride_order(s.facts, {SymInt(3), SymInt(3), SymInt(12)}) == std::vector<int>{2, 0, 1});
  size_t before = s.env.guards().size();
  CHECK(stride_order(s.facts, {s.stride(0, 2), s.stride(1, 7)}) == std::vector<int>{1, 0});
  CHECK(s.env.guards().size() > before);
}

}  // namespace lutra
