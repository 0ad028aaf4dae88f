// What reports say of the guards of a program: a row each.
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
// A relation between sizes and numbers, of the first that it is about.
GuardRow row_of_relation(const GuardProgram& p, size_t i);
// All but loads and guards of what Lutra itself gave.
std::vector<GuardRow> rows_of(const GuardProgram& p);

}  // namespace lutra
