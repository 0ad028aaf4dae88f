// Stores repros as files.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "jit/repro/repro.h"
#include "ops/core/digest.h"
#include "ops/core/disk_cache.h"
#include "ops/core/files.h"

namespace lutra {
namespace {

namespace fs = std::filesystem;

// Writes a file that only its owner can read, since it has the user's tensors.
std::string write_file(const std::string& path, const std::string& bytes) {
  std::string temporary = path + ".XXXXXX";
  const int fd = mkstemp(temporary.data());
  if (fd < 0) return strerror(errno);
  const char* p = bytes.data();
  size_t left = bytes.size();
  while (left > 0) {
    const ssize_t n = ::write(fd, p, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    p += n, left -= size_t(n);
  }
  const std::string why = left > 0 ? strerror(errno ? errno : ENOSPC) : "";
  if (::close(fd) == 0 && why.empty() && rename(temporary.c_str(), path.c_str()) == 0) return "";
  const std::string reason = why.empty() ? strerror(errno) : why;
  unlink(temporary.c_str());
  return reason;
}

void drop_oldest(const std::string& folder) {
  std::vector<std::tuple<time_t, long, std::string>> files;
  each_file(folder, [&](const std::string& path, const struct stat& s) {
    if (path.ends_with(".repro")) files.emplace_back(s.st_mtim.tv_sec, s.st_mtim.tv_nsec, path);
  });
  if (files.size() <= kMaxRepros) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kMaxRepros < files.size(); i++) unlink(std::get<2>(files[i]).c_str());
}

}  // namespace

std::string keep_repro(const Repro& repro) {
  const std::string root = cache_directory();
  if (root.empty()) return "(not written: there is no cache directory)";
  const std::string folder = root + "/repro";
  std::error_code wrong;
  fs::create_directories(folder, wrong);
  if (wrong) return str("(not written: ", folder, ": ", wrong.message(), ")");
  chmod(folder.c_str(), 0700);
  const std::string bytes = write_repro(repro), path = str(folder, "/", digest(bytes).substr(0, 16), ".repro");
  const std::string why = write_file(path, bytes);
  if (!why.empty()) return str("(not written: ", path, ": ", why, ")");
  drop_oldest(folder);
  return path;
}

Repro load_repro(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("repro: ", path, ": ", strerror(errno));
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) fail("repro: ", path, ": cannot be read");
  return read_repro(bytes);
}

void save_repro(const std::string& path, const Repro& repro) {
  const std::string why = write_file(path, write_repro(repro));
  if (!why.empty()) fail("repro: ", path, ": ", why);
}

}  // namespace lutra
