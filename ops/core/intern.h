// Strings that live as long as the process.
#pragma once
#include <string>

namespace lutra {

// Returns the same address for equal texts.
const char* intern(const std::string& text);

}  // namespace lutra
