// Files of a folder.
#pragma once
#include <sys/stat.h>

#include <functional>
#include <string>

namespace lutra {

// Each plain file in a folder; none where it cannot be read.
void each_file(const std::string& folder, const std::function<void(const std::string& path, const struct stat&)>& f);

}  // namespace lutra
