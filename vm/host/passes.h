// lt.config.passes: switches for the passes of compilations.
#pragma once
#include <string>

struct lua_State;

namespace lutra {

struct Config;

// Pushes the proxy. It has a boolean field for each pass that can be switched off.
void push_passes(lua_State* L);
// Implements lt.config.passes = {cse = false}; nil switches all passes on.
void assign_passes(lua_State* L, int index);
// Switches off the passes in a text such as "-cse,-dce".
void read_passes(Config& config, const std::string& text);

}  // namespace lutra
