// Parses saves texts ("0:a1 1:r0 0:a0|r0") into masks, once.
#include "ops/grad/saves.h"

#include <array>

namespace lutra {
namespace {

constexpr size_t kMaxArgs = 8;
using Row = std::array<SaveMasks, kMaxArgs>;

// Adds "a1" or "r0" to the masks.
void add_to(SaveMasks& masks, std::string_view value) {
  (value[0] == 'a' ? masks.args : masks.results) |= 1u << (value[1] - '0');
}

bool is_value(std::string_view v) {
  return v.size() == 2 && (v[0] == 'a' || v[0] == 'r') && v[1] >= '0' && v[1] <= '9';
}

Row parse(const OpInfo& op, bool in_place) {
  Row row{};
  std::string_view text = op.saves ? op.saves : "";
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const bool either = word.size() == 7 && word[4] == '|' && is_value(word.substr(5));
    const bool formed = (word.size() == 4 || either) && word[1] == ':' && is_value(word.substr(2, 2));
    const size_t k = formed ? size_t(word[0] - '0') : kMaxArgs;
    if (k >= kMaxArgs) fail_internal("saves of ", op.name, ": '", word, "' is malformed");
    add_to(row[k], word.substr(either && in_place ? 5 : 2, 2));
  }
  return row;
}

std::vector<Row> parse_all(bool in_place) {
  std::vector<Row> rows;
  for (size_t i = 0; i < size_t(OpId::kCount); i++) rows.push_back(parse(info(OpId(i)), in_place));
  return rows;
}

}  // namespace

SaveMasks saved_by(OpId op, uint32_t wants, bool in_place) {
  static const std::vector<Row> rows[] = {parse_all(false), parse_all(true)};
  SaveMasks masks;
  for (size_t k = 0; k < kMaxArgs; k++) {
    if (!(wants >> k & 1)) continue;
    masks.args |= rows[in_place][size_t(op)][k].args;
    masks.results |= rows[in_place][size_t(op)][k].results;
  }
  return masks;
}

}  // namespace lutra
