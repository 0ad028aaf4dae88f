// An entry's file holds a magic number with the version, the lengths, a checksum, the whole key, and the data. Each
// kind has its own folder, which only its owner may write to.
#include "ops/core/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "ops/core/digest.h"
#include "ops/core/files.h"
#include "ops/core/interrupt.h"

namespace lutra {
namespace {

struct Header {
  char magic[8];
  uint64_t key_bytes, data_bytes, checksum;
};
constexpr char kMagic[8] = {'L', 'U', 'T', 'R', 'A', 'C', '0', '2'};

std::mutex mutex;
std::string warned;  // the cache directory that the last warning was about
struct Written {
  uint64_t bytes = 0, files = 0;
};
std::map<std::string, Written> written;  // by cache directory: what was written since the last call of shrink

constexpr const char* kCacheKinds[] = {"segment", "cubin", "ptx"};

std::string folder_of(const char* kind) {
  const std::string root = cache_directory();
  return root.empty() ? "" : root + "/" + kind;
}

void warn(const std::string& path, const char* why) {
  const std::string root = cache_directory();
  std::lock_guard lock(mutex);
  if (std::exchange(warned, root) != root) {
    fprintf(stderr, "lutra: %s: %s; compiled code is not kept\n", path.c_str(), why);
  }
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

// Returns whether only this user may write to the folder: others could have put code there.
bool is_ours(const std::string& folder) {
  struct stat s;
  if (lstat(folder.c_str(), &s) != 0) return false;
  const char* why = !S_ISDIR(s.st_mode)                      ? "it is no folder"
                    : s.st_uid != geteuid()                  ? "it is another user's"
                    : (s.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "others may write to it"
                                                             : nullptr;
  if (why) warn(folder, why);
  return !why;
}

// Reads an entry. The file must be a plain file of this user, and its length must be what its header says.
bool read_entry(int fd, const std::string& key, std::string& data) {
  struct stat s;
  Header h;
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid()) return false;
  if (!read_all(fd, &h, sizeof h) || memcmp(h.magic, kMagic, sizeof kMagic) != 0) return false;
  if (h.key_bytes != key.size() || h.data_bytes > uint64_t(s.st_size)) return false;
  if (uint64_t(s.st_size) != sizeof h + h.key_bytes + h.data_bytes) return false;
  std::string whole(key.size() + h.data_bytes, '\0');
  if (!read_all(fd, whole.data(), whole.size()) || whole.compare(0, key.size(), key) != 0) return false;
  if (checksum(whole) != h.checksum) return false;
  data = whole.substr(key.size());
  return true;
}

// Returns whether the path is the temporary name of a file. A writer renames its file when it is whole, and a killed
// writer leaves the temporary name behind.
bool is_temporary(const std::string& path) { return path.find('.', path.rfind('/')) != std::string::npos; }
constexpr time_t kWriting = 600;  // in seconds; a writer that began earlier has been killed

// Returns the first line of the entry's key.
std::string about(const std::string& path) {
  std::string text;
  Header h;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return text;
  if (read_all(fd, &h, sizeof h) && memcmp(h.magic, kMagic, sizeof kMagic) == 0) {
    text.resize(size_t(std::min<uint64_t>(h.key_bytes, 200)));
    if (!read_all(fd, text.data(), text.size())) text.clear();
  }
  close(fd);
  return text.substr(0, text.find('\n'));
}

// The compiler waits for shrink, so shrink must look at few files and remove few: some file systems take milliseconds
// to remove one. But it removes at least as many bytes as were written since the last call.
constexpr uint64_t kMaxFiles = 16384, kMaxGone = 256;

// If the entries exceed the limits, removes the oldest ones until a quarter of the limits is free. That may take
// several calls. `come` is the number of bytes written since the last call.
void shrink(uint64_t come) {
  struct File {
    std::string path;
    timespec used;
    uint64_t bytes;
  };
  std::vector<File> files;
  uint64_t total = 0;
  const uint64_t limit = settings().cache_bytes;
  for (const char* kind : kCacheKinds) {
    each_file(cache_directory() + "/" + kind, [&](const std::string& path, const struct stat& s) {
      check_stop();
      if (is_temporary(path)) {
        if (s.st_mtime + kWriting < time(nullptr)) unlink(path.c_str());
        return;
      }
      files.push_back({path, s.st_mtim, uint64_t(s.st_size)});
      total += uint64_t(s.st_size);
    });
  }
  uint64_t count = files.size(), gone = 0, bytes_gone = 0;
  if (total <= limit && count <= kMaxFiles) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const File& f : files) {
    check_stop();
    if (total <= limit / 4 * 3 && count <= kMaxFiles / 4 * 3) return;
    if (gone >= kMaxGone && bytes_gone >= come) return;
    if (unlink(f.path.c_str()) == 0) total -= f.bytes, bytes_gone += f.bytes, count--;
    gone++;
  }
}

// Returns the bytes written since the last check, once the folders may have grown by a sixteenth of the limits. A
// process that writes few entries never gets there, so one entry in 64, chosen by its name, triggers the check too.
std::optional<uint64_t> may_be_full(const std::string& entry, uint64_t bytes) {
  std::lock_guard lock(mutex);
  Written& since = written[cache_directory()];
  since.bytes += bytes, since.files++;
  const bool looks = (entry[0] == '0' && entry[1] < '4') || since.bytes >= settings().cache_bytes / 16 ||
                     since.files >= kMaxFiles / 16;
  if (!looks) return {};
  return std::exchange(since, {}).bytes;
}

}  // namespace

std::string cache_directory() {
  if (!settings().cache_directory.empty()) return settings().cache_directory;
  const char* base = std::getenv("XDG_CACHE_HOME");
  if (base && *base == '/') return std::string(base) + "/lutra";
  const char* home = std::getenv("HOME");
  return home && *home == '/' ? std::string(home) + "/.cache/lutra" : "";
}

void set_cache_directory(const std::string& path) {
  // Made absolute now, so that a later change of the working directory does not change it.
  settings().cache_directory = path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
}

bool read_cached(const char* kind, const std::string& key, std::string& data) {
  const std::string folder = folder_of(kind);
  if (folder.empty() || settings().cache == CacheMode::kOff) return false;
  const std::string path = folder + "/" + digest(key);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const bool whole = is_ours(folder) && read_entry(fd, key, data);
  if (whole && settings().cache == CacheMode::kOn) futimens(fd, nullptr);  // now it is the entry used last
  close(fd);
  return whole;
}

void write_cached(const char* kind, const std::string& key, const std::string& data) {
  const std::string folder = folder_of(kind);
  if (folder.empty() || settings().cache != CacheMode::kOn) return;
  if (!make_folder(folder)) return warn(folder, strerror(errno));
  if (!is_ours(folder)) return;
  const std::string entry = digest(key), path = folder + "/" + entry;
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return warn(folder, strerror(errno));
  Header h{};
  memcpy(h.magic, kMagic, sizeof kMagic);
  h.key_bytes = key.size(), h.data_bytes = data.size(), h.checksum = checksum(key + data);
  // Keeps the errno of the first failure.
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
  const std::optional<uint64_t> come = may_be_full(entry, sizeof h + key.size() + data.size());
  if (!come) return;
  try {
    shrink(*come);
  } catch (...) {  // an interrupt: the next entry checks again
    std::lock_guard lock(mutex);
    Written& since = written[cache_directory()];
    since.files = kMaxFiles, since.bytes += *come;
    throw;
  }
}

std::vector<CacheEntry> list_cached() {
  std::vector<CacheEntry> entries;
  const std::string root = cache_directory();
  for (const char* kind : kCacheKinds) {
    each_file(root + "/" + kind, [&](const std::string& path, const struct stat& s) {
      if (!is_temporary(path)) entries.push_back({kind, path, about(path), uint64_t(s.st_size), int64_t(s.st_mtime)});
    });
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.used > b.used; });
  return entries;
}

size_t clear_cached() {
  size_t removed = 0;
  for (const char* kind : kCacheKinds) {
    each_file(cache_directory() + "/" + kind,
              [&](const std::string& path, const struct stat&) { removed += unlink(path.c_str()) == 0; });
  }
  return removed;
}

}  // namespace lutra
