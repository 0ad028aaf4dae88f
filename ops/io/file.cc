// Reads and writes files. See file.h for the invariants of saving.
#include "ops/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ops/core/error.h"
#include "ops/core/interrupt.h"

namespace lutra {
namespace {
constexpr size_t kMaxAtOnce = size_t(4) << 20;  // bytes between two checks for a stop
}

void ByteSource::damaged(const std::string& why) const { fail("load: ", name_, " is damaged: ", why); }

InputFile::InputFile(const std::string& path) : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail("load: cannot open '", path, "': ", std::strerror(errno));
  struct stat s;
  const bool known = fstat(fd_, &s) == 0;
  if (!known || !S_ISREG(s.st_mode)) {
    close(fd_);
    fail("load: '", path, "' is no regular file");
  }
  size_ = uint64_t(s.st_size);
}

InputFile::~InputFile() { close(fd_); }

void InputFile::read_at(uint64_t offset, void* out, size_t size) const {
  auto* p = static_cast<char*>(out);
  while (size > 0) {
    check_stop();
    const ssize_t n = pread(fd_, p, std::min(size, kMaxAtOnce), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("load: cannot read '", path_, "': ", std::strerror(errno));
    if (n == 0) fail("load: '", path_, "' is damaged: it ends too early");
    p += n, offset += uint64_t(n), size -= size_t(n);
  }
}

void FileSource::read(void* out, size_t size) {
  if (size > left_) damaged("it ends too early");
  file_.read_at(offset_, out, size);
  offset_ += size, left_ -= size;
}

void MemorySource::read(void* out, size_t size) {
  if (size > left_) damaged("it ends too early");
  if (size > 0) std::memcpy(out, at_, size);
  at_ += size, left_ -= size;
}

void AtomicFile::fail_errno(const char* what) const {
  fail("save: cannot ", what, " '", path_, "': ", std::strerror(errno));
}

namespace {

// Returns whether fd is the file at path, and belongs to this user.
bool is_at(int fd, const std::string& path) {
  struct stat mine, there;
  return fstat(fd, &mine) == 0 && lstat(path.c_str(), &there) == 0 && S_ISREG(mine.st_mode) &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino && mine.st_uid == geteuid();
}

// Removes the file of a killed process, which nobody has locked. Returns false if there is no such file, or if it
// stays.
bool remove_stale(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  const bool removed = flock(fd, LOCK_EX | LOCK_NB) == 0 && is_at(fd, path) && unlink(path.c_str()) == 0;
  close(fd);
  return removed;
}

}  // namespace

// Creates a file that is locked until it is closed (if the file system has locks).
int AtomicFile::open_temporary(const std::string& prefix) {
  const auto numbered = [&](int i) { return str(prefix, i, ".tmp"); };
  const auto create = [&] {
    return open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  };
  for (int i = 0; i < 1000; i++) {
    temporary_ = numbered(i);
    int fd = create();
    if (fd < 0 && errno == EEXIST && remove_stale(temporary_)) fd = create();
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) break;
    // Before it is locked, another process may take it for a file that was left behind.
    const bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && is_at(fd, temporary_)) {
      while (remove_stale(numbered(++i))) continue;
      return fd;
    }
    close(fd);
    errno = EEXIST;
  }
  temporary_.clear();
  return -1;
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(path) {
  struct stat old;
  const bool exists = stat(path.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) fail("save: '", path, "' is no regular file");
  if (exists) {
    char* real = realpath(path.c_str(), nullptr);
    if (real) target_ = real;
    std::free(real);
  }
  const size_t slash = target_.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : target_.substr(0, slash + 1);
  const std::string base = (folder.empty() ? target_ : target_.substr(slash + 1)).substr(0, 200);
  fd_ = open_temporary(str(folder, ".", base, "."));
  if (fd_ < 0) fail_errno("write");
  if (exists && fchmod(fd_, old.st_mode & 07777) != 0) errno = 0;  // the mode on a foreign file system: best effort
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());  // before unlocking: the name may be reused afterwards
  if (fd_ >= 0) close(fd_);
}

void AtomicFile::write(const void* bytes, size_t size) {
  auto* p = static_cast<const char*>(bytes);
  while (size > 0) {
    check_stop();
    const ssize_t n = ::write(fd_, p, std::min(size, kMaxAtOnce));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("write");
    p += n, written_ += uint64_t(n), size -= size_t(n);
    push();
  }
}

// Writes to the disk a little at a time, so that commit's wait for the rest, which cannot be stopped, is short. If that
// is not possible, commit writes everything.
void AtomicFile::push() {
  if (written_ - pushed_ < kMaxAtOnce) return;
  sync_file_range(fd_, off_t(pushed_), off_t(written_ - pushed_), SYNC_FILE_RANGE_WRITE);
  if (pushed_ > 0) sync_file_range(fd_, 0, off_t(pushed_), SYNC_FILE_RANGE_WAIT_BEFORE);
  pushed_ = written_;
}

void AtomicFile::commit() {
  if (fsync(fd_) != 0) fail_errno("write");
  // Renames before it unlocks: an unlocked file with a temporary name counts as left behind.
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail_errno("replace");
  temporary_.clear();
  close(fd_);
  fd_ = -1;
  // Syncing the folder writes the rename to the disk. If a folder cannot be synced, the file is still whole.
  const size_t slash = target_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target_.substr(0, slash + 1);
  const int dir = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return;
  (void)fsync(dir);
  close(dir);
}

}  // namespace lutra
