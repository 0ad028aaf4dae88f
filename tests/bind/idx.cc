// Tests intact and damaged IDX files: the reader never trusts a header.
#include "vm/bind/idx.h"

#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "ops/core/error.h"

using namespace lutra;

namespace {

struct TempFile {
  std::string path;
  explicit TempFile(const std::string& bytes, bool zipped = false)
      : path((std::filesystem::temp_directory_path() / ("lutra-idx-" + std::to_string(getpid()))).string()) {
    if (zipped) {
      gzFile out = gzopen(path.c_str(), "wb");
      gzwrite(out, bytes.data(), unsigned(bytes.size()));
      gzclose(out);
    } else {
      std::ofstream(path, std::ios::binary) << bytes;
    }
  }
  ~TempFile() { std::filesystem::remove(path); }
};

std::string header(char type, std::initializer_list<uint32_t> sizes) {
  std::string out = {0, 0, type, char(sizes.size())};
  for (uint32_t s : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) out += char(s >> shift);
  }
  return out;
}

std::string message_of(const std::string& bytes, bool zipped) {
  TempFile file(bytes, zipped);
  try {
    read_idx(file.path);
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.find(file.path) != std::string::npos);
    return text;
  }
  return "no error";
}

}  // namespace

TEST_CASE("images and labels, plain and zipped", "[bind]") {
  for (bool zipped : {false, true}) {
    TempFile file(header(8, {2, 2, 3}) + std::string("abcdefghijkl"), zipped);
    Tensor t = read_idx(file.path);
    CHECK(t->dtype == DType::kUInt8);
    CHECK(to_string(t->sizes) == "{2, 2, 3}");
    CHECK(std::string(t->data_as<char>(), 12) == "abcdefghijkl");
  }
}

TEST_CASE("numbers are big endian", "[bind]") {
  TempFile file(header(0x0C, {2}) + std::string("\0\0\1\0\xff\xff\xff\xfe", 8));
  Tensor t = read_idx(file.path);
  CHECK(t->data_as<int32_t>()[0] == 256);
  CHECK(t->data_as<int32_t>()[1] == -2);
}

TEST_CASE("damaged files", "[bind]") {
  for (bool zipped : {false, true}) {
    CHECK(message_of("", zipped).find("ends too early") != std::string::npos);
    CHECK(message_of("hello world", zipped).find("no IDX file") != std::string::npos);
    CHECK(message_of(header(8, {4}) + "abcde", zipped).find("longer than") != std::string::npos);
    CHECK(message_of(header(8, {0xffffffff, 0xffffffff, 0xffffffff}), zipped).find("promises more") !=
          std::string::npos);
    CHECK(message_of(header(8, {100}) + "abc", zipped) != "no error");
  }
  CHECK_THROWS_AS(read_idx("no such file"), Error);
  CHECK_THROWS_AS(read_idx("/"), Error);
}

TEST_CASE("a zipped file cut short", "[bind]") {
  TempFile whole(header(8, {1000}) + std::string(1000, 'x'), true);
  std::ifstream in(whole.path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  in.close();
  std::ofstream(whole.path, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  CHECK_THROWS_AS(read_idx(whole.path), Error);
}
