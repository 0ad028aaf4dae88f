// Opens capture: the module table at the top of the Lua stack in; the same table with lt.compile, lt.patch, lt.explain
// ... out. Weak, so that the rooms around it link without it.
#pragma once

struct lua_State;

namespace lutra {

[[gnu::weak]] int open_capture(lua_State* L);

}  // namespace lutra
