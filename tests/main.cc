// Catch2's runner, for builds that do not link it precompiled, and the path of the source tree.
#ifndef LUTRA_CATCH_MAIN_LINKED
#define CATCH_CONFIG_MAIN
#endif
#include "tests/golden.h"

namespace lutra {

std::string source_path(const std::string& relative) { return std::string(LUTRA_SOURCE_DIR) + "/" + relative; }

}  // namespace lutra

// Under AddressSanitizer, which calls this: an allocation that is too large is null, as without it, so that running out
// of memory can be tested.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
