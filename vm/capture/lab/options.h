// Tables of options, on the stack, in; options of compiled functions and of marked sizes out.
#pragma once
#include <string>

#include "vm/capture/segment/options.h"
#include "vm/capture/trace/state.h"

struct lua_State;

namespace lutra {

// "string 'f'", "a table", as errors of ops name a value.
std::string described(lua_State* L, int index);

// Of the function or module at `callable`. `who` is named by errors. None at `index`: nil.
CaptureOptions read_options(lua_State* L, int callable, int index, const char* who);

// min and max of lt.mark_dynamic; none may be given where they are not `allowed`.
SizeBounds read_bounds(lua_State* L, int index, const char* who, bool allowed);

}  // namespace lutra
