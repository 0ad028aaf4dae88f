// Tests each pass on graph texts. PASS.graph has graphs, each under a line "# what it shows". PASS.out is the golden
// text of the results. A title that begins with "not:" marks a graph that the pass must leave unchanged.
#include <sstream>
#include <utility>

#include "jit/passes/passes.h"
#include "tests/golden.h"

namespace lutra {
namespace {

using Titled = std::pair<std::string, std::string>;

std::vector<Titled> graphs_of(const std::string& file) {
  std::vector<Titled> graphs;
  std::istringstream in(read_text("tests/passes/" + file));
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("# ", 0) == 0) {
      graphs.push_back({line, ""});
    } else if (!line.empty() && !graphs.empty()) {
      graphs.back().second += line + "\n";
    }
  }
  return graphs;
}

}  // namespace

TEST_CASE("passes give their golden texts", "[passes]") {
  for (size_t i = 0; i < kPassCount; i++) {
    const std::string pass = kPasses[i].name;
    const std::vector<Titled> graphs = graphs_of(pass + ".graph");
    INFO(pass);
    CHECK(graphs.size() >= 12);
    std::string golden;
    for (const auto& [title, text] : graphs) {
      INFO(title);
      const GraphPtr graph = parse_graph(text);
      CHECK(verify(*graph) == "");
      const GraphPtr out = kPasses[i].run(*graph);
      CHECK(verify(*out) == "");
      CHECK(verify_sharing(*graph, *out) == "");
      const std::string printed = print(*out);
      if (title.rfind("# not: ", 0) == 0) CHECK(printed == print(*graph));
      CHECK(print(*parse_graph(printed)) == printed);
      golden += (golden.empty() ? "" : "\n") + title + "\n" + printed;
    }
    check_golden("passes/" + pass + ".out", golden);
  }
}

TEST_CASE("a write to one of two inputs that share memory is refused", "[passes]") {
  auto graph = parse_graph(
      "graph {\n  %0 = input 'x' : f32[4] strides [1]\n  %1 = input 'y' : f32[4] strides [1] aliases %0\n"
      "  mul_(%1, 2.0)\n  return %0\n}\n");
  CHECK_THROWS_WITH(functionalise(*graph), Catch::Contains("share memory"));
}

}  // namespace lutra
