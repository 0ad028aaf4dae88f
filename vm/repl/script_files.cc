// Reads files beneath a script's folder; see script_files.h. A link to a file outside the folder is not readable.
#include "vm/repl/script_files.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace lutra {
namespace {

std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), std::free);
  return real ? real.get() : "";
}

}  // namespace

std::string folder_of_script(const char* path) {
  const std::string real = path ? resolved(path) : "";
  return real.substr(0, real.rfind('/') == std::string::npos ? 0 : real.rfind('/') + 1);
}

int read_script_file(void* arg, const char* name, lutra_Writer sink, void* sink_arg) {
  const auto& folder = *static_cast<const std::string*>(arg);
  const std::string path = folder.empty() || *name == '/' ? "" : resolved(folder + name);
  struct stat about;
  const bool beneath = path.size() > folder.size() && path.compare(0, folder.size(), folder) == 0;
  if (!beneath || stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return LUTRA_ERROR_FILE;
  const std::unique_ptr<FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return LUTRA_ERROR_FILE;
  char part[1 << 14];
  while (const size_t n = std::fread(part, 1, sizeof part, file.get())) sink(sink_arg, part, n);
  return std::ferror(file.get()) ? LUTRA_ERROR_FILE : LUTRA_OK;
}

}  // namespace lutra
