// One GPU of this process: its primary context, the stream for all of Lutra's work on it, and its limits.
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

// Returns 0 if there is no driver. problem() then tells why.
int device_count();
bool is_available();
const std::string& problem();

// Invariants:
// 1. All of Lutra's work on a GPU is on `stream`, in program order, so freed memory may be reused at once.
// 2. After a kernel has trapped, the context is lost: each later call raises that, and the CPU goes on.
struct Context {
  // A launch, for errors that appear later. Texts are copied, because their owners may be gone by then.
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
  double clock = 0;                // of a multiprocessor, in Hz
  double memory_rate = 0;          // the most bytes a second
  int shared_bytes = 0;            // the most that a block may use
  size_t total_bytes = 0;
  std::atomic<bool> lost{false};
  std::atomic<bool> loops{false};  // loops that the GPU ends by itself may be running
  // Guarded by `mutex`: the last launches, the newest at (launches - 1) % 8, and the reason why the context was lost.
  std::mutex mutex;
  std::array<Launch, 8> recent;
  uint64_t launches = 0;
  std::string lost_to;
  std::vector<int> peers;  // guarded by `mutex`: GPUs whose memory it was asked to access directly
};

// Makes the GPU's context current on this thread. Throws Error(kUser) with the reason if it is not available.
Context& context(Device device);

// Raises an Error for a failed driver call. It names the call and, if known, the launch that failed before.
[[noreturn]] void raise(Result result, const char* what);
inline void check(Result result, const char* what) {
  if (result != kSuccess) raise(result, what);
}
#define LUTRA_CUDA(call) ::lutra::cuda::check(::lutra::cuda::driver()->call, #call)

// Call this before waiting for the GPU. If loops are running, it waits for them, and ends them if the host must stop.
void wait_for_loops(Context& c);
// Waits for all work given so far. Raises its errors: faults of kernels (faults.h), traps.
void synchronize(Device device);
// Returns whether LUTRA_CUDA_SYNC=1 is set.
bool sync_wanted();
// Called after each launch of a kernel or library. With LUTRA_CUDA_SYNC=1 it waits, so that errors name the right
// launch. what, file, line: the op and the user's line, which are remembered for errors that appear later.
void launched(Context& c, const char* op, const char* file, int line);

}  // namespace lutra::cuda
