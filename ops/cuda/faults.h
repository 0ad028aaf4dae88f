// Kernels whose checks fail write a record that host and device share; the next wait for the device raises it.
#pragma once
#include <functional>

#include "ops/core/error.h"
#include "ops/core/launch_fault.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {

// Where the kernels of this GPU report (host memory that the device sees at the same address).
LaunchFault* fault_record(Context& c);
// A number in memory of the host that loops on the GPU look at: not 0 ends them. end_loops waits until they have ended.
int32_t* loops_stop(Context& c);
void end_loops(Context& c);
// Registers what to say of a launch's fault; the id goes to BlockHead::site. No launch of a site that was removed
// follows, but those before may not have run: it lives until the host has waited for the device's work.
int64_t add_fault_site(std::function<Error(const LaunchFault&)> describe);
void remove_fault_site(int64_t site, int device);
// How many were removed so far, and, when all work that the device was given then is done and its faults are told, the
// end of those.
size_t removed_fault_sites();
void forget_fault_sites(Context& c, size_t removed);
// Where the user's program is now; false where nobody knows. Asked at launches that say no place of their own.
struct Place {
  char file[256] = {};
  int line = 0;

  void set(const char* name, int at);  // of a long name the end
};
void set_place(bool (*where)(Place& place));
bool place_now(Place& place);
// While one lives, launches of this thread come from there (null: from where the program is).
class PlaceScope {
 public:
  PlaceScope(const char* file, int line);
  ~PlaceScope();
  PlaceScope(const PlaceScope&) = delete;

 private:
  const char* file_;
  int line_;
};
// The site with the place that launches come from now: errors tell it.
int64_t site_here(int64_t site);
// Throws what the record holds, if anything, and clears it; waits for the device before it reads a record that is set.
void raise_fault(Context& c);

}  // namespace lutra::cuda
