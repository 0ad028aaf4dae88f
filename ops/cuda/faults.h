// Kernels whose checks fail write a record that host and device share; the next wait for the device raises it.
#pragma once
#include <functional>

#include "ops/core/error.h"
#include "ops/core/launch_fault.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {

// Where the kernels of this GPU report (host memory that the device sees at the same address).
LaunchFault* fault_record(Context& c);
// Registers what to say of a launch's fault; the id goes to BlockHead::site. Sites live until removed.
int64_t add_fault_site(std::function<Error(const LaunchFault&)> describe);
void remove_fault_site(int64_t site);
// Throws what the record holds, if anything, and clears it; waits for the device before it reads a record that is set.
void raise_fault(Context& c);

}  // namespace lutra::cuda
