// Models of x:retain_grad() and x:register_hook(f): hooks run where the trace runs a backward. So
// do those that leaves have when the segment begins.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

Vars run_retain_grad(Trace& t, Var* self, const Vars& args);
Vars run_register_hook(Trace& t, Var* self, const Vars& args);
// Before a backward: the hooks that an input had when the segment began become its fake's.
void load_hooks(Trace& t, size_t input);

}  // namespace lutra
