-- perf_counter(): seconds on the monotonic clock, as a number; differences alone mean something.
local ffi = require "ffi"

-- Declared under a name of our own, so that a program's declaration of clock_gettime is not in the way.
ffi.cdef [[
typedef struct { long lutra_seconds; long lutra_nanoseconds; } lutra_timespec;
int lutra_clock_gettime(int, lutra_timespec*) __asm__("clock_gettime");
]]
local CLOCK_MONOTONIC = 1
local now = ffi.new("lutra_timespec")

return function()
  ffi.C.lutra_clock_gettime(CLOCK_MONOTONIC, now)
  return tonumber(now.lutra_seconds) + tonumber(now.lutra_nanoseconds) * 1e-9
end
