// Tests damaged and invented artifacts, as bytes and as text: each is refused with a message, or is a valid artifact.
#include <random>

#include <catch2/catch.hpp>

#include "jit/artifact/artifact.h"
#include "jit/compile.h"
#include "jit/runtime/config.h"
#include "jit/schedule/schedule.h"
#include "tests/golden.h"
#include "tests/schedule/graphs.h"
#include "tests/seeds.h"

namespace lutra {
namespace {

const std::string kMachine = "a machine";

struct Form {
  std::string bytes, text;
};

// Returns artifacts of graphs with symbols, writes, library calls, constants and functions.
const std::vector<Form>& forms() {
  static const std::vector<Form> all = [] {
    std::vector<Form> made;
    const auto add = [&](const Plan& plan, const Codes& codes, const std::vector<Constant>& constants) {
      made.push_back({write_artifact(plan, codes, constants, kMachine), print_artifact(plan, constants)});
    };
    for (uint32_t seed = 1; seed <= 20; seed++) {
      const auto graph = lowered_if_allowed(*random_graph(seed));
      if (!graph) continue;
      const auto e = Executable::build(schedule(*graph), constants_of(*graph));
      add(e->plan(), no_codes(e->plan()), describe_constants(e->constants(), {}));
      if (seed <= 3) add(e->plan(), e->codes(), describe_constants(e->constants(), constants_of(*graph)));
    }
    for (const char* const file : {"tests/graph/functions.graph", "tests/graph/symbolic_functions.graph"}) {
      const Compiled functions = compile_graph(parse_graph(read_text(file)));
      add(functions.executable->plan(), no_codes(functions.executable->plan()), {});
    }
    const Plan steps = schedule(*lowered_graph(*parse_graph(read_text("tests/schedule/several_steps.graph"))));
    add(steps, no_codes(steps), {});
    return made;
  }();
  return all;
}

// Bytes that came from elsewhere, or are the ends of what a number may be.
std::string damaged(std::string s, std::mt19937& rng, std::string Form::*form) {
  static const std::string ends[] = {std::string(1, '\0'),
                                     "\x7f",
                                     "\xff\x01",
                                     "\xff\xff\xff\xff\x0f",
                                     "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                                     "9223372036854775807",
                                     "-1",
                                     "1e999",
                                     "null",
                                     "[]",
                                     "{}",
                                     "\"\"",
                                     "\"none\"",
                                     "[[",
                                     "true"};
  for (uint32_t n = 1 + rng() % 3; n-- > 0 && !s.empty();) {
    const size_t at = rng() % s.size();
    const std::string& other = rng() % 2 ? s : forms()[rng() % forms().size()].*form;
    switch (rng() % 6) {
      case 0: s[at] = char(s[at] ^ (1 << rng() % 8)); break;
      case 1: s.erase(at, 1 + rng() % 9); break;
      case 2: s.insert(at, ends[rng() % std::size(ends)]); break;
      case 3: s.replace(at, 1, ends[rng() % std::size(ends)]); break;
      case 4: s.insert(at, other, rng() % other.size(), rng() % 200); break;
      default: s.resize(at);
    }
  }
  return s;
}

template <class Read>
std::string verdict(const Read& read, bool& accepted) {
  try {
    const Artifact a = read();
    accepted = true;
    const std::string bytes = write_artifact(a.plan, a.codes, a.constants, kMachine);
    const Artifact again = read_artifact(bytes, kMachine);
    if (write_artifact(again.plan, again.codes, again.constants, kMachine) != bytes) return "written otherwise";
    const std::string text = print_artifact(a.plan, a.constants);
    const Artifact parsed = parse_artifact(text);
    if (print_artifact(parsed.plan, parsed.constants) != text) return "printed otherwise";
    print(a.plan);
    return "";
  } catch (const Error& e) {
    accepted = accepted && e.kind == ErrorKind::kUser;
    return std::string(e.what()).starts_with("artifact: ") && !accepted ? "" : e.what();
  } catch (const std::exception& e) {
    return e.what();
  }
}

void damage(std::string Form::*form, Artifact (*read)(const std::string&), int count) {
  const auto [first, last] = seeds(count);
  uint64_t all = 0, accepted = 0;
  for (uint64_t seed = first; seed <= last; seed++, all++) {
    std::mt19937 rng{uint32_t(seed)};
    const std::string s = damaged(forms()[rng() % forms().size()].*form, rng, form);
    bool is = false;
    const std::string wrong = verdict([&] { return read(s); }, is);
    accepted += is;
    CAPTURE(seed);
    if (!wrong.empty()) CHECK(wrong == "");
  }
  CHECK(accepted < all / 2);
}

}  // namespace

TEST_CASE("damaged bytes of artifacts are refused", "[runtime]") {
  damage(
      &Form::bytes, [](const std::string& s) { return read_artifact(s, kMachine); }, 6000);
}

TEST_CASE("damaged texts of artifacts are refused", "[runtime]") {
  damage(
      &Form::text, [](const std::string& s) { return parse_artifact(s); }, 1500);
}

}  // namespace lutra
