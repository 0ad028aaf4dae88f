// Identifies this build of Lutra.
#pragma once
#include <string>

namespace lutra {

// Returns the linker's build id, in hexadecimal, of the program or library that this code is part of; "" if it has
// none. Files that another build wrote are not read.
const std::string& build_id();

}  // namespace lutra
