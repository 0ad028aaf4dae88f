// A driver without a GPU: device memory is host memory, streams do their work at once, launches call a host function.
// Any call can be made to fail. The same source is a library that LUTRA_CUDA_DRIVER may name (see fake_driver.cc).
#pragma once
#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "ops/cuda/driver.h"

namespace lutra::cuda {

struct FakeGpu {
  int devices = 1;
  size_t memory = size_t(256) << 20;  // of each device
  int version = 12040;
  Result init_result = kSuccess;
  // The call (counted from 0) that fails, and how; by its symbol, where one is given.
  int fail_at = -1;
  std::string fail_symbol;
  Result fail_with = 1;
  // Done by every launch.
  void (*kernel)(void** params) = nullptr;

  // The calls so far.
  int calls = 0;
  std::string failed;      // the symbol of the call that was made to fail
  Result lost = kSuccess;  // what every call answers since a fatal failure
  std::map<DevicePtr, size_t> blocks;
  std::map<void*, size_t> pinned;
  bool idle = false;  // FAKE_CUDA_IDLE: launches do nothing, which leaves the bytes that a program holds to be counted
  bool protects =
      false;  // FAKE_CUDA_PROTECT: host code that reads or writes device memory ends by SIGSEGV, as on a GPU
  std::set<std::pair<void*, void*>> peers;  // contexts, and those whose memory they reach
  int streams = 0, events = 0, contexts = 0, launches = 0;
  size_t used = 0;
  bool clean() const { return blocks.empty() && pinned.empty() && !streams && !events && !contexts; }
};
FakeGpu& fake_gpu();

// For a test: a fresh fake is the driver.
class FakeScope {
 public:
  explicit FakeScope(const FakeGpu& gpu = {});
  ~FakeScope();
  FakeScope(const FakeScope&) = delete;
};

}  // namespace lutra::cuda
