// Tests the text of effects: print, parse, print. Inconsistent text is an error with its line, and places that do not
// exist are found.
#include <random>

#include <catch2/catch.hpp>

#include "ops/core/error.h"
#include "tests/seeds.h"
#include "vm/capture/segment/effects.h"

namespace lutra {
namespace {

const char kAll[] = R"(effects {
  table 0 array 3 hash 1 metatable r 4 {
    const 1 = out 0
    const 2 = table 1
  }
  table 1 array 0 hash 0 {}
  closure 0 of r 2 child 1 {
    = out 1
    of r 1 3
  }
  closure 1 of r 2 child 1 4 {
    of closure 0 1
    = closure 1
  }
  closure 2 of const 2 child 0 {}
  text 0 by const 2 (r 1, sym 0)
  text 1 by nil (text 0, item 2, false)
  return out 1, closure 2, nil, true, false, sym 0, resume 0, in 1, item 2, text 1
  set r 3[const 4] = table 0
  setmetatable r 3, nil
  upvalue r 2 5 = sym 1
  slot -7 = out 1
  slot 3 = nil
  grad in 0 = out 2
  grad in 1 = nil
  grad out 1 = in 0
  requires_grad in 2 = true
  requires_grad in 1 = true then false
  writes in 2
  leaf out 1
  hidden out 3
  retain out 2
  hook out 0 = r 1
  hook out 2 = closure 0
  seed sym 1
  draw r 1 3
  view out 4 of in 2 recorded by transpose(0, -1) by view({2, 3}) by select(1, 2)
  view out 5 of out 4 recorded complex by view_as_real()
  view out 6 of nil
  view out 7 of in 0 recorded symbolic
  history in 2 = out 8
  refuse out 3 'it\'s gone' in 0 in 2 out 1
  refuse out 4 'it was written' in 1 modified out 8 by 'mul' writes 2
  grad_mode false
  autocast 40
}
)";
const EffectPlaces kPlaces = {3, 9, 5, 5, 2, 1};

std::string error_of(const std::string& text) {
  try {
    parse_effects(text);
    return "accepted";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("effects print, parse and print to the same text", "[capture]") {
  const Effects e = parse_effects(kAll);
  CHECK(print(e) == kAll);
  CHECK(verify(e, kPlaces) == "");
  CHECK(print(parse_effects(print(Effects{}))) == print(Effects{}));
}

TEST_CASE("text of effects that lies is an error with its line", "[capture]") {
  const char* rows[][2] = {
      {"", "line 1: expected 'effects'"},
      {"effects {", "line 1: the effects have no end"},
      {"effects {\n}\nmore", "line 3: text after the end"},
      {"effects {\n  vanish in 0\n}", "line 2: unknown effect 'vanish'"},
      {"effects {\n  return maybe 0\n}", "line 2: unknown value 'maybe'"},
      {"effects {\n  table 1 array 0 hash 0 {}\n}", "line 2: tables are numbered in order"},
      {"effects {\n  text 1 by nil ()\n}", "line 2: texts are numbered in order"},
      {"effects {\n  text 0 by nil (nil nil)\n}", "line 2: expected ','"},
      {"effects {\n  return out -1\n}", "line 2: number out of range: -1"},
      {"effects {\n  return out 99999999999\n}", "line 2: number out of range: 99999999999"},
      {"effects {\n\n  view out 0 of in 0 by relu()\n}", "line 3: 'relu' makes no view"},
      {"effects {\n  view out 0 of in 0 by transpose(0, 1, 2)\n}", "line 2: transpose takes fewer arguments"},
      {"effects {\n  grad_mode perhaps\n}", "line 2: expected 'false'"},
  };
  for (const auto& [text, message] : rows) CHECK_THAT(error_of(text), Catch::Contains(message));
}

TEST_CASE("effects that name no place are found", "[capture]") {
  for (const char* what : {"return out 9",
                           "return item 9",
                           "retain out 9",
                           "hook out 9 = r 1",
                           "hook out 0 = r 5",
                           "draw r 5 1",
                           "seed r 5",
                           "closure 0 of r 5 child 1 {}",
                           "closure 0 of r 0 child {}",
                           "return in 3",
                           "return r 5",
                           "return const 5",
                           "return sym 2",
                           "return table 0",
                           "return text 0",
                           "text 0 by nil (text 0)",
                           "text 0 by const 5 ()",
                           "return resume 1",
                           "set r 0[const 9] = nil",
                           "grad in 3 = nil",
                           "grad out 9 = in 0",
                           "leaf out 9",
                           "writes in 3",
                           "hidden out 9",
                           "view out 9 of nil",
                           "view out 0 of in 4",
                           "history in 0 = out 9",
                           "refuse out 0 'w' in 7",
                           "refuse out 0 'w' out 9",
                           "refuse out 0 'w' modified out 9 by 'mul' writes 1",
                           "upvalue r 9 0 = nil",
                           "slot 0 = out 9",
                           "requires_grad in 3 = true",
                           "setmetatable r 0, table 2"}) {
    INFO(what);
    CHECK_THAT(verify(parse_effects(std::string("effects {\n  ") + what + "\n}\n"), kPlaces),
               Catch::StartsWith("there is no "));
  }
}

TEST_CASE("a seed is of what there is before the run", "[capture]") {
  const char* text = "effects {\n  seed out 1\n}\n";
  CHECK(verify(parse_effects(text), kPlaces) == "a seed that the run gives");
}

TEST_CASE("damaged text of effects is refused with its line, or is text all the same", "[capture]") {
  const auto [first, last] = seeds(3000);
  const std::string all = kAll;
  for (uint64_t seed = first; seed <= last; seed++) {
    std::mt19937 rng{uint32_t(seed)};
    std::string t = all;
    for (uint32_t n = 1 + rng() % 3; n-- > 0 && !t.empty();) {
      const size_t at = rng() % t.size();
      switch (rng() % 4) {
        case 0: t.erase(at, 1 + rng() % 6); break;
        case 1: t.insert(at, 1, "(){}[]=,'-0139rv \n\xff"[rng() % 19]); break;
        case 2: t.insert(at, all, rng() % all.size(), rng() % 40); break;
        default: t.resize(at + 1);
      }
    }
    CAPTURE(seed);
    std::string wrong;
    try {
      const Effects e = parse_effects(t);
      verify(e, kPlaces);
      const std::string once = print(e);
      if (print(parse_effects(once)) != once) wrong = "printed otherwise: " + once;
    } catch (const Error& e) {
      if (!std::string(e.what()).starts_with("effects text, line ")) wrong = e.what();
    }
    if (!wrong.empty()) CHECK(wrong == "");
  }
}

}  // namespace lutra
