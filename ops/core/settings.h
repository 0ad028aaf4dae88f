// The settings of a Lua state for its ops and compilations (lt.config). A state installs its own settings on the thread
// that runs it (ops/defs/modes.h). A thread without a state uses the settings of the process.
#pragma once
#include <cstdint>
#include <string>

namespace lutra {

enum class CacheMode { kOn, kRead, kOff };  // disk entries are read and written, only read, or neither

struct Settings {
  int num_threads = 0;     // 0: as many as the machine has
  std::string isa;         // empty: the machine's best
  bool cudagraphs = true;  // records segments on a GPU as CUDA graphs
  CacheMode cache = CacheMode::kOn;
  std::string cache_directory;               // an absolute path; empty: the usual place (disk_cache.h)
  uint64_t cache_bytes = uint64_t{1} << 30;  // all entries together, about; then the oldest go
};

extern constinit thread_local Settings* installed_settings;
Settings& process_settings();
inline Settings& settings() { return installed_settings ? *installed_settings : process_settings(); }

// Installs settings on this thread for a scope. Deferred work uses it to run with the settings of the moment it was
// requested.
class SettingsScope {
 public:
  explicit SettingsScope(Settings* own) : saved_(installed_settings) { installed_settings = own; }
  ~SettingsScope() { installed_settings = saved_; }
  SettingsScope(const SettingsScope&) = delete;

 private:
  Settings* saved_;
};

}  // namespace lutra
