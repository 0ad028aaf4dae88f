// Reads the options of compiled functions and of marked sizes from tables on the stack.
#pragma once
#include <string>

#include "vm/capture/segment/options.h"
#include "vm/capture/trace/state.h"

struct lua_State;

namespace lutra {

// Returns a value as errors of ops name it: "string 'f'", "a table".
std::string described(lua_State* L, int index);

// Reads the options at `index` (nil: none) for the function or module at `callable`. `who` is the name in errors.
CaptureOptions read_options(lua_State* L, int callable, int index, const char* who);

// Reads min and max of lt.mark_dynamic. Throws if they are given but not `allowed`.
SizeBounds read_bounds(lua_State* L, int index, const char* who, bool allowed);

}  // namespace lutra
