// The capture state of a Lua state.
#include "vm/capture/dispatch/state.h"

#include <time.h>

#include "vm/host/runtime.h"

namespace lutra {
namespace {

double ms_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return double(now.tv_sec) * 1e3 + double(now.tv_nsec) * 1e-6;
}

}  // namespace

double wall_ms() { return ms_of(CLOCK_MONOTONIC); }
double process_cpu_ms() { return ms_of(CLOCK_PROCESS_CPUTIME_ID); }
double thread_cpu_ms() { return ms_of(CLOCK_THREAD_CPUTIME_ID); }

CaptureState& capture_state(lua_State* L) {
  Runtime& rt = runtime(L);
  LUTRA_CHECK(rt.capture, "capture is not open");
  return *rt.capture;
}

}  // namespace lutra
