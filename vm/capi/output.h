// What programs write, to the host's functions.
#pragma once
#include "vm/capi/lutra.h"

struct lua_State;

namespace lutra::capi {

// print, io.write, io.stdout and io.stderr of the state, and its log, write to what the options name.
void direct_output(lua_State* L, const lutra_Options& options);

}  // namespace lutra::capi
