// Finds the known name that is meant by a misspelt one.
#include "ops/core/closest.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace lutra {
namespace {

int lower(char c) { return std::tolower(static_cast<unsigned char>(c)); }

// Returns the number of edits that make a into b: changed, deleted, inserted or swapped neighbouring letters.
size_t letters_apart(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + !same});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string Closest::question() const { return best_.empty() ? "" : "; did you mean '" + best_ + "'?"; }

void Closest::look(std::string_view known) {
  if (known.size() > name_.size() + least_) return;
  const size_t apart = letters_apart(name_, known);
  if (apart >= least_ || known == name_) return;
  best_ = known;
  least_ = apart;
}

bool KnownNames::have(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

std::string KnownNames::question(std::string_view name) const {
  Closest closest(name);
  for (std::string_view each : names_) closest.look(each);
  return closest.question();
}

std::string KnownNames::list() const {
  std::string out;
  for (std::string_view each : names_) out.append(out.empty() ? "" : ", ").append(each);
  return out;
}

std::string KnownNames::known(std::string_view name) const { return " (known: " + list() + ")" + question(name); }

std::string KnownNames::expected(std::string_view name) const {
  std::string list;
  for (size_t i = 0; i < names_.size(); i++) {
    list.append(i == 0 ? "'" : i + 1 < names_.size() ? ", '" : " or '").append(names_[i]).append("'");
  }
  return " (expected " + list + ")" + question(name);
}

}  // namespace lutra
