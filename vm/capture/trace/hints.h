// Advice in reports of recompiles.
#pragma once
#include <string>

namespace lutra {

// Returns the advice for a kind of recompile; empty if there is none.
std::string recompile_hint(const std::string& kind);

}  // namespace lutra
