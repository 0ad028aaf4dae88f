// Tests the places of slots in an arena.
#include "jit/runtime/arena.h"

#include <catch2/catch.hpp>
#include <random>

namespace lutra {
namespace {

size_t most_at_once(const std::vector<ArenaSlot>& slots, const std::vector<size_t>& bytes) {
  size_t most = 0;
  for (int32_t launch = 0; launch < 100; launch++) {
    size_t sum = 0;
    for (size_t s = 0; s < slots.size(); s++) {
      if (slots[s].first <= launch && launch <= slots[s].last) sum += bytes[s];
    }
    most = std::max(most, sum);
  }
  return most;
}

TEST_CASE("slots that are not in use together lie in one place", "[runtime]") {
  // A small one first, which must not keep the large ones apart.
  ArenaLayout a;
  const std::vector<ArenaSlot> slots = {{0, 0, 3}, {0, 0, 1}, {0, 2, 3}, {0, 4, 5}};
  a.bytes = {100, 6400, 6400, 6464};
  a.place(slots, 64);
  CHECK(a.total == 6400 + 128);
  CHECK(a.offsets[1] == a.offsets[2]);
  a.find_gap(slots, 5);
  CHECK((a.gaps[5].offset == 6464 && a.gaps[5].bytes == 64));
  a.find_gap(slots, 9);
  CHECK((a.gaps[9].offset == 0 && a.gaps[9].bytes == a.total));
}

TEST_CASE("slots in use together never overlap, and gaps are free", "[runtime]") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; round++) {
    std::vector<ArenaSlot> slots;
    ArenaLayout a;
    for (size_t n = 1 + random() % 40; n > 0; n--) {
      const auto first = int32_t(random() % 30);
      slots.push_back({0, first, first + int32_t(random() % 12)});
      a.bytes.push_back(random() % 5 ? random() % 4096 : 0);
    }
    a.place(slots, 64);
    CHECK(a.total >= most_at_once(slots, a.bytes));
    for (size_t i = 0; i < slots.size(); i++) {
      CHECK((a.offsets[i] % 64 == 0 && a.offsets[i] + a.bytes[i] <= a.total));
      for (size_t j = 0; j < i; j++) {
        const bool meet = slots[i].first <= slots[j].last && slots[j].first <= slots[i].last;
        const bool apart = a.offsets[i] + a.bytes[i] <= a.offsets[j] || a.offsets[j] + a.bytes[j] <= a.offsets[i];
        CHECK((!meet || apart));
      }
    }
    for (int32_t launch = 0; launch < 45; launch++) {
      a.find_gap(slots, launch);
      const ArenaGap gap = a.gaps[size_t(launch)];
      CHECK(gap.offset + gap.bytes <= a.total);
      for (size_t i = 0; i < slots.size(); i++) {
        const bool used = slots[i].first <= launch && launch <= slots[i].last && a.bytes[i];
        CHECK((!used || gap.offset + gap.bytes <= a.offsets[i] || gap.offset >= a.offsets[i] + a.bytes[i]));
      }
    }
  }
}

}  // namespace
}  // namespace lutra
