// Tests entries on disk: they are found again, never trusted if damaged, and shared by processes. Without room on the
// disk it works without them.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "ops/core/disk_cache.h"
#include "ops/core/interrupt.h"
#include "ops/core/settings.h"
#include "ops/cuda/loaded_module.h"

namespace lutra {
namespace {

struct Folder {
  Folder() {
    path = (std::filesystem::temp_directory_path() / "lutra-cache-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()));
    set_cache_directory(path + "/a/b");
  }
  ~Folder() {
    set_cache_directory("");
    std::filesystem::remove_all(path);
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> out;
    for (const auto& e : std::filesystem::recursive_directory_iterator(path)) {
      if (e.is_regular_file()) out.push_back(e.path());
    }
    return out;
  }
  std::string path;
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Runs f in a new process. Returns its output on stderr, after "failed" if f returned false.
std::string told(const std::string& folder, bool (*f)()) {
  const std::string path = folder + "/told";
  put(path, "");
  const pid_t pid = fork();
  if (pid == 0) {
    if (!freopen(path.c_str(), "a", stderr)) _exit(2);
    const bool good = f();
    fflush(stderr);
    _exit(good ? 0 : 1);
  }
  int status = 1;
  waitpid(pid, &status, 0);
  const std::string text = bytes_of(path);
  std::filesystem::remove(path);
  return (status == 0 ? "" : "failed: ") + text;
}

}  // namespace

TEST_CASE("entries of the disk cache are found by their whole key", "[cuda]") {
  Folder f;
  std::string data;
  CHECK_FALSE(read_cached("cubin", "key", data));
  write_cached("cubin", "key", std::string("da\0ta", 5));
  REQUIRE(read_cached("cubin", "key", data));
  CHECK(data == std::string("da\0ta", 5));
  CHECK_FALSE(read_cached("cubin", "key2", data));
  CHECK_FALSE(read_cached("other", "key", data));
  struct stat s;
  REQUIRE(stat((f.path + "/a/b/cubin").c_str(), &s) == 0);
  CHECK((s.st_mode & 0777) == 0700);
  CHECK(f.entries().size() == 1);
}

TEST_CASE("a damaged entry of the disk cache is not used, and is replaced", "[cuda]") {
  Folder f;
  write_cached("cubin", "key", "some data");
  const std::string path = f.entries().at(0), whole = bytes_of(path);
  std::string data;
  for (size_t i = 0; i < whole.size(); i++) {
    std::string damaged = whole;
    damaged[i] = char(damaged[i] ^ 4);
    put(path, damaged);
    CHECK_FALSE(read_cached("cubin", "key", data));
    put(path, whole.substr(0, i));
    CHECK_FALSE(read_cached("cubin", "key", data));
  }
  put(path, whole + "x");
  CHECK_FALSE(read_cached("cubin", "key", data));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  CHECK_FALSE(read_cached("cubin", "key", data));
  write_cached("cubin", "key", "new");
  REQUIRE(read_cached("cubin", "key", data));
  CHECK(data == "new");
}

TEST_CASE("entries of another version are replaced", "[cuda]") {
  Folder f;
  write_cached("cubin", "key", "some data");
  const std::string path = f.entries().at(0);
  std::string other = bytes_of(path), data;
  REQUIRE(other.substr(0, 8) == "LUTRAC02");
  put(path, other.replace(6, 2, "01"));
  CHECK_FALSE(read_cached("cubin", "key", data));
  write_cached("cubin", "key", "of this version");
  REQUIRE(read_cached("cubin", "key", data));
  CHECK(data == "of this version");
}

TEST_CASE("what cannot be kept is forgotten, and told once", "[cuda]") {
  Folder f;
  put(f.path + "/a", "a file where a folder should be");
  const std::string text = told(f.path, [] {
    std::string data;
    write_cached("cubin", "key", "data");
    write_cached("cubin", "other", "data");
    return !read_cached("cubin", "key", data);
  });
  CHECK(text == "lutra: " + f.path + "/a/b/cubin: Not a directory; compiled code is not kept\n");
}

// A file size limit makes write() answer as a full disk does: in part first, then not at all.
TEST_CASE("a full disk is told once, leaves no torn entry, and work goes on", "[cuda]") {
  Folder f;
  write_cached("cubin", "before", "kept");
  const std::string text = told(f.path, [] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    std::string data;
    write_cached("cubin", "key", std::string(10000, 'x'));
    write_cached("cubin", "other", std::string(10000, 'y'));
    write_cached("cubin", "small", "fits");
    return !read_cached("cubin", "key", data) && !read_cached("cubin", "other", data) &&
           read_cached("cubin", "small", data) && data == "fits" && read_cached("cubin", "before", data) &&
           data == "kept";
  });
  CHECK_THAT(text, Catch::StartsWith("lutra: " + f.path + "/a/b/cubin/") &&
                       Catch::EndsWith(": File too large; compiled code is not kept\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  CHECK(f.entries().size() == 2);
}

TEST_CASE("a directory without permission is told once; entries of others are not trusted", "[cuda]") {
  Folder f;
  write_cached("cubin", "key", "data");
  REQUIRE(chmod((f.path + "/a/b/cubin").c_str(), 0500) == 0);
  REQUIRE(chmod(f.path.c_str(), 0777) == 0);
  for (const char* part : {"/a", "/a/b", "/a/b/cubin"}) REQUIRE(chmod((f.path + part).c_str(), 0555) == 0);
  const std::string entry = f.entries().at(0);
  REQUIRE(chmod(entry.c_str(), 0644) == 0);
  const std::string text = told(f.path, [] {
    const bool other = geteuid() == 0;  // permissions bind everybody else
    if (other && setuid(65534) != 0) return false;
    std::string data;
    write_cached("cubin", "more", "data");
    write_cached("cubin", "and more", "data");
    return read_cached("cubin", "key", data) != other && !read_cached("cubin", "more", data);
  });
  const std::string why = geteuid() == 0 ? "it is another user's" : "Permission denied";
  CHECK(text == "lutra: " + f.path + "/a/b/cubin: " + why + "; compiled code is not kept\n");
  for (const char* part : {"/a", "/a/b", "/a/b/cubin"}) REQUIRE(chmod((f.path + part).c_str(), 0700) == 0);
  CHECK(f.entries().size() == 1);
}

TEST_CASE("a folder that others may write to is neither read nor written", "[cuda]") {
  Folder f;
  write_cached("segment", "key", "data");
  const std::string folder = f.path + "/a/b/segment";
  for (const mode_t mode : {0770, 0707}) {
    REQUIRE(chmod(folder.c_str(), mode) == 0);
    const std::string text = told(f.path, [] {
      std::string data;
      write_cached("segment", "more", "data");
      return !read_cached("segment", "key", data);
    });
    CHECK(text == "lutra: " + folder + ": others may write to it; compiled code is not kept\n");
  }
  CHECK(f.entries().size() == 1);
}

TEST_CASE("entries go, those that were not used for longest first, when they take too much", "[cuda]") {
  Folder f;
  settings().cache_bytes = 40000;
  std::string data;
  for (int i = 0; i < 8; i++) {
    write_cached("segment", str("key ", i), std::string(8000, 'x'));
    const timespec times[2] = {{1000 + i, 0}, {1000 + i, 0}};
    for (const CacheEntry& e : list_cached()) {
      if (e.about == str("key ", i)) REQUIRE(utimensat(AT_FDCWD, e.path.c_str(), times, 0) == 0);
    }
    if (i == 3) REQUIRE(read_cached("segment", "key 0", data));  // is used again
  }
  CHECK(read_cached("segment", "key 0", data));
  CHECK_FALSE(read_cached("segment", "key 1", data));
  CHECK(read_cached("segment", "key 7", data));
  uint64_t bytes = 0;
  for (const CacheEntry& e : list_cached()) bytes += e.bytes;
  CHECK(bytes <= 40000);
  settings().cache_bytes = uint64_t{1} << 30;
}

TEST_CASE("a look for old entries that is interrupted is made again at the next entry", "[cuda]") {
  Folder f;
  settings().cache_bytes = uint64_t{1} << 30;
  write_cached("segment", "key 0", std::string(8000, 'x'));
  settings().cache_bytes = 40000;
  const auto bytes = [] {
    uint64_t all = 0;
    for (const CacheEntry& e : list_cached()) all += e.bytes;
    return all;
  };
  for (int i = 1; i < 4; i++) write_cached("segment", str("key ", i), std::string(9000, 'x'));
  stop_reason = "pressed";
  CHECK_THROWS(write_cached("segment", "key 4", std::string(9000, 'x')));
  stop_reason = nullptr;
  CHECK(bytes() > 40000);
  write_cached("segment", "key 5", std::string(100, 'x'));
  CHECK(bytes() <= 40000);
  settings().cache_bytes = uint64_t{1} << 30;
}

TEST_CASE("so many entries go, however small they are", "[cuda]") {
  constexpr size_t kMost = 16384, kBefore = kMost + 500;
  Folder f;
  write_cached("segment", "key", "data");
  for (size_t i = 0; i < kBefore; i++) put(str(f.path, "/a/b/segment/f", i), "");
  for (int i = 0; i < 1100; i++) write_cached("segment", str("key ", i), "data");
  CHECK(f.entries().size() <= kMost);
  CHECK(f.entries().size() >= kMost / 2);
}

TEST_CASE("as many bytes go as come, however small the oldest entries are", "[cuda]") {
  constexpr size_t kSmall = 6000, kLarge = 64000, kLimit = 500000;
  Folder f;
  write_cached("segment", "key", "data");
  for (size_t i = 0; i < kSmall; i++) put(str(f.path, "/a/b/segment/f", i), "x");
  settings().cache_bytes = kLimit;
  for (int i = 0; i < 20; i++) write_cached("segment", str("key ", i), std::string(kLarge, 'x'));
  settings().cache_bytes = uint64_t{1} << 30;
  size_t left = 0;
  for (const std::string& path : f.entries()) left += std::filesystem::file_size(path);
  CHECK(left <= kLimit);
}

TEST_CASE("what a killed writer leaves is removed, and the cache is emptied", "[cuda]") {
  Folder f;
  write_cached("segment", "key", "data");
  const std::string left = f.entries().at(0) + ".abcdef", young = f.entries().at(0) + ".ghijkl";
  put(left, "half of"), put(young, "a writer is at it");
  const timespec times[2] = {{1000, 0}, {1000, 0}};
  REQUIRE(utimensat(AT_FDCWD, left.c_str(), times, 0) == 0);
  settings().cache_bytes = 1;  // the folders are looked through at the next entry
  write_cached("segment", "other", "data");
  settings().cache_bytes = uint64_t{1} << 30;
  CHECK_FALSE(std::filesystem::exists(left));
  CHECK(std::filesystem::exists(young));
  write_cached("cubin", "key", "data");
  CHECK(list_cached().at(0).about == "key");
  CHECK(clear_cached() == 2);
  CHECK(f.entries().empty());
}

TEST_CASE("a cache that is read only or off", "[cuda]") {
  Folder f;
  std::string data;
  write_cached("segment", "key", "data");
  settings().cache = CacheMode::kRead;
  write_cached("segment", "more", "data");
  CHECK(read_cached("segment", "key", data));
  CHECK_FALSE(read_cached("segment", "more", data));
  settings().cache = CacheMode::kOff;
  CHECK_FALSE(read_cached("segment", "key", data));
  settings().cache = CacheMode::kOn;
}

TEST_CASE("the cache directory: what was set, else the environment's", "[cuda]") {
  const char* names[] = {"XDG_CACHE_HOME", "HOME"};
  std::string saved[2];
  for (int i = 0; i < 2; i++) saved[i] = getenv(names[i]) ? getenv(names[i]) : "";
  setenv("HOME", "/home/of", 1);
  setenv("XDG_CACHE_HOME", "/caches", 1);
  CHECK(cache_directory() == "/caches/lutra");
  setenv("XDG_CACHE_HOME", "relative", 1);
  CHECK(cache_directory() == "/home/of/.cache/lutra");
  unsetenv("XDG_CACHE_HOME");
  CHECK(cache_directory() == "/home/of/.cache/lutra");
  set_cache_directory("/x/../y");
  CHECK(cache_directory() == "/y");
  set_cache_directory("here");
  CHECK(cache_directory() == std::filesystem::current_path().string() + "/here");
  set_cache_directory("");
  unsetenv("HOME");
  CHECK(cache_directory() == "");
  std::string data;
  write_cached("cubin", "key", "data");  // nowhere to keep it: nothing happens
  CHECK_FALSE(read_cached("cubin", "key", data));
  for (int i = 0; i < 2; i++) saved[i].empty() ? unsetenv(names[i]) : setenv(names[i], saved[i].c_str(), 1);
}

TEST_CASE("processes share a cache directory", "[cuda]") {
  Folder f;
  const std::string text(100000, 'x');
  std::vector<pid_t> children;
  for (int c = 0; c < 4; c++) {
    const pid_t pid = fork();
    if (pid == 0) {
      std::string data;
      int wrong = 0;
      for (int i = 0; i < 100; i++) {
        write_cached("cubin", "key", text);
        wrong += !read_cached("cubin", "key", data) || data != text;
      }
      _exit(wrong != 0);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = 1;
    waitpid(pid, &status, 0);
    CHECK(status == 0);
  }
  CHECK(f.entries().size() == 1);
}

TEST_CASE("cubins come from the disk where they are there", "[cuda]") {
  if (!cuda::has_nvrtc()) {
    WARN("skipped: " << cuda::nvrtc_problem());
    return;
  }
  Folder f;
  const std::string source = "extern \"C\" __global__ void k(float* p) { *p = 1; }\n";
  const std::string first = cuda::compile_cubin(source, 90);
  REQUIRE(f.entries().size() == 1);
  CHECK(cuda::compile_cubin(source, 90) == first);
  CHECK(cuda::compile_cubin(source, 80) != first);
  CHECK(f.entries().size() == 2);
  CHECK_THROWS_WITH(cuda::compile_cubin("extern \"C\" __global__ void k() { nonsense }", 90),
                    Catch::Contains("nonsense") && Catch::Contains("1: extern"));
}

}  // namespace lutra
