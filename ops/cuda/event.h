// A point in a GPU's work that one can wait for, query, or measure from.
#pragma once
#include "ops/cuda/context.h"

namespace lutra::cuda {

constexpr unsigned kNoTiming = 2;  // CU_EVENT_DISABLE_TIMING

// Invariant: an event that was never recorded counts as passed and has no time.
class Event {
 public:
  explicit Event(Device device, bool timing = false);
  ~Event();
  Event(const Event&) = delete;

  Device device() const { return device_; }
  bool timing() const { return timing_; }
  bool recorded() const { return recorded_; }
  void record();  // records it after the work given so far
  bool passed();
  void synchronize();                  // waits for it; raises the errors of earlier work
  float elapsed_ms(const Event& end);  // from this to end; both must be recorded, with timing and passed

 private:
  Device device_;
  bool timing_, recorded_ = false;
  EventHandle handle_ = nullptr;
};

}  // namespace lutra::cuda
