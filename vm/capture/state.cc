// The capture state of a Lua state, and its table of decoded functions.
#include "vm/capture/state.h"

#include <lua.hpp>

#include "vm/host/runtime.h"
#include "vm/portal/portal.h"

namespace lutra {

CaptureState& capture_state(lua_State* L) {
  Runtime& rt = runtime(L);
  LUTRA_CHECK(rt.capture, "capture is not open");
  return *rt.capture;
}

LuaCode* code_of(CaptureState& state, lua_State* L, int index) {
  if (lua_iscfunction(L, index)) return nullptr;
  const void* id = prototype_identity(L, index);
  auto it = state.codes.find(id);
  if (it != state.codes.end()) return it->second.get();
  auto code = decode_function(L, index);
  LuaCode* p = code.get();
  if (p) state.codes[id] = std::move(code);
  return p;
}

}  // namespace lutra
