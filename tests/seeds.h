// How long a test that can be made longer runs: its rounds times LUTRA_TEST_SCALE; its seeds, or those of
// LUTRA_TEST_SEED.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace lutra {

// LUTRA_TEST_SCALE may be less than 1: there is one round at least.
inline uint64_t rounds(int count) {
  const char* scale = std::getenv("LUTRA_TEST_SCALE");
  return uint64_t(std::max(1.0, count * (scale ? std::atof(scale) : 1)));
}

struct Seeds {
  uint64_t first, last;
};

// LUTRA_TEST_SEED is one seed or a range, 2001-2500, so that a long run is cut into processes; without it 1 to
// rounds(count).
inline Seeds seeds(int count) {
  const char* named = std::getenv("LUTRA_TEST_SEED");
  if (!named) return {1, rounds(count)};
  const char* dash = std::strchr(named, '-');
  return {std::strtoull(named, nullptr, 10), std::strtoull(dash ? dash + 1 : named, nullptr, 10)};
}

}  // namespace lutra
