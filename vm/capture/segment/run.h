// Running an entry.
#pragma once
#include "vm/capture/segment/entry.h"

namespace lutra {

// Runs an entry whose guards have passed. Pushes the exit's code and results and returns how many these are; 0 where
// the original code must run. What the segment raises comes out as it is.
int run_segment(lua_State* L, Entry& entry, GuardValues& values);
// The method of tensors itself, whatever their __index is now.
void push_method(lua_State* L, const std::string& name);

}  // namespace lutra
