// Tests the portable assembler: each instruction on this machine's processor, with immediates and offsets of every
// size.
#include <cstring>
#include <functional>
#include <vector>

#include <catch2/catch.hpp>

#include "jit/codegen/assembler.h"

namespace lutra {
namespace {

using enum Reg;
using enum Condition;

// Runs a function of one argument whose body is `write`.
int64_t run(const void* argument, const std::function<void(Assembler&)>& write) {
  const auto a = make_assembler();
  a->enter();
  write(*a);
  a->leave();
  const PublishedCode code = a->finish();
  REQUIRE(code);
  return code.as<int64_t (*)(const void*)>()(argument);
}

bool holds(Condition when, int64_t a, int64_t b) {
  switch (when) {
    case kEqual: return a == b;
    case kNotEqual: return a != b;
    case kBelow: return uint64_t(a) < uint64_t(b);
    case kBelowEqual: return uint64_t(a) <= uint64_t(b);
    case kAbove: return uint64_t(a) > uint64_t(b);
    case kAboveEqual: return uint64_t(a) >= uint64_t(b);
    case kLessEqual: return a <= b;
  }
  return false;
}

int64_t add_three(int64_t a, int64_t b, int64_t c) { return a + 10 * b + 100 * c; }

const int64_t kNumbers[] = {0,         1,        -1,     2,         255,       4095,      4096,         -4095,
                            -4096,     65536,    -65537, INT32_MAX, INT32_MIN, 1ll << 47, -(1ll << 47), 0x123456789a,
                            INT64_MAX, INT64_MIN};
bool is_short(int64_t n) { return n == int32_t(n); }

}  // namespace

TEST_CASE("the assembler sets and adds numbers of every size", "[codegen]") {
  if (!make_assembler()) return;
  for (int64_t n : kNumbers) {
    CHECK(run(nullptr, [&](Assembler& a) { a.set(kT0, uint64_t(n)); }) == n);
    if (!is_short(n)) continue;
    CHECK(run(&n, [&](Assembler& a) {
            a.move(kT0, kArg0);
            a.add(kT0, int32_t(n));
          }) == int64_t(&n) + n);
  }
}

TEST_CASE("the assembler branches on each condition", "[codegen]") {
  if (!make_assembler()) return;
  for (Condition when : {kEqual, kNotEqual, kBelow, kBelowEqual, kAbove, kAboveEqual, kLessEqual}) {
    for (int64_t x : kNumbers) {
      for (int64_t y : kNumbers) {
        const auto told = [&](const std::function<void(Assembler&, Assembler::Label)>& branch) {
          return run(&x, [&](Assembler& a) {
            const auto yes = a.label(), end = a.label();
            a.load(kT1, {kArg0, 0});
            a.set(kT2, uint64_t(y));
            branch(a, yes);
            a.set(kT0, 0);
            a.jump(end);
            a.bind(yes);
            a.set(kT0, 1);
            a.bind(end);
          });
        };
        INFO(x << " " << y);
        const bool wanted = holds(when, x, y);
        CHECK(told([&](Assembler& a, auto yes) { a.branch(when, kT1, kT2, yes); }) == wanted);
        CHECK(told([&](Assembler& a, auto yes) { a.branch(when, Memory{kArg0, 0}, kT2, yes); }) == wanted);
        if (!is_short(y)) continue;
        CHECK(told([&](Assembler& a, auto yes) { a.branch(when, kT1, int32_t(y), yes); }) == wanted);
        CHECK(told([&](Assembler& a, auto yes) { a.branch(when, Memory{kArg0, 0}, int32_t(y), yes); }) == wanted);
      }
    }
  }
}

TEST_CASE("the assembler reads and writes memory near and far", "[codegen]") {
  if (!make_assembler()) return;
  std::vector<uint8_t> bytes(1 << 20);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(i * 37 + (i >> 8));
  for (int size : {1, 4, 8}) {
    for (int at : {0, 1, 8, 4095, 4096, 32760, 32768, 100001, -8, -4096, -100001}) {
      uint8_t* middle = bytes.data() + bytes.size() / 2;
      uint64_t wanted = 0;
      memcpy(&wanted, middle + at, size_t(size));
      INFO(size << " bytes at " << at);
      CHECK(run(middle, [&](Assembler& a) { a.load(kT0, {kArg0, at, uint8_t(size)}); }) == int64_t(wanted));
      const uint64_t written = 0x8899aabbccddeeffull;
      run(middle, [&](Assembler& a) {
        a.set(kT1, written);
        a.store({kArg0, at, uint8_t(size)}, kT1);
      });
      CHECK(memcmp(middle + at, &written, size_t(size)) == 0);
      CHECK(middle[at + size] ==
            uint8_t((bytes.size() / 2 + size_t(at + size)) * 37 + ((bytes.size() / 2 + size_t(at + size)) >> 8)));
      memcpy(middle + at, &wanted, size_t(size));
    }
  }
}

TEST_CASE("the assembler's arithmetic, and what a call keeps", "[codegen]") {
  if (!make_assembler()) return;
  int64_t x = -0x123456789abcdefll;
  CHECK(run(&x, [](Assembler& a) {
          a.load(kT1, {kArg0, 0});
          a.shift_right_signed(kT0, kT1, 47);
        }) == x >> 47);
  CHECK(run(&x, [](Assembler& a) {
          a.load(kT0, {kArg0, 0});
          a.bit_and(kT0, 0xf0f0ff01u);
        }) == int64_t(uint64_t(x) & 0xf0f0ff01u));
  CHECK(run(&x, [](Assembler& a) {
          a.load(kT0, {kArg0, 0});
          a.set(kT1, 0xff00ff00ff00ff00ull);
          a.bit_and(kT0, kT1);
          a.set(kT1, 3);
          a.bit_or(kT0, kT1);
        }) == int64_t((uint64_t(x) & 0xff00ff00ff00ff00ull) | 3));
  for (int shift = 0; shift <= 3; shift++) {
    CHECK(run(&x, [&](Assembler& a) {
            a.set(kT1, 1000);
            a.set(kT2, 7);
            a.add_scaled(kT0, kT1, kT2, shift);
          }) == 1000 + (7 << shift));
  }
  CHECK(run(&x, [](Assembler& a) {
          for (Reg r : {kKept0, kKept1, kKept2, kKept3}) a.set(r, 1000u * (unsigned(r) + 1));
          a.set(kArg0, 1);
          a.set(kArg1, 2);
          a.set(kArg2, 3);
          a.call(reinterpret_cast<const void*>(&add_three));
          for (Reg r : {kKept0, kKept1, kKept2, kKept3}) a.add_scaled(kT0, kT0, r, 0);
        }) == 321 + 1000 * (7 + 8 + 9 + 10));  // kKept0 is the seventh register
}

}  // namespace lutra
