// The logs of the runtime that LUTRA_LOGS switches on for the process, and the instruction sets that settings()
// selects.
#pragma once
#include <string>

#include "ops/extern/extern.h"

namespace lutra {

struct RuntimeConfig {
  bool tune = false;                                         // `lutra tune` measures library calls (tuning.h)
  bool perf = false;                                         // count and time kernels (LUTRA_LOGS=perf)
  void (*recording_log)(const std::string& text) = nullptr;  // LUTRA_LOGS=cudagraphs
  void (*mapping_log)(const std::string& text) = nullptr;    // LUTRA_LOGS=mapping
};
RuntimeConfig& runtime_config();

// Returns the instruction set that kernels are built for now.
std::string current_isa();
// Returns the one for libraries' kernels and for our own extern kernels.
ExternIsa current_extern_isa();

}  // namespace lutra
