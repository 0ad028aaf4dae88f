// File access of a sandboxed script: it may read the files beneath its folder.
#pragma once
#include <string>

#include "vm/capi/lutra.h"

namespace lutra {

// Implements lutra_Options.read_file; arg is the folder, a std::string.
int read_script_file(void* arg, const char* name, lutra_Writer sink, void* sink_arg);
// Returns the folder of a script; empty if it has none.
std::string folder_of_script(const char* path);

}  // namespace lutra
