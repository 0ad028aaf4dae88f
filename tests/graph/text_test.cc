// Tests graph text: each .graph file here is equal to the print of its parse. Broken text is an error, never a crash.
#include <filesystem>

#include "jit/graph/graph.h"
#include "tests/golden.h"

namespace lutra {

TEST_CASE("graphs print, parse and print to the same text", "[graph]") {
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/graph"))) {
    if (entry.path().extension() != ".graph") continue;
    INFO(entry.path());
    std::string text = read_text("tests/graph/" + entry.path().filename().string());
    auto graph = parse_graph(text);
    CHECK(verify(*graph) == "");
    CHECK(print(*graph) == text);
  }
}

TEST_CASE("sums and products of sizes read as they were written, whatever was made first", "[graph]") {
  Graph graph;
  SymEnv& env = *graph.env;
  SymScope scope(&env);
  const auto leaf = [&](int32_t dim) { return SymInt::of_expr(env, env.leaf(SymOp::kSize, 0, dim, 4)); };
  const SymInt b = leaf(1), a = leaf(0), late = b + 1, early = a + 1, c = leaf(2);
  const SymInt deep = floor_div(early * late + c, 2);
  graph.add_input("x", {a, b, c}, {b * c, c, 1}, DType::kFloat32);
  graph.add_input("y", {early + c, late + c, late * early * b, deep + late, c + deep}, {1, 1, 1, 1, 1},
                  DType::kFloat32);
  const std::string text = print(graph);
  CHECK(print(*parse_graph(text)) == text);
}

TEST_CASE("an equality of sizes reads as it was written, whatever was made first", "[graph]") {
  Graph graph;
  SymEnv& env = *graph.env;
  SymScope scope(&env);
  const auto leaf = [&](int32_t dim) { return SymInt::of_expr(env, env.leaf(SymOp::kSize, 0, dim, dim + 3)); };
  const SymInt a = leaf(0), b = leaf(1), product = a * b, sum = a + 9;
  graph.add_input("x", {a, b, sum, product}, {1, 1, 1, 1}, DType::kFloat32);
  CHECK(env.ask(SymCmp::kEq, product.expr, sum.expr));
  const std::string text = print(graph);
  CHECK(print(*parse_graph(text)) == text);
}

TEST_CASE("what sizes may be is in the text: a graph that was read asks no more of them", "[graph]") {
  Graph graph;
  SymEnv& env = *graph.env;
  SymScope scope(&env);
  env.assume_sizes({2, 1000});
  graph.add_input("x", {SymInt::of_expr(env, env.leaf(SymOp::kSize, 0, 0, 7))}, {1}, DType::kFloat32);
  const std::string text = print(graph);
  CHECK_THAT(text, Catch::Contains("sym size(0, 0) = 7 in 2 to 1000\n"));
  const auto read = parse_graph(text);
  CHECK(print(*read) == text);
  CHECK(print(*parse_graph(print(*read))) == text);
  SymEnv& other = *read->env;
  CHECK_FALSE(other.ask(SymCmp::kLt, read->inputs[0].value->sizes[0].expr, other.constant(2)));
  CHECK(other.guards().empty());
}

TEST_CASE("broken graph text is refused with its line", "[graph]") {
  struct Row {
    const char* text;
    const char* message;
  } rows[] = {
      {"graph {\n", "the graph has no end"},
      {"graph {\n  %0 = relu(%7) : f32[2] strides [1]\n  return\n}\n", "line 2: %7 is not defined"},
      {"graph {\n  %0 = input 'x' : f32[2] strides [1]\n  %1 = relu(%0) : f32[3] strides [1]\n  return\n}\n",
       "line 3: the type of %1 is f32[2]"},
      {"graph {\n  %0 = input 'x' : f33[2] strides [1]\n", "line 2: unknown type"},
      {"graph {\n  %0 = frobnicate()\n", "unknown op 'frobnicate'"},
      {"graph {\n  return 1x\n}\n", "expected a number"},
      {"graph {\n  return scalar(3)\n}\n", "scalar input out of range"},
      {"graph {\n  %0 = input 'p' : b8[] strides []\n  %1 = cond(%0, graph {\n  return 1\n  }, graph {\n  return\n  }, "
       "[], "
       "[])\n",
       "line 5: a function gives tensors"},
      {"graph {\n  %0 = input 'p' : b8[] strides []\n  %1 = cond(%0, graph {\n    %0 = input 'x' : f32[] strides []\n"
       "    return %0\n  }, graph {\n",
       "a function's results have memory of their own"},
      {"graph {\n  %0 = input 'p' : b8[] strides []\n  %1 = cond(%0, 3, 4, [], [])\n", "expected 'graph'"},
      {"graph {\n  %0 = input 'p' : b8[2] strides [1]\n  %1 = cond(%0, graph {\n    return\n  }, graph {\n    return\n "
       " }"
       ", [], [])\n",
       "line 3: cond: pred must have one element, has 2"},
      {"graph {\n  %0 = input 'p' : b8[] strides []\n  %1 = cond(%0, graph {\n    sym size(0, 0) = 3\n",
       "line 4: a function has its caller's symbols"},
      {"graph {\n  %0 = input 'p' : b8[] strides []\n  %1 = cond(%0, graph {\n    guard lt(1, 2) true\n",
       "line 4: a function has its caller's guards"},
      {"graph {\n  %0 = input 'x' : f32[2] strides [1]\n  %1 = relu(%0, 3)\n", "line 3: expected ')'"},
      {"graph {\n  %0 = input 'x' : f32[2] strides [1]\n  %1 = sum(%0, %0)\n", "line 3: sum: argument 'dim' must be"},
      {"graph {\n  %0 = input 'x' : f32[2] strides [1]\n  %0 = input 'y' : f32[] strides []\n",
       "line 3: %0 is defined twice"},
      {"graph {\n  %0 = input 'x' : f32[2] strides []\n", "line 2: as many strides as sizes"},
      {"graph {\n  %0 = input 'x' : f32[-2] strides [1]\n", "line 2: a negative size"},
      {"graph {\n  %0 = input 'x' : f32[2] strides [-1]\n", "line 2: a negative stride"},
      {"graph {\n  %0 = input 'x' : f32[4611686018427387904, 4] strides [0, 0]\n", "line 2: a tensor with too many"},
      {"graph {\n  %0 = constant 'x' : f32[4611686018427387] strides [1]\n", "line 2: "},
      {"graph {\n  %0 = input 'x' : f32[2] strides [1] on 'abacus'\n", "line 2: device 'abacus' is unknown"},
      {"graph {\n  %0 = input 'x' : f32[2] strides [1] on 'cuda:0'\n  %1 = input 'y' : f32[2] strides [1] aliases "
       "%0\n",
       "line 3: memory on two devices"},
      {"graph {\n  sym size(0, 1) = 3\n  %0 = input 'x' : f32[2] strides [1]\n  return\n}\n",
       "line 5: there is no size(0, 1)"},
      {"graph {\n  sym size(0, 0) = 1 in 2 to 9\n", "line 2: a size outside of its range"},
      {"graph {\n  sym size(4294967296, 0) = 3\n", "line 2: number out of range: 4294967296"},
      {"graph {\n  %0 = input 'x' : f32[2] strides [1]\n  %1 = relu(%0) : f32[2] strides [1] of nothing\n",
       "line 3: unknown op 'nothing'"},
      {"graph {\n  %0 = input 'x' : f32[2] strides [1]\n  %1 = relu(%0) : f32[2] strides [1] rng 0\n",
       "line 3: relu draws no random numbers"},
      {"graph {\n  %0 = rand({2}, None, None) : f32[2] strides [1] rng 3\n  return %0 rng 2\n}\n",
       "line 3: more random numbers are drawn"},
      {"graph {\n  return\n}\ngraph {", "line 4: text after the end"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    CHECK_THROWS_WITH(parse_graph(row.text), Catch::Contains(row.message));
  }
}

TEST_CASE("cutting graph text anywhere never crashes the parser", "[graph]") {
  std::string text = read_text("tests/graph/mlp.graph");
  int parsed = 0;
  for (size_t n = 0; n + 2 < text.size(); n++) {
    try {
      parse_graph(text.substr(0, n));
      parsed++;
    } catch (const Error&) {
    }
  }
  CHECK(parsed == 0);
}

TEST_CASE("the graph verifier finds broken invariants", "[graph]") {
  auto graph = parse_graph(read_text("tests/graph/mlp.graph"));
  std::swap(graph->nodes[0], graph->nodes[1]);
  CHECK_THAT(verify(*graph), Catch::Contains("no earlier node defines"));
  graph = parse_graph(read_text("tests/graph/mlp.graph"));
  graph->nodes[0]->results.clear();
  CHECK_THAT(verify(*graph), Catch::Contains("wrong number of results"));
  graph = parse_graph(read_text("tests/graph/mlp.graph"));
  graph->rng_calls = 0;
  CHECK_THAT(verify(*graph), Catch::Contains("call index that the graph does not consume"));
}

}  // namespace lutra
