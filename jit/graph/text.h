// What the printer and the parser of graphs share.
#pragma once
#include <string>

#include "ops/core/sym.h"

namespace lutra {

std::string expr_text(const SymEnv& env, int32_t id);  // mul(size(0, 1), 4)
std::string quote(const std::string& s);               // 'it\'s'
std::string number_text(double v);                     // shortest that reads back, always with '.' or 'e'

}  // namespace lutra
