// Entries: magic and version, the lengths and a checksum, the whole key, the data.
#include "ops/core/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

namespace lutra {
namespace {

struct Header {
  char magic[8];
  uint64_t key_bytes, data_bytes, checksum;
};
constexpr char kMagic[8] = {'L', 'U', 'T', 'R', 'A', 'C', '0', '1'};

std::mutex mutex;
std::string chosen;
std::atomic<bool> warned{false};

uint64_t hash(const std::string& text, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325ull ^ seed;
  for (unsigned char c : text) {
    h = (h ^ c) * 0x100000001b3ull;
    h ^= h >> 29;
  }
  return h;
}

std::string path_of(const char* kind, const std::string& key) {
  const std::string root = cache_directory();
  if (root.empty()) return "";
  char name[40];
  snprintf(name, sizeof name, "%016llx%016llx", static_cast<unsigned long long>(hash(key, 0)),
           static_cast<unsigned long long>(hash(key, 0x9E3779B97F4A7C15ull)));
  return root + "/" + kind + "/" + name;
}

void warn(const std::string& path, const char* why) {
  if (!warned.exchange(true)) fprintf(stderr, "lutra: %s: %s; compiled code is not kept\n", path.c_str(), why);
}

bool make_folder(const std::string& path) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    if (mkdir(path.substr(0, at).c_str(), 0700) != 0 && errno != EEXIST) return false;
  }
  return true;
}

bool write_all(int fd, const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = write(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    p += n, bytes -= size_t(n);
  }
  return true;
}

bool read_all(int fd, void* data, size_t bytes) {
  char* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = read(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n, bytes -= size_t(n);
  }
  return true;
}

// Ours alone to write, a plain file, of the length that its header says.
bool read_entry(int fd, const std::string& key, std::string& data) {
  struct stat s;
  Header h;
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid()) return false;
  if (!read_all(fd, &h, sizeof h) || memcmp(h.magic, kMagic, sizeof kMagic) != 0) return false;
  if (h.key_bytes != key.size() || h.data_bytes > uint64_t(s.st_size)) return false;
  if (uint64_t(s.st_size) != sizeof h + h.key_bytes + h.data_bytes) return false;
  std::string whole(key.size() + h.data_bytes, '\0');
  if (!read_all(fd, whole.data(), whole.size()) || whole.compare(0, key.size(), key) != 0) return false;
  if (hash(whole, 1) != h.checksum) return false;
  data = whole.substr(key.size());
  return true;
}

}  // namespace

std::string cache_directory() {
  std::lock_guard lock(mutex);
  if (!chosen.empty()) return chosen;
  const char* base = std::getenv("XDG_CACHE_HOME");
  if (base && *base == '/') return std::string(base) + "/lutra";
  const char* home = std::getenv("HOME");
  return home && *home == '/' ? std::string(home) + "/.cache/lutra" : "";
}

void set_cache_directory(const std::string& path) {
  // What a relative path means does not change with the working directory.
  const std::string whole = path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
  std::lock_guard lock(mutex);
  if (whole != chosen) warned = false;
  chosen = whole;
}

bool read_cached(const char* kind, const std::string& key, std::string& data) {
  const std::string path = path_of(kind, key);
  if (path.empty()) return false;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const bool whole = read_entry(fd, key, data);
  close(fd);
  return whole;
}

void write_cached(const char* kind, const std::string& key, const std::string& data) {
  const std::string path = path_of(kind, key);
  if (path.empty()) return;
  const std::string folder = path.substr(0, path.rfind('/'));
  if (!make_folder(folder)) return warn(folder, strerror(errno));
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return warn(folder, strerror(errno));
  Header h{};
  memcpy(h.magic, kMagic, sizeof kMagic);
  h.key_bytes = key.size(), h.data_bytes = data.size(), h.checksum = hash(key + data, 1);
  // The first failure tells why.
  int why = 0;
  const auto note = [&](bool good) {
    if (!good && !why) why = errno;
  };
  note(write_all(fd, &h, sizeof h) && write_all(fd, key.data(), key.size()) && write_all(fd, data.data(), data.size()));
  note(close(fd) == 0);
  if (!why) note(rename(temporary.c_str(), path.c_str()) == 0);
  if (why) {
    warn(path, strerror(why));
    unlink(temporary.c_str());
  }
}

}  // namespace lutra
