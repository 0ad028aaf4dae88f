// Tests graphs with data-dependent sizes: text, compiled runs, artifacts, and sizes for which they were not made.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "jit/artifact/artifact.h"
#include "jit/compile.h"
#include "jit/graph/unbacked.h"

namespace lutra {
namespace {

const char* const kText = R"(graph {
  sym size(0, 0) = 9 in 2 to 1099511627776
  scalar 'the size of nonzero' = 5.0
  %0 = input 'x' : f32[size(0, 0)] strides [1]
  %1 = input 'total' : f32[1] strides [1]
  guard lt(toint(scalar(0)), 2) false
  guard le(toint(scalar(0)), size(0, 0)) true
  %2 = mul(%0, 2.0) : f32[size(0, 0)] strides [1]
  %3 = gt(%2, 0.0) : b8[size(0, 0)] strides [1]
  %4 = nonzero(%3) : i64[toint(scalar(0)), 1] strides [1, toint(scalar(0))]
  %5 = select(%4, 1, 0) : i64[toint(scalar(0))] strides [1]
  %6 = index(%2, [%5], {0}, 'index') : f32[toint(scalar(0))] strides [1]
  %7 = full({toint(scalar(0))}, tonum(toint(scalar(0))), float32, 'cpu') : f32[toint(scalar(0))] strides [1]
  %8 = div(%6, %7, None) : f32[toint(scalar(0))] strides [1]
  %9 = sum(%6, {0}, true, None) : f32[1] strides [1]
  copy_(%1, %9)
  return %8, %4
}
)";

Tensor vector_of(const std::vector<float>& elements) {
  const Tensor t = make_tensor({int64_t(elements.size())}, DType::kFloat32);
  std::copy(elements.begin(), elements.end(), t->data_as<float>());
  return t;
}

}  // namespace

TEST_CASE("a size that elements decide is read within a run", "[runtime]") {
  REQUIRE(print(*parse_graph(kText)) == kText);
  const Compiled compiled = compile_graph(parse_graph(kText), {});
  for (const std::vector<float>& x : {std::vector<float>{1, -1, 2, 3}, {5, 6}, std::vector<float>(40, 1)}) {
    const Tensor total = vector_of({7}), again = vector_of({7});
    const std::vector<Value> got = compiled.run({vector_of(x), total}, {0});
    const std::vector<Value> want = interpret(*parse_graph(kText), {vector_of(x), again}, {0});
    const auto n = std::count_if(x.begin(), x.end(), [](float v) { return v > 0; });
    REQUIRE(got.size() == 2);
    for (size_t i = 0; i < 2; i++) {
      const Tensor &a = got[i].tensor(), &b = want[i].tensor();
      REQUIRE(a->sizes[0].hint == n);
      REQUIRE(to_string(a->strides) == to_string(b->strides));
      CHECK(std::equal(static_cast<char*>(a->data()), static_cast<char*>(a->data()) + n * int64_t(size_of(a->dtype)),
                       static_cast<char*>(b->data())));
    }
    CHECK(total->data_as<float>()[0] == again->data_as<float>()[0]);
  }
}

TEST_CASE("an artifact keeps what tells sizes", "[runtime]") {
  const Compiled compiled = compile_graph(parse_graph(kText), {});
  const Executable& made = *compiled.executable;
  const std::string bytes = write_artifact(made.plan(), made.codes(), {}, "a machine");
  const auto linked = Executable::link(read_artifact(bytes, "a machine"), {});
  const Tensor total = vector_of({7});
  CHECK(linked->run({vector_of({1, -1, 2, 3}), total}, {0})[0].tensor()->sizes[0].hint == 3);
  CHECK(total->data_as<float>()[0] == 12);
  CHECK_THROWS_AS(linked->run({vector_of({1, -1, -2, -3}), total}, {0}), UnbackedMiss);
}

TEST_CASE("a size that the graph was not made for changes nothing", "[runtime]") {
  const Compiled compiled = compile_graph(parse_graph(kText), {});
  for (const std::vector<float>& x : {std::vector<float>{-1, -2}, {-1, 1, -2}}) {
    const Tensor total = vector_of({7});
    CHECK_THROWS_AS(compiled.run({vector_of(x), total}, {0}), UnbackedMiss);
    CHECK_THROWS_AS(interpret(*parse_graph(kText), {vector_of(x), total}, {0}), UnbackedMiss);
    CHECK(total->data_as<float>()[0] == 7);
  }
}

namespace {

const char* const kNumberText = R"(graph {
  scalar 'the number that item() read' = 2.0
  %0 = input 'x' : f32[4] strides [1]
  %1 = input 'place' : f64[] strides []
  guard whole(scalar(0)) true
  guard same(scalar(0), tonum(toint(scalar(0)))) true
  guard lt(toint(scalar(0)), 0) false
  guard le(toint(scalar(0)), 3) true
  %2 = add(%1, 1.0, 1.0) : f64[] strides []
  %3 = tell_number(%2, scalar(0)) : f64[] strides []
  %4 = select(%0, 0, toint(scalar(0))) : f32[] strides []
  %5 = mul(%4, 2.0) : f32[] strides []
  %6 = add(%0, 1.0, 1.0) : f32[4] strides [1]
  copy_(%0, %6)
  return %5
}
)";

Tensor place_of(double n) {
  const Tensor t = make_tensor({}, DType::kFloat64);
  *t->data_as<double>() = n;
  return t;
}

}  // namespace

TEST_CASE("an element is told as a number of the graph", "[runtime]") {
  REQUIRE(print(*parse_graph(kNumberText)) == kNumberText);
  const Compiled compiled = compile_graph(parse_graph(kNumberText), {});
  const Executable& made = *compiled.executable;
  const std::string bytes = write_artifact(made.plan(), made.codes(), {}, "a machine");
  const auto linked = Executable::link(read_artifact(bytes, "a machine"), {});
  for (const double place : {-1.0, 0.0, 1.0, 2.0}) {
    const auto want = float(20 * (place + 2));
    const Tensor x = vector_of({10, 20, 30, 40});
    CHECK(*compiled.run({x, place_of(place)}, {0})[0].tensor()->data_as<float>() == want);
    CHECK(x->data_as<float>()[0] == 11);
    CHECK(*linked->run({vector_of({10, 20, 30, 40}), place_of(place)}, {0})[0].tensor()->data_as<float>() == want);
    const auto read = interpret(*parse_graph(kNumberText), {vector_of({10, 20, 30, 40}), place_of(place)}, {0});
    CHECK(*read[0].tensor()->data_as<float>() == want);
  }
}

TEST_CASE("a number that the graph was not made for changes nothing", "[runtime]") {
  const Compiled compiled = compile_graph(parse_graph(kNumberText), {});
  for (const double place : {-2.0, 3.0, 0.5, 1e300, double(NAN), double(INFINITY)}) {
    const Tensor x = vector_of({10, 20, 30, 40});
    CHECK_THROWS_AS(compiled.run({x, place_of(place)}, {0}), UnbackedMiss);
    CHECK_THROWS_AS(interpret(*parse_graph(kNumberText), {x, place_of(place)}, {0}), UnbackedMiss);
    CHECK(x->data_as<float>()[0] == 10);
  }
}

TEST_CASE("graph text with a size that no number is made of is refused", "[graph]") {
  CHECK_THROWS(
      parse_graph("graph {\n  %0 = input 'x' : f32[3] strides [1]\n"
                  "  %1 = nonzero(%0) : i64[2, 1] strides [1, 2]\n  return %1\n}\n"));
}

}  // namespace lutra
