// The guards of a program as rows for reports.
#include "vm/guard/rows.h"

namespace lutra {
namespace {

// Returns whether it guards an object that Lutra itself made (the methods of tensors). Reports show only its misses.
bool is_own(const GuardStep& s) { return s.source && s.source->base && s.source->base->kind == SourceKind::kConstant; }

}  // namespace

GuardRow row_of(const GuardProgram& p, size_t step) {
  const GuardStep& s = p.steps[step];
  return {kind_name(s.op), s.source ? report_text(*s.source) : "", expected_text(p, step), place_of(p, s)};
}

GuardRow row_of_relation(const GuardProgram& p, size_t i) {
  const Source* source = relation_source(p, int(i));
  const GuardPlace place = i < p.relation_places.size() ? p.relation_places[i] : p.start;
  return {kind_name(GuardOp::kSymbolsCheck), source ? report_text(*source) : "", relation_text(p, int(i)), place};
}

std::vector<GuardRow> rows_of(const GuardProgram& p) {
  std::vector<GuardRow> rows;
  for (size_t i = 0; i < p.steps.size(); i++) {
    if (is_own(p.steps[i])) continue;
    if (p.steps[i].op == GuardOp::kSymbolsCheck) {
      for (size_t k = 0; k < p.symbols.guards().size(); k++) rows.push_back(row_of_relation(p, k));
    } else if (!is_load(p.steps[i].op)) {
      rows.push_back(row_of(p, i));
    }
  }
  return rows;
}

}  // namespace lutra
