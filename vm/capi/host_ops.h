// The ops that hosts registered, by state.
#pragma once
#include "vm/capi/state.h"

namespace lutra::capi {

// Marks the state's ops as closed, so that they no longer run. Call it before the state closes.
void close_host_ops(const lutra_State* S);
// Frees the state's ops. Call it after its Lua state is closed.
void free_host_ops(const lutra_State* S);

}  // namespace lutra::capi
