// Advice in reports of recompiles.
#pragma once
#include <string>

namespace lutra {

// Empty where there is nothing to do about it.
std::string recompile_hint(const std::string& kind);

}  // namespace lutra
