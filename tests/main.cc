// Catch2's runner, and where the tree is.
#define CATCH_CONFIG_MAIN
#include "tests/golden.h"

namespace lutra {

std::string source_path(const std::string& relative) { return std::string(LUTRA_SOURCE_DIR) + "/" + relative; }

}  // namespace lutra
