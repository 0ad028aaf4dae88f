// Process-wide settings of the runtime (lt.config), and the instruction sets that follow from them.
#pragma once
#include <string>

#include "ops/extern/extern.h"

namespace lutra {

struct RuntimeConfig {
  int num_threads = 0;                                       // 0: as many as the machine has
  std::string isa;                                           // empty: best_isa()
  bool perf = false;                                         // count and time kernels (LUTRA_LOGS=perf)
  void (*recording_log)(const std::string& text) = nullptr;  // LUTRA_LOGS=cudagraphs
  void (*mapping_log)(const std::string& text) = nullptr;    // LUTRA_LOGS=mapping
};
RuntimeConfig& runtime_config();

// This thread has these settings for a scope: work that is done later goes by those of the moment when it was asked
// for.
class ConfigScope {
 public:
  explicit ConfigScope(RuntimeConfig& settings);
  ~ConfigScope();
  ConfigScope(const ConfigScope&) = delete;

 private:
  RuntimeConfig* saved_;
};

// The instruction set that kernels are built for now.
std::string current_isa();
// The one that libraries' kernels and our own beside them run with.
ExternIsa current_extern_isa();

}  // namespace lutra
