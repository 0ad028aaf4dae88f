// Strings that live as long as the process.
#pragma once
#include <string>

namespace lutra {

// Equal texts give the same address.
const char* intern(const std::string& text);

}  // namespace lutra
