// Advice in reports.
#pragma once
#include <string>

namespace lutra {

// Empty where there is nothing to do about it.
std::string break_hint(const std::string& reason, const std::string& kind);
std::string recompile_hint(const std::string& kind);

}  // namespace lutra
