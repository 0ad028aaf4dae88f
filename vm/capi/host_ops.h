// Ops that hosts brought, by state.
#pragma once
#include "vm/capi/state.h"

namespace lutra::capi {

// The state is about to close: nobody runs its ops any more.
void close_host_ops(const lutra_State* S);
// Its Lua state is closed.
void free_host_ops(const lutra_State* S);

}  // namespace lutra::capi
