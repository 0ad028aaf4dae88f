// The record of a kernel's failure at run time.
#pragma once
#include <cstdint>

namespace lutra {

// The record of the first failing check of a launch. On a GPU it lies in memory that host and device share, one record
// a device. The host reads it when it waits for the device, so it also names the launch and the bound of the index.
struct LaunchFault {
  int32_t set = 0;
  int32_t arg = 0;  // the integer argument that bounds the index
  int64_t index = 0;
  int64_t bound = 0;  // the value of that bound (GPU)
  int64_t site = 0;   // BlockHead::site of the launch (GPU)
};
static_assert(sizeof(LaunchFault) == 32);

}  // namespace lutra
