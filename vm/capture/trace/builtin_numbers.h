// Models of math's functions, rows of builtins.cc.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

Vars run_tonumber(Trace& t, Var* self, const Vars& args);
Vars run_pow(Trace& t, Var* self, const Vars& args);
Vars run_fmod(Trace& t, Var* self, const Vars& args);
Vars run_log(Trace& t, Var* self, const Vars& args);
Vars run_ldexp(Trace& t, Var* self, const Vars& args);
Vars run_modf(Trace& t, Var* self, const Vars& args);
Vars run_joined(Trace& t, Var* self, const Vars& args);  // math.atan2
Vars run_bits(Trace& t, Var* self, const Vars& args);    // functions of the library bit
Vars run_host(Trace& t, Var* self, const Vars& args);    // math.sqrt, math.floor and others of one number
Vars run_randomseed(Trace& t, Var* self, const Vars& args);
Vars run_random(Trace& t, Var* self, const Vars& args);   // math.random
Vars run_extreme(Trace& t, Var* self, const Vars& args);  // math.max, math.min

}  // namespace lutra
