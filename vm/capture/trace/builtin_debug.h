// The model of debug.getinfo, a row of builtins.cc; the place of code as LuaJIT names it.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

// Returns the name of the code's file as lj_debug_shortname shortens it.
std::string short_source(const LuaCode& code);
Vars run_getinfo(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
