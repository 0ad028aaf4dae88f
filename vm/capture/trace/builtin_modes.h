// Models of the functions that set or read the grad mode and autocast, rows of builtins.cc.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

Vars run_no_grad(Trace& t, Var* self, const Vars& args);
Vars run_enable_grad(Trace& t, Var* self, const Vars& args);
Vars run_autocast_check(Trace& t, Var* self, const Vars& args);
Vars run_autocast(Trace& t, Var* self, const Vars& args);
Vars run_set_grad_enabled(Trace& t, Var* self, const Vars& args);
Vars run_is_grad_enabled(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
