// The generator of LuaJIT's math.random. In: its state in a userdata. Out: the numbers that it will draw, without
// drawing them.
#pragma once
#include <cstdint>

struct lua_State;

namespace lutra {

struct LuaRandom {
  uint64_t u[4];
};

// Sets the state as math.randomseed(seed) does.
void seed_random(LuaRandom& state, double seed);
// Returns a number in [0, 1), as math.random() does, and advances the state.
double draw(LuaRandom& state);
// Returns the number that comes after `index` others. The state does not change.
double draw_ahead(const LuaRandom& state, int64_t index);
// Returns the state of the math.random or math.randomseed at a stack index; null if it is another function.
LuaRandom* random_of(lua_State* L, int function);
// Returns whether draw returns the same numbers as that function: LuaJIT may have another generator.
bool is_known_random(lua_State* L, int function);
// Returns whether seed_random sets the same state as the math.randomseed at a stack index.
bool is_known_seeding(lua_State* L, int function);

}  // namespace lutra
