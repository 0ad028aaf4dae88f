// Running an entry.
#pragma once
#include "vm/capture/segment/entry.h"

namespace lutra {

// Runs an entry whose guards have passed. Pushes the exit's code and the results, and returns the number of these
// values; 0 if the original code must run. Errors of the segment propagate.
int run_segment(lua_State* L, Entry& entry, GuardValues& values);
// Pushes the method of tensors, whatever their __index is now.
void push_method(lua_State* L, const std::string& name);

}  // namespace lutra
