// What the functions of the fake driver begin with: the name by which they are found, a lock, the failure that a test
// asked for.
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

// What the call is to answer before it does anything.
Result fake_enter(const char* symbol);
// A driver may be called on any thread. One call at a time: a launch may call back.
std::recursive_mutex& fake_mutex();
#define ALONE const std::lock_guard alone(fake_mutex())
#define ENTER(symbol)                          \
  const std::lock_guard entered(fake_mutex()); \
  if (const Result given = fake_enter(symbol); given != kSuccess) return given

// Kept as a node where a stream is captured.
bool fake_record(std::function<void()> work);
bool fake_recording();

}  // namespace lutra::cuda
