// Which candidate of a library's call is the fastest on this machine: measured while the program runs (mode
// "max-autotune") or by `lutra tune`, and kept as a plain file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/extern/extern.h"

namespace lutra {

class Backend;

enum class Tuning : uint8_t {
  kOff,       // the device's table says, or what `lutra tune` found
  kSettled,   // what was measured, where it was; nothing is measured
  kInFlight,  // a run measures one option; no run is made for that alone
  kAtOnce,    // a call that has not been measured is made as often as that takes
};

// Who ran a call, and why (lt.profile).
struct LibraryChoice {
  enum Why : uint8_t { kNone, kFirst, kMeasuring, kFastest };
  const char* candidate = nullptr;
  Why why = kNone;
  int way = 0, threads = 0, options = 0;
  double gain = 1;  // the time of what runs without tuning over that of this one
  std::string text() const;
};

// Runs the call. Invariant: a call has the same options whoever makes it, so what is found serves all equal ones: equal
// in op, dtypes, sizes, strides, attributes, threads and device.
LibraryChoice run_library(const Backend& backend, const ExternCall& call, Tuning tuning);

struct TunedCall {
  std::string call;  // "mm float32[512,512], float32[512,512] -> float32[512,512]"
  LibraryChoice choice;
};
// From start to stop each library call of the process is tuned at once, and is run so by whoever makes it from now on.
void start_tuning();
std::vector<TunedCall> stop_tuning();
// Writes all that is known to the machine's table; its path. An error where that cannot be.
std::string save_tuning();

}  // namespace lutra
