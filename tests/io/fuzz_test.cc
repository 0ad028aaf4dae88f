// Tests files that are cut off, have flipped bits or forged numbers: a reader returns tensors or throws an Error, and
// allocates no more memory than the file justifies.
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "ops/core/error.h"
#include "ops/io/npy.h"
#include "ops/io/npz.h"
#include "ops/io/safetensors.h"
#include "tests/seeds.h"
#include "vm/bind/idx.h"

using namespace lutra;

namespace {

std::string path_of(const char* extension) {
  const auto folder = std::filesystem::temp_directory_path();
  return (folder / ("lutra-fuzz-" + std::to_string(getpid()) + extension)).string();
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A file with a path, without a disk.
struct MemoryFile {
  int fd = memfd_create("lutra-fuzz", MFD_CLOEXEC);
  ~MemoryFile() { close(fd); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd); }
  void set(const std::string& bytes) const {
    REQUIRE(ftruncate(fd, 0) == 0);
    REQUIRE(pwrite(fd, bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()));
  }
};

Tensor counting(const Sizes& sizes, DType dtype) {
  const Tensor t = make_tensor(sizes, dtype);
  auto* p = t->data_as<char>();
  for (size_t i = 0; i < byte_count(t); i++) p[i] = char(dtype == DType::kBool ? i & 1 : i);
  return t;
}

NamedTensors some_tensors() {
  return {{"w", counting({2, 3}, DType::kFloat32)},
          {"step", counting({}, DType::kInt64)},
          {"mask", counting({5}, DType::kBool)},
          {"none", counting({0, 4}, DType::kFloat64)}};
}

// The bytes of the tensors that a reader gave.
using Reader = std::function<size_t(const std::string& path)>;
size_t total(const NamedTensors& tensors) {
  size_t bytes = 0;
  for (const auto& [name, t] : tensors) {
    bytes += byte_count(t);
    REQUIRE(t->storage->nbytes == byte_count(t));
    volatile char sum = 0;  // every byte is there
    for (size_t i = 0; i < byte_count(t); i++) sum = char(sum + t->data_as<char>()[i]);
  }
  return bytes;
}

// Whether it was read.
bool attempt(const MemoryFile& file, const std::string& bytes, const Reader& reader, size_t most) {
  file.set(bytes);
  try {
    const size_t got = reader(file.path());
    REQUIRE(got <= most);
    return true;
  } catch (const Error& e) {
    REQUIRE(e.kind == ErrorKind::kUser);
    REQUIRE(std::string(e.what()).size() < 2000);
    return false;
  }
}

void fuzz(const std::string& sound, const Reader& reader, size_t inflation = 1) {
  const MemoryFile file;
  REQUIRE(attempt(file, sound, reader, SIZE_MAX));
  for (size_t n = 0; n < sound.size(); n++) {
    INFO("cut off at " << n);
    REQUIRE_FALSE(attempt(file, sound.substr(0, n), reader, 0));
  }
  for (size_t i = 0; i < sound.size() * 8; i++) {
    INFO("bit " << i);
    std::string bytes = sound;
    bytes[i / 8] = char(bytes[i / 8] ^ 1 << i % 8);
    attempt(file, bytes, reader, sound.size() * inflation);
  }
  std::mt19937 random(1);
  for (uint64_t i = 0; i < rounds(2000); i++) {
    INFO("round " << i);
    std::string bytes = sound;
    for (unsigned k = random() % 4 + 1; k > 0; k--) {
      const size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0: bytes[at] = char(random()); break;
        case 1: bytes[at] = "\xff\x7f\x80\x00\x01"[random() % 5]; break;
        case 2: bytes.insert(at, random() % 9, char(random())); break;
        case 3: bytes.erase(at, random() % 9); break;
        default:  // a stretch from elsewhere
          for (size_t from = random() % bytes.size(), n = random() % 16, j = 0; j < n; j++) {
            if (at + j < bytes.size() && from + j < bytes.size()) bytes[at + j] = bytes[from + j];
          }
      }
      if (bytes.empty()) bytes = "x";
    }
    attempt(file, bytes, reader, (bytes.size() + 64) * inflation);
  }
}

std::string saved(const char* extension, const std::function<void(const std::string& path)>& save) {
  const std::string path = path_of(extension);
  save(path);
  const std::string bytes = read_file(path);
  std::filesystem::remove(path);
  return bytes;
}

const Reader kReadNpz = [](const std::string& path) { return total(load_npz(path)); };

void put(std::string* out, std::initializer_list<std::pair<uint64_t, int>> fields) {
  for (auto [value, width] : fields) append_little(out, value, size_t(width));
}

// One deflated entry.
std::string deflated_npz(const std::string& content, const std::string& name, uint32_t claimed) {
  std::string packed(content.size() + 1000, 0);
  z_stream z = {};
  deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data())), z.avail_in = uInt(content.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data()), z.avail_out = uInt(packed.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  const auto crc = uint32_t(crc32(0, reinterpret_cast<const Bytef*>(content.data()), uInt(content.size())));
  std::string out;
  put(&out, {{0x04034b50, 4},
             {20, 2},
             {0, 2},
             {8, 2},
             {0, 4},
             {crc, 4},
             {packed.size(), 4},
             {claimed, 4},
             {name.size(), 2},
             {0, 2}});
  out += name + packed;
  const size_t directory = out.size();
  put(&out, {{0x02014b50, 4}, {20, 2}, {20, 2}, {0, 2}, {8, 2}, {0, 4}, {crc, 4}, {packed.size(), 4}, {claimed, 4}});
  put(&out, {{name.size(), 2}, {0, 2}, {0, 2}, {0, 2}, {0, 2}, {0, 4}, {0, 4}});
  out += name;
  const size_t size = out.size() - directory;
  put(&out, {{0x06054b50, 4}, {0, 4}, {1, 2}, {1, 2}, {size, 4}, {directory, 4}, {0, 2}});
  return out;
}

std::string npy_bytes(const Tensor& t) { return npy_header(t) + std::string(t->data_as<char>(), byte_count(t)); }

}  // namespace

TEST_CASE("damaged safetensors files") {
  Safetensors content{some_tensors(), {{"format", "pt"}}};
  const std::string sound = saved(".safetensors", [&](auto& path) { save_safetensors(path, content); });
  fuzz(sound, [](const std::string& path) { return total(load_safetensors(path).tensors); });
}

TEST_CASE("damaged npy files") {
  const std::string sound = saved(".npy", [](auto& path) { save_npy(path, counting({2, 3}, DType::kInt32)); });
  fuzz(sound, [](const std::string& path) { return total({{"x", load_npy(path)}}); });
}

TEST_CASE("damaged npz files") {
  fuzz(saved(".npz", [](auto& path) { save_npz(path, some_tensors()); }), kReadNpz);
}

TEST_CASE("damaged deflated npz files") {
  const std::string content = npy_bytes(counting({40, 5}, DType::kInt16));
  const std::string sound = deflated_npz(content, "x.npy", uint32_t(content.size()));
  fuzz(sound, kReadNpz, 1033);
}

TEST_CASE("a deflated entry may not promise more than deflate can hold") {
  const std::string content = npy_bytes(counting({0}, DType::kInt8));
  for (const uint32_t claimed : {uint32_t(content.size()) + 1, 1u << 20, 0xfffffff0u}) {
    REQUIRE_FALSE(attempt(MemoryFile(), deflated_npz(content, "x.npy", claimed), kReadNpz, 0));
  }
}

TEST_CASE("damaged IDX files") {
  std::string sound = {0, 0, 0x0c, 2, 0, 0, 0, 3, 0, 0, 0, 2};
  for (int i = 0; i < 24; i++) sound += char(i);
  const Reader reader = [](const std::string& path) { return total({{"x", read_idx(path)}}); };
  fuzz(sound, reader);
  const std::string path = path_of(".gz");
  gzFile out = gzopen(path.c_str(), "wb");
  gzwrite(out, sound.data(), unsigned(sound.size()));
  gzclose(out);
  const std::string packed = read_file(path);
  std::filesystem::remove(path);
  fuzz(packed, reader, 1040);
}
