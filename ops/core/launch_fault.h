// What a kernel reports that fails while it runs.
#pragma once
#include <cstdint>

namespace lutra {

// The first failing check of a launch wins. On a GPU the record is memory that host and device share, one a device; it
// is looked at when the host waits for the device, so it also says which launch it was and what bounded the index.
struct LaunchFault {
  int32_t set = 0;
  int32_t arg = 0;  // the integer argument that bounds the index
  int64_t index = 0;
  int64_t bound = 0;  // its value (GPU)
  int64_t site = 0;   // BlockHead::site of the launch (GPU)
};
static_assert(sizeof(LaunchFault) == 32);

}  // namespace lutra
