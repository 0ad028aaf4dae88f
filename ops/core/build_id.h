// Which build of Lutra this is.
#pragma once
#include <string>

namespace lutra {

// The linker's build id of the program or library that this code is part of, in hexadecimal; "" where it has none.
// What was kept by another build is not read.
const std::string& build_id();

}  // namespace lutra
