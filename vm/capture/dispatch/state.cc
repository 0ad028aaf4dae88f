// The capture state of a Lua state.
#include "vm/capture/dispatch/state.h"

#include "vm/host/runtime.h"

namespace lutra {

CaptureState& capture_state(lua_State* L) {
  Runtime& rt = runtime(L);
  LUTRA_CHECK(rt.capture, "capture is not open");
  return *rt.capture;
}

}  // namespace lutra
