// Functions that are patched without being asked for: lt.auto (hot frames that run tensor ops) and the stress modes.
#pragma once

struct lua_State;

namespace lutra {

// threshold 0 switches lt.auto off.
void set_auto(lua_State* L, int threshold);
// Applies lt.config.stress: "capture" and "break" patch every Lua function at its first call; with "break" traces also
// break.
void apply_stress(lua_State* L);
// Patches the Lua function at `index` in place. Returns false if it has no bytecode or cannot be patched. `automatic`:
// lt.auto asks; if nobody else has asked for the compiled prototype, its code has to pay for itself.
bool patch_in_place(lua_State* L, int index, bool automatic);

}  // namespace lutra
