// Formats numbers for people.
#include "jit/schedule/decisions.h"

#include <cmath>
#include <cstdio>

#include "ops/core/error.h"

namespace lutra {
namespace {

// Formats n with three digits, in the largest unit in which it is at least one.
std::string scaled(double n, double step, std::initializer_list<const char*> units) {
  auto unit = units.begin();
  while (std::abs(n) >= 999.5 && unit + 1 != units.end()) n /= step, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", n);
  return str(text, **unit ? " " : "", *unit);
}

}  // namespace

std::string time_text(double seconds) { return scaled(seconds * 1e9, 1000, {"ns", "us", "ms", "s"}); }
std::string bytes_text(double bytes) { return scaled(bytes, 1024, {"bytes", "KB", "MB", "GB"}); }
std::string count_text(double n) { return scaled(n, 1000, {"", "thousand", "million", "billion"}); }

std::string Score::text() const {
  const double saved = a.bytes + b.bytes - both.bytes, more = again();
  std::string s = str("saves a launch", saved >= 1 ? ", " + bytes_text(saved) : "");
  if (more >= 1) s += str("; costs ", count_text(more), " additions");
  return str(s, "; ", time_text(after), ", not ", time_text(before));
}

}  // namespace lutra
