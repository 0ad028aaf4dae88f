// Functions that are patched without being asked for: lt.auto (hot frames that run tensor ops) and the stress modes.
#pragma once

struct lua_State;

namespace lutra {

// threshold 0 switches lt.auto off.
void set_auto(lua_State* L, int threshold);
// Follows lt.config.stress: "capture" patches every Lua function at its first call; "break" is read by traces.
void apply_stress(lua_State* L);
// Patches the Lua function at `index` in place; false where it has no bytecode or cannot be. Where nobody else has
// asked for its compiled prototype, automatic code has to pay for itself.
bool patch_in_place(lua_State* L, int index, bool automatic);

}  // namespace lutra
