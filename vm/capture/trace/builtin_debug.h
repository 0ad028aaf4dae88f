// The model of debug.getinfo, a row of builtins.cc.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

Vars run_getinfo(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
