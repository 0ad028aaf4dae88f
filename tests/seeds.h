// The length of a test that can be made longer: its rounds times LUTRA_TEST_SCALE, and its seeds, or those of
// LUTRA_TEST_SEED.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace lutra {

// LUTRA_TEST_SCALE may be less than 1: there is one round at least. What is no number above 0 is an error.
inline uint64_t rounds(int count) {
  const char* text = std::getenv("LUTRA_TEST_SCALE");
  char* end = nullptr;
  const double scale = text ? std::strtod(text, &end) : 1;
  if (text && (end == text || *end || !(scale > 0))) throw std::runtime_error(std::string("LUTRA_TEST_SCALE=") + text);
  return uint64_t(std::max(1.0, count * scale));
}

struct Seeds {
  uint64_t first, last;
};

// LUTRA_TEST_SEED is one seed or a range, 2001-2500, so that a long run is cut into processes; without it 1 to
// rounds(count).
inline Seeds seeds(int count) {
  const char* named = std::getenv("LUTRA_TEST_SEED");
  if (!named) return {1, rounds(count)};
  char* end = nullptr;
  Seeds s = {std::strtoull(named, &end, 10), 0};
  s.last = *end == '-' ? std::strtoull(end + 1, &end, 10) : s.first;
  if (end == named || *end || s.last < s.first) throw std::runtime_error(std::string("LUTRA_TEST_SEED=") + named);
  return s;
}

}  // namespace lutra
