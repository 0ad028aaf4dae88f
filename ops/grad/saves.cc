// Saves texts ("0:a1 1:r0") in, masks out; parsed once.
#include "ops/grad/saves.h"

#include <array>

namespace lutra {
namespace {

constexpr size_t kMaxArgs = 8;
using Row = std::array<SaveMasks, kMaxArgs>;

Row parse(const OpInfo& op) {
  Row row{};
  std::string_view text = op.saves ? op.saves : "";
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    bool formed = word.size() == 4 && word[1] == ':' && (word[2] == 'a' || word[2] == 'r');
    size_t k = formed ? size_t(word[0] - '0') : kMaxArgs, n = formed ? size_t(word[3] - '0') : kMaxArgs;
    if (k >= kMaxArgs || n >= 32) fail_internal("saves of ", op.name, ": '", word, "' is malformed");
    (word[2] == 'a' ? row[k].args : row[k].results) |= 1u << n;
  }
  return row;
}

}  // namespace

SaveMasks saved_by(OpId op, uint32_t wants) {
  static const std::vector<Row> rows = [] {
    std::vector<Row> all;
    for (size_t i = 0; i < size_t(OpId::kCount); i++) all.push_back(parse(info(OpId(i))));
    return all;
  }();
  SaveMasks masks;
  for (size_t k = 0; k < kMaxArgs; k++) {
    if (!(wants >> k & 1)) continue;
    masks.args |= rows[size_t(op)][k].args;
    masks.results |= rows[size_t(op)][k].results;
  }
  return masks;
}

}  // namespace lutra
