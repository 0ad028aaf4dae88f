// Tests the decisions of fusion on graph texts. fusion.graphs has graphs, each under a line "# what it shows".
// fusion.out is the golden text of the scheduler's log for each, on a given CPU and a given GPU. In a graph whose title
// begins with "not:" the CPU's scheduler refuses a fusion.
#include <sstream>

#include "jit/schedule/schedule.h"
#include "tests/golden.h"
#include "tests/schedule/graphs.h"

namespace lutra {
namespace {

std::string decisions_of(const Graph& graph) {
  std::string told;
  schedule(graph, {.decisions = &told});
  return told;
}

std::string told_of(const std::string& title, const std::string& text) {
  INFO(title);
  const auto graph = lowered_graph(*parse_graph(text));
  const std::string cpu = decisions_of(*graph);
  CHECK((cpu.find("refused") != std::string::npos) == (title.rfind("# not: ", 0) == 0));
  move_to(*graph, {DeviceType::kCUDA, 0});
  return title + "\ncpu\n" + cpu + "cuda\n" + decisions_of(*graph);
}

}  // namespace

TEST_CASE("what fusion weighs is golden", "[schedule]") {
  std::istringstream in(read_text("tests/schedule/fusion.graphs"));
  std::string title, text, golden;
  size_t count = 0;
  const auto end = [&] {
    if (!text.empty()) golden += (golden.empty() ? "" : "\n") + told_of(title, text), count++;
    text.clear();
  };
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("# ", 0) == 0) {
      end();
      title = line;
    } else {
      text += line + "\n";
    }
  }
  end();
  CHECK(count >= 12);
  check_golden("schedule/fusion.out", golden);
}

}  // namespace lutra
