// A finished trace in; guards of the modes that its ops were traced under.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// Of the grad mode, autocast, the current GPU and the default device, as far as the trace depends on them.
void guard_modes(Trace& t);

}  // namespace lutra
