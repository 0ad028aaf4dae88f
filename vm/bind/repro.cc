// Repro files for the commands of the executable: runs a file and returns its results as a Lua table.
#include "jit/repro/repro.h"

#include <lua.hpp>

#include "jit/inject/inject.h"
#include "vm/bind/functions.h"
#include "vm/bind/userdata.h"

namespace lutra {
namespace {

// Pushes {kind =, about =, recorded =, guards =, graph =, bugs =, ops =} and the current result {now =, what =}; now is
// "" if both sides agree.
void push_repro(lua_State* L, const Repro& repro, const Replay& now) {
  lua_newtable(L);
  set_field(L, "kind", repro.kind), set_field(L, "about", repro.about), set_field(L, "recorded", repro.what);
  set_field(L, "guards", repro.guards), set_field(L, "graph", repro.graph), set_field(L, "bugs", repro.bugs);
  set_field(L, "bugs_on", bugs_on()), set_field(L, "now", now.kind), set_field(L, "what", now.what);
  lua_pushnumber(L, double(ops_of(repro)));
  lua_setfield(L, -2, "ops");
}

// Replays a file. A guard belongs to a running program, so for it only the recorded text is available.
Replay replay_file(const Repro& repro) { return repro.kind == "guard" ? Replay{"guard", repro.what} : replay(repro); }

int run_repro(lua_State* L) {
  const Repro repro = load_repro(luaL_checkstring(L, 1));
  push_repro(L, repro, replay_file(repro));
  return 1;
}

// minify(file, out)
int minify_repro(lua_State* L) {
  const Repro small = minify(load_repro(luaL_checkstring(L, 1)));
  save_repro(luaL_checkstring(L, 2), small);
  push_repro(L, small, replay_file(small));
  return 1;
}

const Special kReproSpecials[] = {
    {"_native.run_repro", kHostEffect, nullptr, run_repro},
    {"_native.minify_repro", kHostEffect, nullptr, minify_repro},
};

}  // namespace

std::span<const Special> repro_specials() { return kReproSpecials; }

}  // namespace lutra
