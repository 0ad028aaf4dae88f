// Keeps keys and data as files of the user's cache directory, one file an entry. It drops an entry that cannot be
// written and ignores a damaged one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/core/settings.h"

namespace lutra {

// Returns the directory where Lutra keeps files between runs: lt.config.cache_dir (which starts as LUTRA_CACHE_DIR),
// else $XDG_CACHE_HOME/lutra, else ~/.cache/lutra. Returns "" if there is no such place.
std::string cache_directory();
// Sets the directory in settings(). "" restores the usual place. A relative path becomes absolute now.
void set_cache_directory(const std::string& path);

// Returns false if there is no whole entry of this key, or if others than the user may write to the folder.
bool read_cached(const char* kind, const std::string& key, std::string& data);
// Writes an entry to a temporary file and renames it. The first failure in a directory prints one line on stderr, and
// work goes on. `kind` is "segment", "cubin" or "ptx".
void write_cached(const char* kind, const std::string& key, const std::string& data);

struct CacheEntry {
  std::string kind, path;
  std::string about;  // the key's first line; "" if the file is no entry of this version
  uint64_t bytes;
  int64_t used;  // when it was last used, in seconds of Unix time
};
// Lists the entries, the one used last first.
std::vector<CacheEntry> list_cached();
// Removes all files. Returns how many it removed.
size_t clear_cached();

}  // namespace lutra
