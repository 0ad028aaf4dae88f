// Opens capture: adds lt.compile, lt.patch, lt.explain and others to the module table at the top of the Lua stack. The
// symbol is weak, so that other folders link without it.
#pragma once

struct lua_State;

namespace lutra {

[[gnu::weak]] int open_capture(lua_State* L);

}  // namespace lutra
