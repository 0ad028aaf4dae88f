// Tests that the text of random graphs at each stage is read as it was written, and that damaged text is an error with
// its line.
#include <algorithm>
#include <filesystem>
#include <random>

#include <catch2/catch.hpp>

#include "jit/passes/passes.h"
#include "jit/schedule/schedule.h"
#include "ops/core/error.h"
#include "tests/golden.h"
#include "tests/schedule/graphs.h"
#include "tests/seeds.h"

namespace lutra {
namespace {

// Graph texts that tests read, with functions, symbols, writes and random numbers.
std::vector<std::string> golden_texts() {
  std::vector<std::string> texts;
  for (const char* folder : {"tests/graph", "tests/passes", "tests/schedule", "tests/lower", "tests/ops"}) {
    for (const auto& entry : std::filesystem::directory_iterator(source_path(folder))) {
      if (entry.path().extension() != ".graph") continue;
      texts.push_back(read_text(std::string(folder) + "/" + entry.path().filename().string()));
    }
  }
  std::sort(texts.begin(), texts.end());  // folders have no order
  return texts;
}

// The graph after each stage, "" where the last stage refuses it.
std::vector<std::string> stages_of(GraphPtr graph, bool through_text) {
  std::vector<std::string> texts{print(*graph)};
  for (size_t i = 0; i < kPassCount; i++) {
    if (through_text) graph = parse_graph(texts.back());
    try {
      graph = kPasses[i].run(*graph);
    } catch (const Error& e) {  // an argument that only the decomposition refuses
      if (e.kind != ErrorKind::kUser) throw;
      texts.push_back("");
      return texts;
    }
    texts.push_back(print(*graph));
  }
  if (through_text) graph = parse_graph(texts.back());
  texts.push_back(print(schedule(*graph)));
  return texts;
}

std::string damaged(std::string t, std::mt19937& rng, const std::vector<std::string>& all) {
  static constexpr const char* kWords[] = {"-1",         "9223372036854775807",
                                           "4294967296", "None",
                                           "f64",        "b8",
                                           "true",       "%0",
                                           "{}",         "[]",
                                           "size(0, 0)", "graph {",
                                           "relu",       "copy_",
                                           "mul_",       "c64",
                                           "scan",       "'cuda'",
                                           "$0",         "return",
                                           "inf",        "as_strided",
                                           "normal"};
  for (uint32_t n = 1 + rng() % 3; n-- > 0 && !t.empty();) {
    const size_t at = rng() % t.size();
    const std::string& other = rng() % 2 ? t : all[rng() % all.size()];
    switch (rng() % 6) {
      case 0: t.erase(at, 1 + rng() % 5); break;
      case 1: t.insert(at, 1, "%(){}[]iasx*+:;,.$-0189' \n\xff"[rng() % 28]); break;
      case 2: t.insert(at, other, rng() % other.size(), rng() % 40); break;
      case 3: t.resize(at + 1); break;
      case 4: {  // another number or name
        size_t end = at;
        while (end < t.size() && isalnum(static_cast<unsigned char>(t[end]))) end++;
        size_t begin = at;
        while (begin > 0 && isalnum(static_cast<unsigned char>(t[begin - 1]))) begin--;
        t.replace(begin, end - begin, kWords[rng() % std::size(kWords)]);
        break;
      }
      default: {  // a line somewhere else
        const size_t begin = t.rfind('\n', at) + 1, end = t.find('\n', begin);
        const std::string line = t.substr(begin, end == std::string::npos ? end : end - begin + 1);
        const size_t to = t.find('\n', rng() % t.size());
        t.insert(to == std::string::npos ? t.size() : to + 1, line);
      }
    }
  }
  return t;
}

}  // namespace

TEST_CASE("random graphs: text of each stage is read as it was written", "[graph]") {
  const auto [first, last] = seeds(150);
  uint64_t compared = 0;
  for (uint64_t seed = first; seed <= last; seed++) {
    CAPTURE(seed);
    const auto want = stages_of(random_graph(uint32_t(seed)), false);
    const auto got = stages_of(random_graph(uint32_t(seed)), true);
    if (got != want) {
      for (size_t i = 0; i < std::min(got.size(), want.size()); i++) CHECK(got[i] == want[i]);
      CHECK(got.size() == want.size());
    }
    compared += want.size();
  }
  CHECK(compared > 2 * (last - first + 1));
}

TEST_CASE("the graph parser survives damage", "[graph]") {
  std::vector<std::string> texts = golden_texts();
  REQUIRE(texts.size() > 10);
  for (uint32_t seed = 1; seed <= 20; seed++) texts.push_back(print(*random_graph(seed)));
  const auto [first, last] = seeds(3000);
  uint64_t accepted = 0;
  for (uint64_t seed = first; seed <= last; seed++) {
    std::mt19937 rng{uint32_t(seed)};
    const std::string t = damaged(texts[rng() % texts.size()], rng, texts);
    std::string wrong;
    try {
      const auto graph = parse_graph(t);
      accepted++;
      wrong = verify(*graph);
      const std::string once = print(*graph);
      if (wrong.empty() && print(*parse_graph(once)) != once) wrong = "printed otherwise: " + once;
    } catch (const std::exception& e) {
      if (!std::string(e.what()).starts_with("graph text, line ")) wrong = e.what();
    }
    if (wrong.empty()) continue;
    CAPTURE(seed);
    INFO(t);
    CHECK(wrong == "");
  }
  CHECK(accepted < (last - first + 1) / 2);
}

}  // namespace lutra
