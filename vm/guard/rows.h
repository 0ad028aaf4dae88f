// The guards of a program as rows for reports.
#pragma once
#include <string>
#include <vector>

#include "vm/guard/program.h"

namespace lutra {

struct GuardRow {
  std::string kind, source, expected;
  GuardPlace place;
};

GuardRow row_of(const GuardProgram& p, size_t step);
// Returns the row of relation `i` between sizes and numbers. Its source is that of the first one.
GuardRow row_of_relation(const GuardProgram& p, size_t i);
// Returns the rows of all steps except loads and guards of Lutra's own objects.
std::vector<GuardRow> rows_of(const GuardProgram& p);

}  // namespace lutra
