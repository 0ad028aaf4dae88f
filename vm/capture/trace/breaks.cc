// Turns rows of breaks.def into reasons with places.
#include "vm/capture/trace/breaks.h"

#include <fstream>
#include <iterator>
#include <string_view>

#include "ops/core/error.h"

namespace lutra {
namespace {

constexpr BreakRow kBreakRows[] = {
#define BREAK(id, kind, text, hint) {#id, kind, text, hint},
#include "vm/capture/trace/breaks.def"
};

struct CallRow {
  std::string_view beginning;
  Break id;
};

constexpr CallRow kCalls[] = {
#define BREAK_CALL(beginning, id) {beginning, Break::id},
#include "vm/capture/trace/breaks.def"
};

constexpr CallRow kEffects[] = {
#define BREAK_EFFECT(beginning, id) {beginning, Break::id},
#include "vm/capture/trace/breaks.def"
};

// Finds the first row whose beginning fits the function. The last row fits all functions.
Break row_for(const CallRow* row, const std::string& function) {
  while (!function.starts_with(row->beginning)) row++;
  return row->id;
}

std::string text_of(const BreakRow& row, const std::string& subject) {
  std::string text = row.text;
  const size_t at = text.find('%');
  return at == std::string::npos ? text : text.replace(at, 1, subject);
}

}  // namespace

const BreakRow& row_of(Break why) {
  if (why == Break::none) fail_internal("capture: a break without a reason");
  return kBreakRows[size_t(why) - 1];
}

const BreakRow* break_rows(size_t& count) {
  count = std::size(kBreakRows);
  return kBreakRows;
}

Break break_of_call(const std::string& function) { return row_for(kCalls, function); }

Break break_of_effect(const std::string& function) { return row_for(kEffects, function); }

std::string anchor_of(Break why) { return std::string("docs/graph_breaks.md#") + row_of(why).id; }

BreakReason::BreakReason(Break id, const BreakAbout& about, BreakPlace place, std::string chain)
    : id(id),
      reason(text_of(row_of(id), about.subject)),
      hint(about.hint.empty() ? row_of(id).hint : about.hint),
      place(place),
      chain(std::move(chain)) {}

std::string source_line(const BreakPlace& place) {
  if (!place.file) return {};
  std::ifstream in(place.file);
  std::string line;
  for (int i = 0; i < place.line; i++) {
    if (!std::getline(in, line)) return {};
  }
  const size_t from = line.find_first_not_of(" \t"), to = line.find_last_not_of(" \t\r");
  return from == std::string::npos ? "" : line.substr(from, to - from + 1);
}

}  // namespace lutra
