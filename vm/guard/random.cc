// Draws of LuaJIT's generator: four linear-feedback shift registers (lj_prng.c).
#include "vm/guard/random.h"

#include <cstring>
#include <lua.hpp>

namespace lutra {
namespace {

uint64_t shifted(uint64_t& z, int k, int q, int s) {
  const uint64_t kept = z & (~uint64_t{0} << (64 - k));
  return z = (((z << q) ^ z) >> (k - s)) ^ (kept << s);
}

}  // namespace

void seed_random(LuaRandom& state, double seed) {
  constexpr double kPi = 3.14159265358979323846, kE = 2.7182818284590452354;
  constexpr int kWarmUp = 10;
  constexpr uint64_t kLeast[] = {1 << 1, 1 << 6, 1 << 9, 1 << 17};  // the bits that are used must not all be zero
  for (int i = 0; i < 4; i++) {
    seed = seed * kPi + kE;
    std::memcpy(&state.u[i], &seed, sizeof seed);
    if (state.u[i] < kLeast[i]) state.u[i] += kLeast[i];
  }
  for (int i = 0; i < kWarmUp; i++) draw(state);
}

double draw(LuaRandom& state) {
  const uint64_t bits = shifted(state.u[0], 63, 31, 18) ^ shifted(state.u[1], 58, 19, 28) ^
                        shifted(state.u[2], 55, 24, 7) ^ shifted(state.u[3], 47, 21, 8);
  const uint64_t in_one_to_two = (bits & 0x000fffffffffffff) | 0x3ff0000000000000;
  double d;
  std::memcpy(&d, &in_one_to_two, sizeof d);
  return d - 1;
}

double draw_ahead(const LuaRandom& state, int64_t index) {
  LuaRandom ahead = state;
  for (int64_t i = 0; i < index; i++) draw(ahead);
  return draw(ahead);
}

LuaRandom* random_of(lua_State* L, int function) {
  if (!lua_iscfunction(L, function) || !lua_getupvalue(L, function, 1)) return nullptr;
  const bool is = lua_type(L, -1) == LUA_TUSERDATA && lua_objlen(L, -1) >= sizeof(LuaRandom);
  auto* state = is ? static_cast<LuaRandom*>(lua_touserdata(L, -1)) : nullptr;
  lua_pop(L, 1);
  return state;
}

bool is_known_random(lua_State* L, int function) {
  LuaRandom* state = random_of(L, function);
  if (!state) return false;
  constexpr int kTries = 3;
  const LuaRandom before = *state;
  LuaRandom own = before;
  bool same = true;
  for (int i = 0; same && i < kTries; i++) {
    lua_pushvalue(L, function);
    lua_call(L, 0, 1);
    same = lua_tonumber(L, -1) == draw(own) && !memcmp(state, &own, sizeof own);
    lua_pop(L, 1);
  }
  *state = before;
  return same;
}

bool is_known_seeding(lua_State* L, int function) {
  LuaRandom* state = random_of(L, function);
  if (!state) return false;
  const LuaRandom before = *state;
  bool same = true;
  for (const double seed : {0.0, -7.25, 1e300}) {
    lua_pushvalue(L, function);
    lua_pushnumber(L, seed);
    lua_call(L, 1, 0);
    LuaRandom own = before;
    seed_random(own, seed);
    same = same && !memcmp(state, &own, sizeof own);
  }
  *state = before;
  return same;
}

}  // namespace lutra
