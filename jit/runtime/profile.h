// What launches cost: while someone watches, each launch of a kernel or library gives a record. Nobody watching costs
// one look a run.
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
  std::string ops;   // the ops it was fused of
  bool library = false;
  std::string candidate, why;  // of a library: who ran the last of the calls, and why that one
  int64_t calls = 1;
  double ms = 0;
  int64_t bytes = 0;          // that have to be read and written, each once
  double flops = 0;           // of products
  double bfloat16_flops = 0;  // of those: of bfloat16, for which a processor may have tiles
  std::string file;           // of the user's program, empty where it is not known
  int line = 0;
};

// From start to stop the launches of all threads are kept, those of one name and line added up. locate, where given,
// fills in file and line of a launch that knows none (an eager op).
void start_profile(void (*locate)(LaunchRecord& record));
std::vector<LaunchRecord> stop_profile();
bool profiling();
// Of a launch. What the thread waits meanwhile for device code is no time of the launch but of compilation.
class LaunchTimer {
 public:
  explicit LaunchTimer(const Backend& backend);
  uint64_t stop() const;  // nanoseconds since it was made

 private:
  const Backend& backend_;
  uint64_t start_, waited_;
};
// Whether launches are to be timed: for a profile or for LUTRA_LOGS=perf.
bool launches_watched();
void keep_record(LaunchRecord record);

// What capture and compilation took since the last start_profile. Invariant: scopes within scopes count once, and only
// in the thread that asked first.
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

// The bytes that a kernel reads and writes, by the sizes of the loops around its accesses; ints are its integer
// arguments. Accesses of one place count once, however many loops pass over it, and what the
// kernel has written itself is not read.
int64_t kernel_bytes(const loop::Kernel& kernel, const std::vector<int64_t>& ints);
// Of a step, and of those that ran side by side with it. made_by: of a library's.
void note_launch(const FlatPlan& flat, const HostValue* values, const LaunchStep* step, const LibraryChoice& made_by,
                 uint64_t nanoseconds);
// For calls beside an executable.
void note_extern(const ExternCall& call, const LibraryChoice& made_by, uint64_t nanoseconds);

}  // namespace lutra
