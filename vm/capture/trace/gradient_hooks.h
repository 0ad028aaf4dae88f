// Models of x:retain_grad() and x:register_hook(f): hooks run where the trace runs a backward.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

Vars run_retain_grad(Trace& t, Var* self, const Vars& args);
Vars run_register_hook(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
