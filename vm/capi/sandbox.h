// Sandboxed states: programs that reach nothing but Lua, tensors, and what the host gives them.
#pragma once
#include "vm/capi/lutra.h"

namespace lutra::capi {

// The module is at the top of the stack, and is replaced by the one that programs get. Programs that are loaded from
// now on have globals of their own.
void confine(lua_State* L, const lutra_Options& options);

// Which chunks programs of this state may come as: luaL_loadbufferx's mode.
const char* chunk_mode(lua_State* L);

// The host itself does for a scope what the program may not.
class SandboxPause {
 public:
  explicit SandboxPause(lua_State* L);
  ~SandboxPause();
  SandboxPause(const SandboxPause&) = delete;

 private:
  lua_State* L_;
  bool saved_;
};

}  // namespace lutra::capi
