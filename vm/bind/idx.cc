// Reads an IDX file into a tensor. It checks the header against the file's length before it allocates memory: a gzip
// trailer contains the unpacked length (modulo 2^32), and no unpacked file is longer than 1032 times its compressed
// length.
#include "vm/bind/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "ops/core/error.h"

namespace lutra {
namespace {

// Returns the dtype for the type byte of the header.
DType dtype_of(uint8_t code) {
  switch (code) {
    case 0x08: return DType::kUInt8;
    case 0x09: return DType::kInt8;
    case 0x0B: return DType::kInt16;
    case 0x0C: return DType::kInt32;
    case 0x0D: return DType::kFloat32;
    case 0x0E: return DType::kFloat64;
    default: return DType::kNone;
  }
}

struct Reader {
  const std::string& path;
  gzFile file = nullptr;
  explicit Reader(const std::string& path) : path(path), file(gzopen(path.c_str(), "rb")) {
    if (!file) fail("read_idx: cannot open '", path, "': ", std::strerror(errno));
    gzbuffer(file, 1 << 17);
  }
  ~Reader() { gzclose(file); }
  Reader(const Reader&) = delete;

  void read(void* out, size_t size) {
    auto* p = static_cast<char*>(out);
    while (size > 0) {
      const int n = gzread(file, p, unsigned(std::min<size_t>(size, 1 << 20)));
      if (n <= 0) {
        int code = 0;
        const char* text = gzerror(file, &code);
        fail("read_idx: '", path, "' is damaged: ", n < 0 ? text : "it ends too early");
      }
      p += n, size -= size_t(n);
    }
  }
  // Returns whether the file ends here, with a correct gzip checksum.
  bool at_end() {
    char byte;
    int code = Z_OK;
    const bool more = gzread(file, &byte, 1) != 0;
    gzerror(file, &code);
    return !more && code == Z_OK;
  }
};

uint32_t big_endian(const uint8_t* p) {
  return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | uint32_t(p[3]);
}

// Returns an upper bound on the file's unpacked size in bytes.
uint64_t most_bytes(const std::string& path, bool plain) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) fail("read_idx: cannot read '", path, "': ", error.message());
  return plain ? size : size * 1032 + 1024;
}

void swap_bytes(char* p, int64_t n, size_t width) {
  for (int64_t i = 0; width > 1 && i < n; ++i, p += width) std::reverse(p, p + width);
}

}  // namespace

Tensor read_idx(const std::string& path) {
  Reader in(path);
  uint8_t head[4];
  in.read(head, 4);
  const DType dtype = dtype_of(head[2]);
  if (head[0] != 0 || head[1] != 0 || dtype == DType::kNone || head[3] > 8) {
    fail("read_idx: '", path, "' is no IDX file");
  }
  Sizes sizes;
  const uint64_t most = most_bytes(path, gzdirect(in.file) == 1);
  uint64_t bytes = size_of(dtype);
  int64_t strides = int64_t(bytes);  // must not overflow, even if a size is 0
  for (int d = 0; d < head[3]; ++d) {
    uint8_t raw[4];
    in.read(raw, 4);
    const uint64_t size = big_endian(raw);
    sizes.push_back(int64_t(size));
    if ((size != 0 && bytes > most / size) ||
        __builtin_mul_overflow(strides, std::max<int64_t>(1, int64_t(size)), &strides)) {
      fail("read_idx: '", path, "' is damaged: its header promises more than the file holds (", to_string(sizes), ")");
    }
    bytes *= size;
  }
  Tensor t = make_tensor(sizes, dtype);
  in.read(t->data(), bytes);
  if (!in.at_end()) fail("read_idx: '", path, "' is damaged: it is cut off, or longer than its header says");
  swap_bytes(static_cast<char*>(t->data()), t->numel().hint, size_of(dtype));
  return t;
}

}  // namespace lutra
