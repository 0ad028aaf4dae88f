// Each pass on graph texts: PASS_CASE.graph in, PASS_CASE.out the golden text of what comes out.
#include <filesystem>
#include <set>

#include "jit/passes/passes.h"
#include "tests/golden.h"

namespace lutra {

TEST_CASE("passes give their golden texts", "[passes]") {
  std::set<std::string> ran;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/passes"))) {
    if (entry.path().extension() != ".graph") continue;
    std::string stem = entry.path().stem();
    INFO(stem);
    for (size_t i = 0; i < kPassCount; i++) {
      if (stem.rfind(kPasses[i].name, 0)) continue;
      auto graph = parse_graph(read_text("tests/passes/" + stem + ".graph"));
      auto out = kPasses[i].run(*graph);
      CHECK(verify(*out) == "");
      std::string text = print(*out);
      check_golden("passes/" + stem + ".out", text);
      CHECK(print(*parse_graph(text)) == text);
      ran.insert(kPasses[i].name);
    }
  }
  CHECK(ran.size() == kPassCount);
}

TEST_CASE("a write to one of two inputs that share memory is refused", "[passes]") {
  auto graph = parse_graph(
      "graph {\n  %0 = input 'x' : f32[4] strides [1]\n  %1 = input 'y' : f32[4] strides [1] aliases %0\n"
      "  mul_(%1, 2.0)\n  return %0\n}\n");
  CHECK_THROWS_WITH(functionalise(*graph), Catch::Contains("share memory"));
}

}  // namespace lutra
