-- perf_counter(): seconds on the monotonic clock, as a number. Only differences are meaningful.
local ffi = require "ffi"

-- Declared under our own name, so that it does not conflict with a program's declaration of clock_gettime.
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
