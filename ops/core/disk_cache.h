// Keys and data as files of the user's cache directory, one an entry; what cannot be kept is forgotten, what was
// damaged is not trusted.
#pragma once
#include <cstdint>
#include <string>

namespace lutra {

// Where Lutra keeps files between runs: what was set (lt.config.cache_dir, which starts as LUTRA_CACHE_DIR), else
// $XDG_CACHE_HOME/lutra, else ~/.cache/lutra; empty where there is no such place.
std::string cache_directory();
// Of the process; "" is back to the usual place. A relative path is made whole now.
void set_cache_directory(const std::string& path);

// False where there is no whole entry of this key.
bool read_cached(const char* kind, const std::string& key, std::string& data);
// Written to a temporary name and renamed. The first failure in a directory is told in one line on stderr; work
// goes on.
void write_cached(const char* kind, const std::string& key, const std::string& data);

}  // namespace lutra
