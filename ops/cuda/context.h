// One GPU of this process: its primary context, the stream that all of Lutra's work on it goes to, and its limits.
#pragma once
#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "ops/core/device.h"
#include "ops/core/error.h"
#include "ops/cuda/driver.h"

namespace lutra::cuda {

// 0 where there is no driver; problem() then says why.
int device_count();
bool is_available();
const std::string& problem();

// Invariants:
// 1. All of Lutra's work on a GPU is on `stream`, in program order, so memory that is freed may be used again at once.
// 2. Once a kernel has trapped the context is lost: each later call says so, the CPU goes on.
struct Context {
  // A launch as errors tell it that show later: texts are copied, as what they come from may be gone by then.
  struct Launch {
    char op[32] = {}, file[64] = {};
    int line = 0;
  };

  int index = 0;
  int driver_index = 0;  // the driver's handle of the device
  ContextHandle handle = nullptr;
  StreamHandle stream = nullptr;
  std::string name;
  int arch = 0;  // 90: sm_90
  int multiprocessors = 0;
  int threads = 0, registers = 0;  // of a multiprocessor
  int cache_bytes = 0;             // of the cache that all multiprocessors share
  double clock = 0;                // of a multiprocessor, a second
  double memory_rate = 0;          // bytes a second, at most
  int shared_bytes = 0;            // that a block may ask for
  size_t total_bytes = 0;
  std::atomic<bool> lost{false};
  std::atomic<bool> loops{false};  // loops that the GPU ends by itself may be under way
  // Under `mutex`: the launches that came last, the newest at (launches - 1) % 8, and what the context was lost to.
  std::mutex mutex;
  std::array<Launch, 8> recent;
  uint64_t launches = 0;
  std::string lost_to;
  std::vector<int> peers;  // under `mutex`: GPUs whose memory it was asked to reach by itself
};

// Makes the GPU's context current on this thread. Throws Error(kUser) with the reason where it cannot be had.
Context& context(Device device);

// A failed call of the driver is an Error that names what was asked and, where known, the launch that failed before.
[[noreturn]] void raise(Result result, const char* what);
inline void check(Result result, const char* what) {
  if (result != kSuccess) raise(result, what);
}
#define LUTRA_CUDA(call) ::lutra::cuda::check(::lutra::cuda::driver()->call, #call)

// Who waits for the GPU calls it first. Where loops are under way it waits for them; they end where the host is to
// stop.
void wait_for_loops(Context& c);
// Waits for all work given so far; raises what went wrong in it: faults of kernels (faults.h), traps.
void synchronize(Device device);
// LUTRA_CUDA_SYNC=1
bool sync_wanted();
// After each launch of a kernel or library: with LUTRA_CUDA_SYNC=1 waits, so that errors name the right launch.
// what, file, line: the op and the user's line; remembered for errors that show later.
void launched(Context& c, const char* op, const char* file, int line);

}  // namespace lutra::cuda
