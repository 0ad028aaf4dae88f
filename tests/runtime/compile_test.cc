// Tests the whole compilation: stages in order, constants, backends.
#include <catch2/catch.hpp>

#include "jit/compile.h"
#include "tests/eager/values.h"

namespace lutra {
namespace {

// relu(x * constant + s), and a value that nothing needs.
std::unique_ptr<Graph> small_graph(const Tensor& constant) {
  auto g = std::make_unique<Graph>();
  SymScope symbols(g->env.get());
  GradModeScope no_grad(false);
  GraphRecorder recorder(*g);
  const SymInt unused = SymInt::of_expr(*g->env, g->env->leaf(SymOp::kSize, 0, 0, 7));
  const Tensor first = g->add_input("first", {unused}, {1}, DType::kFloat32);
  ModeScope mode(&recorder);
  const Tensor one = op1(OpId::add, {first, constant});  // the constant becomes input 1
  const SymInt n = SymInt::of_expr(*g->env, g->env->leaf(SymOp::kSize, 2, 0, 5));
  const Tensor x = g->add_input("x", {n}, {1}, DType::kFloat32);
  const Scalar s = g->add_scalar("s", 0.5);
  op1(OpId::exp, {one});
  g->outputs = {op1(OpId::relu, {op1(OpId::add, {op1(OpId::mul, {x, constant}), s})}), Value(), s};
  return g;
}

}  // namespace

TEST_CASE("a graph goes through the stages in order", "[runtime][compile]") {
  const Tensor constant = tensor_of({}, DType::kFloat32, 3);
  std::vector<std::string> stages;
  CompileOptions options;
  options.wanted = [](const char* stage) { return std::string(stage) != "cse"; };
  options.log = [&](const char* stage, const std::string& text) {
    CHECK_FALSE(text.empty());
    stages.push_back(stage);
  };
  options.disabled_passes = {"dce"};
  const Compiled c = compile_graph(small_graph(constant), options);
  CHECK(stages == std::vector<std::string>{"graph", "functionalise", "unroll", "join_parts", "decompose", "sink_views",
                                           "recompute", "channels_last", "pad_rows", "lower", "schedule", "fusion",
                                           "loop", "asm", "perf"});
  CHECK(c.kernels == 1);  // the schedule leaves out what nothing needs
  CHECK(c.compile_ms > 0);
  CHECK(std::string(c.stages.back().name) == "codegen");
}

TEST_CASE("runs leave constants out of their inputs", "[runtime][compile]") {
  const Tensor constant = tensor_of({}, DType::kFloat32, 3);
  for (const char* backend : {"native", "aot_eager", "eager"}) {
    INFO(backend);
    CompileOptions options;
    options.backend = backend;
    const Compiled c = compile_graph(small_graph(constant), options);
    const Tensor x = tensor_of({9}, DType::kFloat32, 1);
    const auto out = c.run({tensor_of({3}, DType::kFloat32, 2), x}, {0.25});
    REQUIRE(out.size() == 3);
    const Tensor y = out[0].as<Tensor>();
    REQUIRE(count(y) == 9);
    for (int i = 0; i < 9; i++) {
      const float v = float(get(x, i)) * float(get(constant, 0)) + 0.25f;
      CHECK(get(y, i) == (v > 0 ? v : 0));
    }
    CHECK(out[1].is_none());
    CHECK(out[2].as<Scalar>().d == 0.25);
  }
  CompileOptions unknown;
  unknown.backend = "fast";
  CHECK_THROWS_WITH(compile_graph(small_graph(constant), unknown), Catch::Contains("unknown backend 'fast'"));
}

}  // namespace lutra
