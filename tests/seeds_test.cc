// Tests the rounds and seeds that LUTRA_TEST_SCALE and LUTRA_TEST_SEED select.
#include "tests/seeds.h"

#include <string>
#include <tuple>

#include <catch2/catch.hpp>

using namespace lutra;

namespace {

// A variable of the environment while it lives; null unsets it.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* was = std::getenv(name)) was_ = was, had_ = true;
    set(value);
  }
  ~Variable() { set(had_ ? was_.c_str() : nullptr); }

 private:
  void set(const char* value) { value ? setenv(name_, value, 1) : unsetenv(name_); }
  const char* name_;
  std::string was_;
  bool had_ = false;
};

uint64_t rounds_at(const char* scale) {
  const Variable variable("LUTRA_TEST_SCALE", scale);
  return rounds(2000);
}

}  // namespace

TEST_CASE("a scale makes a test longer, or shorter than it is") {
  CHECK(rounds_at(nullptr) == 2000);
  CHECK(rounds_at("5") == 10000);
  CHECK(rounds_at("0.2") == 400);
  CHECK(rounds_at("0.0001") == 1);
}

TEST_CASE("a scale or seed that is none is an error") {
  for (const char* text : {"abc", "0", "-1", "2x", ""}) CHECK_THROWS_AS(rounds_at(text), std::runtime_error);
  for (const char* text : {"2500-2001", "x", "1-", "1-2y"}) {
    const Variable seed("LUTRA_TEST_SEED", text);
    CHECK_THROWS_AS(seeds(40), std::runtime_error);
  }
}

TEST_CASE("seeds are one, a range, or as many as there are rounds") {
  const Variable scale("LUTRA_TEST_SCALE", "0.5");
  for (auto [named, first, last] :
       {std::tuple{"17", 17, 17}, {"2001-2500", 2001, 2500}, {(const char*)nullptr, 1, 20}}) {
    const Variable seed("LUTRA_TEST_SEED", named);
    const Seeds got = seeds(40);
    CHECK(got.first == uint64_t(first));
    CHECK(got.last == uint64_t(last));
  }
}
