// Lists the files of a folder.
#pragma once
#include <sys/stat.h>

#include <functional>
#include <string>

namespace lutra {

// Calls f for each plain file in a folder. A folder that cannot be read counts as empty.
void each_file(const std::string& folder, const std::function<void(const std::string& path, const struct stat&)>& f);

}  // namespace lutra
