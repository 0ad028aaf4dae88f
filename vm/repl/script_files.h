// The files that a sandboxed script may read: those beneath its folder.
#pragma once
#include <string>

#include "vm/capi/lutra.h"

namespace lutra {

// lutra_Options.read_file; arg is the folder, a std::string.
int read_script_file(void* arg, const char* name, lutra_Writer sink, void* sink_arg);
// Of a script; empty where it has none.
std::string folder_of_script(const char* path);

}  // namespace lutra
