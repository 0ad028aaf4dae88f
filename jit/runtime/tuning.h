// Finds the fastest candidate for a library call on this machine. It is measured while the program runs (mode
// "max-autotune") or by `lutra tune`, and saved in a plain file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/extern/extern.h"

namespace lutra {

class Backend;

enum class Tuning : uint8_t {
  kOff,       // uses the device's table, or what `lutra tune` found
  kSettled,   // uses what was measured, if anything was; measures nothing
  kInFlight,  // a run measures one option; no call is made only to measure
  kAtOnce,    // a call that has not been measured is repeated until it is
};

// The candidate that ran a call, and why (lt.profile).
struct LibraryChoice {
  enum Why : uint8_t { kNone, kFirst, kMeasuring, kFastest };
  const char* candidate = nullptr;
  Why why = kNone;
  int way = 0, threads = 0, options = 0;
  double gain = 1;  // the time without tuning, divided by the time of this choice
  std::string text() const;
};

// Runs the call. Invariant: the options of a call do not depend on its caller, so a result serves all equal calls:
// equal in op, dtypes, sizes, strides, attributes, threads and device.
LibraryChoice run_library(const Backend& backend, const ExternCall& call, Tuning tuning);

struct TunedCall {
  std::string call;  // "mm float32[512,512], float32[512,512] -> float32[512,512]"
  LibraryChoice choice;
};
// Between start and stop, each library call of the process is tuned at once. From then on all callers use the result.
void start_tuning();
std::vector<TunedCall> stop_tuning();
// Writes all results to the machine's table. Returns its path. Throws if it cannot write.
std::string save_tuning();

}  // namespace lutra
