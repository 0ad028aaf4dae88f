// The system's clocks. Only differences between two readings are meaningful.
#pragma once

#include <time.h>

namespace lutra {

inline double clock_seconds(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t{};
  clock_gettime(clock, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Milliseconds.
inline double wall_ms() { return clock_seconds() * 1e3; }
inline double process_cpu_ms() { return clock_seconds(CLOCK_PROCESS_CPUTIME_ID) * 1e3; }  // of all threads
inline double thread_cpu_ms() { return clock_seconds(CLOCK_THREAD_CPUTIME_ID) * 1e3; }

}  // namespace lutra
