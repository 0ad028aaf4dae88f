// The generator of LuaJIT's math.random: its state in a userdata in; what it will draw out, without drawing it.
#pragma once
#include <cstdint>

struct lua_State;

namespace lutra {

struct LuaRandom {
  uint64_t u[4];
};

// A number in [0, 1), as math.random() gives it; the state goes on.
double draw(LuaRandom& state);
// The number that comes after `index` others. The state stays.
double draw_ahead(const LuaRandom& state, int64_t index);
// The state of the math.random at a stack index; null where there is none.
LuaRandom* random_of(lua_State* L, int function);
// Whether draw gives what that function gives: LuaJIT's generator is the one that is known here.
bool is_known_random(lua_State* L, int function);

}  // namespace lutra
