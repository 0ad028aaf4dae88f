// Faults of kernels. A kernel whose check fails writes a record that host and device share. The next wait for the
// device raises it.
#pragma once
#include <functional>

#include "ops/core/error.h"
#include "ops/core/launch_fault.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {

// Returns the record of this GPU's kernels (host memory that the device sees at the same address).
LaunchFault* fault_record(Context& c);
// loops_stop returns a number in host memory that loops on the GPU read: a value other than 0 ends them. end_loops sets
// it and waits until they have ended.
int32_t* loops_stop(Context& c);
void end_loops(Context& c);
// Registers the error of a launch's fault; the id goes to BlockHead::site. After a site is removed, no launch of it
// follows, but earlier launches may still be pending. So its entry lives until the host has waited for the device's
// work.
int64_t add_fault_site(std::function<Error(const LaunchFault&)> describe);
void remove_fault_site(int64_t site, int device);
// removed_fault_sites returns how many were removed so far. Call forget_fault_sites with that number after all work
// that the device was given until then is done and its faults were raised. It deletes the entries of those sites.
size_t removed_fault_sites();
void forget_fault_sites(Context& c, size_t removed);
// Returns the site combined with the current place, which errors then name.
int64_t site_here(int64_t site);
// Throws the error of the record, if it is set, and clears it. It waits for the device before it reads the record.
void raise_fault(Context& c);

}  // namespace lutra::cuda
