// Sandboxed states: their programs can use only Lua, tensors, and what the host gives them.
#pragma once
#include "vm/capi/lutra.h"

namespace lutra::capi {

// Confines the programs that are loaded from now on: they have globals of their own. The module is at the top of the
// stack; it is replaced by the module that programs get.
void confine(lua_State* L, const lutra_Options& options);

// Returns the mode for luaL_loadbufferx: whether programs of this state may be text only, or bytecode too.
const char* chunk_mode(lua_State* L);

// Lifts the sandbox for a scope, in which the host itself does what the program may not.
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
