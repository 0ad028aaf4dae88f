// Writes entries as lines of a file: a newline within an entry is written as \n, a backslash as \\.
#include "vm/repl/history.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace lutra {
namespace {

constexpr size_t kMaxEntries = 10000;

std::string escape(const std::string& entry) {
  std::string out;
  for (char c : entry) {
    if (c == '\\') out += "\\\\";
    if (c == '\n') out += "\\n";
    if (c != '\\' && c != '\n') out += c;
  }
  return out + "\n";
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> entries;
  std::string entry;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '\n') {
      if (!entry.empty()) entries.push_back(entry);
      entry.clear();
    } else if (text[i] == '\\' && i + 1 < text.size()) {
      i++;
      entry += text[i] == 'n' ? '\n' : text[i];
    } else if (text[i] != 0) {
      entry += text[i];
    }
  }
  return entries;
}

// Opens and locks the file; returns -1 on failure. Tries again if another session replaced the file while this one
// waited for the lock.
int open_locked(const std::string& path) {
  for (int round = 0; round < 10; round++) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    struct stat mine, there;
    if (flock(fd, LOCK_EX) == 0 && fstat(fd, &mine) == 0 && stat(path.c_str(), &there) == 0 &&
        mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) {
      return fd;
    }
    close(fd);
  }
  return -1;
}

bool write_all(int fd, const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n <= 0) return false;
    at += size_t(n);
  }
  return true;
}

// Replaces the file by one with these entries. The old file must be locked.
void replace(const std::string& path, const std::vector<std::string>& entries) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  std::string text;
  for (const std::string& e : entries) text += escape(e);
  const bool whole = write_all(fd, text);
  close(fd);
  if (!whole || std::rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

}  // namespace

std::string history_path() {
  const char *state = std::getenv("XDG_STATE_HOME"), *home = std::getenv("HOME");
  std::string folder;
  if (state && *state == '/') {
    folder = state;
  } else if (home && *home == '/') {
    folder = std::string(home) + "/.local/state";
  } else {
    return "";
  }
  return folder + "/lutra/history";
}

std::vector<std::string> History::load() {
  if (path_.empty()) return {};
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  if (std::filesystem::create_directories(folder, error)) chmod(folder.c_str(), 0700);
  const int fd = open_locked(path_);
  if (fd < 0) {
    path_.clear();
    return {};
  }
  fchmod(fd, 0600);
  std::ifstream in(path_, std::ios::binary);
  std::vector<std::string> entries = split({std::istreambuf_iterator<char>(in), {}});
  if (entries.size() > kMaxEntries) {
    entries.erase(entries.begin(), entries.end() - kMaxEntries / 2);
    replace(path_, entries);
  }
  close(fd);
  return entries;
}

void History::append(const std::string& entry) {
  const int fd = path_.empty() ? -1 : open_locked(path_);
  if (fd < 0) return;
  write_all(fd, escape(entry));
  close(fd);
}

}  // namespace lutra
