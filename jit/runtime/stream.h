// The stream of a device's work.
#pragma once
#include "ops/core/device.h"

namespace lutra {

// Null on the CPU.
void* stream_of(Device device);
// Waits for the work given to it; raises what went wrong in it.
void wait_for(Device device);

}  // namespace lutra
