// Keys and data as files of the user's cache directory, one an entry; what cannot be kept is forgotten, what was
// damaged is not trusted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/core/settings.h"

namespace lutra {

// Where Lutra keeps files between runs: what was set (lt.config.cache_dir, which starts as LUTRA_CACHE_DIR), else
// $XDG_CACHE_HOME/lutra, else ~/.cache/lutra; empty where there is no such place.
std::string cache_directory();
// In settings(); "" is back to the usual place. A relative path is made whole now.
void set_cache_directory(const std::string& path);

// False where there is no whole entry of this key, and where others than the user may write to the folder.
bool read_cached(const char* kind, const std::string& key, std::string& data);
// Written to a temporary name and renamed. The first failure in a directory is told in one line on stderr; work
// goes on. kind: "segment", "cubin", "ptx".
void write_cached(const char* kind, const std::string& key, const std::string& data);

struct CacheEntry {
  std::string kind, path;
  std::string about;  // the key's first line; "" where the file is no entry of this version
  uint64_t bytes;
  int64_t used;  // when, in seconds of Unix's time
};
// The one used last first.
std::vector<CacheEntry> list_cached();
// How many files went.
size_t clear_cached();

}  // namespace lutra
