// What a Lua state sets for its ops and compilations (lt.config). A state has its own and installs them on the thread
// that runs it (ops/defs/modes.h); a thread without a state goes by those of the process.
#pragma once
#include <cstdint>
#include <string>

namespace lutra {

enum class CacheMode { kOn, kRead, kOff };  // entries on disk are read and written, read only, or neither

struct Settings {
  int num_threads = 0;     // 0: as many as the machine has
  std::string isa;         // empty: the best of the machine
  bool cudagraphs = true;  // segments on a GPU are recorded
  CacheMode cache = CacheMode::kOn;
  std::string cache_directory;               // a whole path; empty: the usual place (disk_cache.h)
  uint64_t cache_bytes = uint64_t{1} << 30;  // that all entries together may take, about; beyond it the oldest go
};

extern constinit thread_local Settings* installed_settings;
Settings& process_settings();
inline Settings& settings() { return installed_settings ? *installed_settings : process_settings(); }

// This thread has these settings for a scope: work that is done later goes by those of the moment when it was asked
// for.
class SettingsScope {
 public:
  explicit SettingsScope(Settings* own) : saved_(installed_settings) { installed_settings = own; }
  ~SettingsScope() { installed_settings = saved_; }
  SettingsScope(const SettingsScope&) = delete;

 private:
  Settings* saved_;
};

}  // namespace lutra
