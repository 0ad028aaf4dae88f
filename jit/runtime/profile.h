// Measures launches: while profiling is on, each launch of a kernel or library makes a record. While it is off, a run
// only checks that.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "jit/device/backend.h"
#include "jit/loop/loop.h"
#include "jit/runtime/flat_plan.h"
#include "jit/runtime/tuning.h"
#include "ops/extern/extern.h"

namespace lutra {

struct LaunchRecord {
  std::string name;  // of the kernel or the library's op
  std::string ops;   // the ops that were fused
  bool library = false;
  std::string candidate, why;  // of a library: the candidate that ran the last call, and why
  int64_t calls = 1;
  double ms = 0;
  int64_t bytes = 0;          // to be read and written, each once
  double flops = 0;           // of products
  double bfloat16_flops = 0;  // the part of flops in bfloat16, for which a processor may have tiles
  std::string file;           // the user's source file; empty if unknown
  int line = 0;
};

// Between start and stop, records the launches of all threads, and adds up those with the same name and line. locate,
// if given, fills in file and line of a launch without them (an eager op).
void start_profile(void (*locate)(LaunchRecord& record));
std::vector<LaunchRecord> stop_profile();
bool profiling();
// Times a launch. Time in which the thread waits for device code counts as compilation, not as part of the launch.
class LaunchTimer {
 public:
  explicit LaunchTimer(const Backend& backend);
  uint64_t stop() const;  // nanoseconds since it was made

 private:
  const Backend& backend_;
  uint64_t start_, waited_;
};
// Returns true if launches are timed, for a profile or for LUTRA_LOGS=perf.
bool launches_watched();
void keep_record(LaunchRecord record);

// The cost of capture and compilation since the last start_profile. Invariant: nested scopes count once, and only in
// the thread that asked first.
struct CompileCost {
  double ms = 0;
  int64_t kernels = 0;  // that the process did not have yet
};
CompileCost compile_cost();
class CompileScope {
 public:
  CompileScope();
  ~CompileScope();
  CompileScope(const CompileScope&) = delete;

 private:
  uint64_t start_ = 0;
};
void count_compiled_kernel();

// Returns the bytes that a kernel reads and writes, by the sizes of the loops around its accesses. ints: its integer
// arguments. Accesses of one place count once, however many loops repeat them. Reads of what the kernel has written
// itself do not count.
int64_t kernel_bytes(const loop::Kernel& kernel, const std::vector<int64_t>& ints);
// Records a step, and the steps that ran in parallel with it. made_by: of a library's call.
void note_launch(const FlatPlan& flat, const HostValue* values, const LaunchStep* step, const LibraryChoice& made_by,
                 uint64_t nanoseconds);
// Records a call that does not belong to an executable.
void note_extern(const ExternCall& call, const LibraryChoice& made_by, uint64_t nanoseconds);

}  // namespace lutra
