// The common beginning of the functions of the fake driver: their exported name, a lock, and the failure that a test
// requested.
#pragma once
#include <functional>
#include <mutex>

#include "tests/cuda/fake_driver.h"

#ifdef LUTRA_FAKE_LIBRARY
#define FAKE(symbol) extern "C" __attribute__((visibility("default"))) Result symbol
#else
#define FAKE(symbol) extern "C" __attribute__((visibility("default"))) Result fake_##symbol
#endif

namespace lutra::cuda {

constexpr Result kInvalidValue = 1, kNotFound = 500;

// Counts a call. Returns the result that it must return at once, or kSuccess.
Result fake_enter(const char* symbol);
// A driver may be called on any thread. One call at a time: a launch may call back.
std::recursive_mutex& fake_mutex();
// A program that makes allocations fail leaves those in here alone.
extern "C" __attribute__((weak)) void fake_cuda_within(int change);
class FakeCall {
 public:
  FakeCall() {
    if (fake_cuda_within) fake_cuda_within(1);
  }
  ~FakeCall() {
    if (fake_cuda_within) fake_cuda_within(-1);
  }

 private:
  const std::lock_guard<std::recursive_mutex> alone_{fake_mutex()};
};
#define ALONE const FakeCall alone
#define ENTER(symbol)     \
  const FakeCall entered; \
  if (const Result given = fake_enter(symbol); given != kSuccess) return given

// A scope in which the device works. Only then its memory can be reached (FAKE_CUDA_PROTECT).
class FakeWork {
 public:
  FakeWork();
  ~FakeWork();
  FakeWork(const FakeWork&) = delete;
};

// Kept as a node where a stream is captured.
bool fake_record(std::function<void()> work);
bool fake_recording();

}  // namespace lutra::cuda
