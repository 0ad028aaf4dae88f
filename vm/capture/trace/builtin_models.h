// Models of Lua's functions that are written in Lua, rows of builtins.cc.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

Vars run_sort(Trace& t, Var* self, const Vars& args);
Vars run_maxn(Trace& t, Var* self, const Vars& args);
Vars run_gsub(Trace& t, Var* self, const Vars& args);
Vars run_gmatch(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
