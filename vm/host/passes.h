// lt.config.passes: which passes compilations go through.
#pragma once
#include <string>

struct lua_State;

namespace lutra {

struct Config;

// Pushes the proxy: its fields are true or false, by the name of a pass that may be switched off.
void push_passes(lua_State* L);
// lt.config.passes = {cse = false}; nil: all are on.
void assign_passes(lua_State* L, int index);
// -cse,-dce
void read_passes(Config& config, const std::string& text);

}  // namespace lutra
