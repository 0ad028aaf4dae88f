// Records events on a GPU's stream and measures times between them.
#include "ops/cuda/event.h"

#include "ops/cuda/faults.h"

namespace lutra::cuda {
namespace {
constexpr Result kNotReady = 600;
}  // namespace

Event::Event(Device device, bool timing) : device_(device), timing_(timing) {
  context(device);
  LUTRA_CUDA(event_create(&handle_, timing ? 0 : kNoTiming));
}

// If the context is lost, the call fails, and nothing is left to free.
Event::~Event() {
  if (const Driver* d = driver(); d && handle_) d->event_destroy(handle_);
}

void Event::record() {
  Context& c = context(device_);
  LUTRA_CUDA(event_record(handle_, c.stream));
  recorded_ = true;
}

bool Event::passed() {
  if (!recorded_) return true;
  context(device_);
  const Result result = driver()->event_query(handle_);
  if (result == kNotReady) return false;
  check(result, "event_query()");
  return true;
}

void Event::synchronize() {
  if (!recorded_) return;
  Context& c = context(device_);
  LUTRA_CUDA(event_synchronize(handle_));
  raise_fault(c);
}

float Event::elapsed_ms(const Event& end) {
  context(device_);
  float ms = 0;
  const Result result = driver()->event_elapsed(&ms, handle_, end.handle_);
  if (result == kNotReady) fail("elapsed_time: the work before an event is not done yet: synchronize() first");
  check(result, "event_elapsed()");
  return ms;
}

}  // namespace lutra::cuda
