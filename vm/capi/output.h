// Redirection of what programs write to functions of the host.
#pragma once
#include "vm/capi/lutra.h"

struct lua_State;

namespace lutra::capi {

// Redirects print, io.write, io.stdout and io.stderr of the state, and its log, to the writers in the options.
void direct_output(lua_State* L, const lutra_Options& options);

}  // namespace lutra::capi
