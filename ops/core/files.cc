#include "ops/core/files.h"

#include <dirent.h>

#include <memory>

namespace lutra {

// Uses readdir, because std::filesystem's iterator ends the process when memory runs out.
void each_file(const std::string& folder, const std::function<void(const std::string&, const struct stat&)>& f) {
  const auto close = [](DIR* d) { closedir(d); };
  const std::unique_ptr<DIR, decltype(close)> all(opendir(folder.c_str()), close);
  if (!all) return;
  while (const dirent* e = readdir(all.get())) {
    struct stat s;
    const std::string path = folder + "/" + e->d_name;
    if (lstat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode)) f(path, s);
  }
}

}  // namespace lutra
