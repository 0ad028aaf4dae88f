// Adds guards to a finished trace for the modes under which its ops were traced.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// Adds guards of the grad mode, autocast, the current GPU and the default device, if the trace depends on them.
void guard_modes(Trace& t);

}  // namespace lutra
