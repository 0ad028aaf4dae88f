// Entries on disk: found again, never trusted when damaged, shared by processes, done without where there is no room.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "ops/cuda/disk_cache.h"
#include "ops/cuda/program.h"

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

TEST_CASE("what cannot be kept is forgotten", "[cuda]") {
  Folder f;
  put(f.path + "/a", "a file where a folder should be");
  std::string data;
  write_cached("cubin", "key", "data");
  CHECK_FALSE(read_cached("cubin", "key", data));
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
