// A zip archive has entries, each behind a local header, then the central directory and its end record. The reader
// trusts the directory after checking it against the file's size. Entries must not overlap and must lie within the
// file. A deflated entry may promise no more than deflate can hold (1032 times its bytes). Every CRC is checked.
#include "ops/io/npz.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "ops/core/error.h"
#include "ops/io/npy.h"

namespace lutra {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint64_t kMax32 = 0xffffffff;
constexpr uint64_t kMaxInflation = 1032;

uint32_t crc_of(uint32_t crc, const void* bytes, size_t size) {
  auto* p = static_cast<const Bytef*>(bytes);
  for (; size > 0; size -= std::min<size_t>(size, 1 << 30), p += 1 << 30) {
    crc = uint32_t(crc32(crc, p, uInt(std::min<size_t>(size, 1 << 30))));
  }
  return crc;
}

struct ZipEntry {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, header = 0;  // header: the offset of the local header
  uint64_t data = 0;
};

// The bytes of an entry, inflated if it is deflated. The CRC is checked with the last byte.
class EntrySource : public ByteSource {
 public:
  EntrySource(const InputFile& file, const ZipEntry& e)
      : ByteSource(str("'", e.name, "' in '", file.path(), "'"), e.size),
        raw_(file, e.data, e.packed, name_),
        crc_want_(e.crc),
        deflated_(e.method == 8) {
    if (deflated_ && inflateInit2(&z_, -MAX_WBITS) != Z_OK) fail("load: zlib cannot be started");
  }
  ~EntrySource() override {
    if (deflated_) inflateEnd(&z_);
  }
  void read(void* out, size_t size) override {
    if (size > left_) damaged("it ends too early");
    if (deflated_) {
      inflate_into(out, size);
    } else {
      raw_.read(out, size);
    }
    left_ -= size;
    crc_ = crc_of(crc_, out, size);
    if (left_ == 0 && crc_ != crc_want_) damaged("its checksum is wrong");
  }

 private:
  void inflate_into(void* out, size_t size) {
    auto* p = static_cast<Bytef*>(out);
    while (size > 0) {
      if (z_.avail_in == 0 && raw_.left() > 0) {
        const size_t n = size_t(std::min<uint64_t>(raw_.left(), sizeof buffer_));
        raw_.read(buffer_, n);
        z_.next_in = buffer_, z_.avail_in = uInt(n);
      }
      const uInt want = uInt(std::min<size_t>(size, 1 << 30));
      z_.next_out = p, z_.avail_out = want;
      const int code = inflate(&z_, Z_NO_FLUSH);
      const size_t got = want - z_.avail_out;
      p += got, size -= got;
      if (size > 0 && (code != Z_OK || (got == 0 && z_.avail_in == 0 && raw_.left() == 0))) {
        damaged(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR ? "it ends too early"
                                                                            : "it cannot be inflated");
      }
    }
  }

  FileSource raw_;
  uint32_t crc_ = 0, crc_want_;
  bool deflated_;
  z_stream z_ = {};
  Bytef buffer_[1 << 16];
};

[[noreturn]] void damaged(const InputFile& file, const char* why) {
  fail("load: '", file.path(), "' is damaged: ", why);
}

struct Directory {
  uint64_t offset, size, count;
};

// Finds the end record, from the back (a comment of up to 65535 bytes may follow it).
Directory find_directory(const InputFile& file) {
  const uint64_t tail = std::min<uint64_t>(file.size(), 22 + 65535);
  if (tail < 22) fail("load: '", file.path(), "' is no .npz file");
  std::vector<uint8_t> bytes(tail);
  file.read_at(file.size() - tail, bytes.data(), tail);
  size_t at = tail;
  for (size_t i = tail - 22 + 1; i-- > 0;) {
    if (little_endian(&bytes[i], 4) == kEnd && i + 22 + little_endian(&bytes[i + 20], 2) == tail) {
      at = i;
      break;
    }
  }
  if (at == tail) fail("load: '", file.path(), "' is no .npz file, or it is cut off");
  const uint8_t* p = &bytes[at];
  Directory d{little_endian(p + 16, 4), little_endian(p + 12, 4), little_endian(p + 10, 2)};
  const uint64_t end = file.size() - tail + at;
  uint64_t limit = end;
  if (d.offset == kMax32 || d.size == kMax32 || d.count == 0xffff) {
    uint8_t locator[20], record[56];
    if (end < sizeof locator) damaged(file, "its directory is missing");
    file.read_at(end - sizeof locator, locator, sizeof locator);
    if (little_endian(locator, 4) == kLocator64) {
      const uint64_t where = little_endian(locator + 8, 8);
      if (where > end || end - where < sizeof record) damaged(file, "its directory lies outside of it");
      file.read_at(where, record, sizeof record);
      if (little_endian(record, 4) != kEnd64) damaged(file, "its directory is missing");
      d = {little_endian(record + 48, 8), little_endian(record + 40, 8), little_endian(record + 32, 8)};
      limit = where;
    }
  }
  if (d.offset > limit || d.size > limit - d.offset) damaged(file, "its directory lies outside of it");
  if (d.count > d.size / 46) damaged(file, "its directory promises more entries than it holds");
  return d;
}

// Reads sizes and offset that need more than 32 bits, in their order.
void read_zip64(const InputFile& file, const uint8_t* p, size_t size, ZipEntry& e) {
  while (size >= 4) {
    const uint64_t id = little_endian(p, 2), n = little_endian(p + 2, 2);
    p += 4, size -= 4;
    if (n > size) damaged(file, "an entry's extra field is cut off");
    if (id == 1) {
      size_t at = 0;
      for (uint64_t* v : {&e.size, &e.packed, &e.header}) {
        if (*v != kMax32) continue;
        if (at + 8 > n) damaged(file, "an entry's extra field is cut off");
        *v = little_endian(p + at, 8), at += 8;
      }
    }
    p += n, size -= n;
  }
}

void check_entry(const InputFile& file, const Directory& d, ZipEntry& e) {
  if (e.flags & 1) fail("load: '", e.name, "' in '", file.path(), "' is encrypted");
  if (e.method != 0 && e.method != 8) {
    fail("load: '", e.name, "' in '", file.path(), "' is packed by method ", e.method,
         "; stored and deflated are known");
  }
  uint8_t head[30];
  if (e.header > d.offset || d.offset - e.header < sizeof head) damaged(file, "an entry lies outside of it");
  file.read_at(e.header, head, sizeof head);
  if (little_endian(head, 4) != kLocal) damaged(file, "an entry's header is missing");
  e.data = e.header + sizeof head + little_endian(head + 26, 2) + little_endian(head + 28, 2);
  if (e.data > d.offset || e.packed > d.offset - e.data) damaged(file, "an entry lies outside of it");
  const bool fits = e.method == 0 ? e.size == e.packed : e.size / kMaxInflation <= e.packed;
  if (!fits) damaged(file, "an entry promises more than it holds");
}

std::vector<ZipEntry> read_directory(const InputFile& file) {
  const Directory d = find_directory(file);
  std::vector<uint8_t> bytes(d.size);
  file.read_at(d.offset, bytes.data(), bytes.size());
  std::vector<ZipEntry> entries;
  size_t at = 0;
  for (uint64_t i = 0; i < d.count; i++) {
    if (bytes.size() - at < 46 || little_endian(&bytes[at], 4) != kCentral) damaged(file, "its directory is cut off");
    const uint8_t* p = &bytes[at];
    const size_t names = little_endian(p + 28, 2), extra = little_endian(p + 30, 2), comment = little_endian(p + 32, 2);
    if (bytes.size() - at - 46 < names + extra + comment) damaged(file, "its directory is cut off");
    ZipEntry e;
    e.flags = uint16_t(little_endian(p + 8, 2)), e.method = uint16_t(little_endian(p + 10, 2));
    e.crc = uint32_t(little_endian(p + 16, 4));
    e.packed = little_endian(p + 20, 4), e.size = little_endian(p + 24, 4), e.header = little_endian(p + 42, 4);
    e.name.assign(reinterpret_cast<const char*>(p + 46), names);
    read_zip64(file, p + 46 + names, extra, e);
    check_entry(file, d, e);
    entries.push_back(std::move(e));
    at += 46 + names + extra + comment;
  }
  return entries;
}

void check_apart(const InputFile& file, std::vector<ZipEntry> entries) {
  std::sort(entries.begin(), entries.end(), [](const ZipEntry& a, const ZipEntry& b) { return a.header < b.header; });
  for (size_t i = 1; i < entries.size(); i++) {
    if (entries[i - 1].data + entries[i - 1].packed > entries[i].header) damaged(file, "its entries overlap");
  }
}

// -- writing

// Writes 64-bit sizes into an extra field, only if they are needed.
std::string zip64_extra(std::initializer_list<uint64_t> values) {
  std::string body;
  for (const uint64_t v : values) append_little(&body, v, 8);
  std::string out;
  append_little(&out, 1, 2), append_little(&out, body.size(), 2);
  return out + body;
}

// Writes the fields that local header and directory share, from "version needed" to "extra length".
std::string common_fields(const ZipEntry& e, bool large, size_t extra) {
  std::string out;
  append_little(&out, large ? 45 : 20, 2), append_little(&out, 0x0800, 2), append_little(&out, 0, 2);
  append_little(&out, 0, 2), append_little(&out, 0x0021, 2);  // 1980-01-01
  append_little(&out, e.crc, 4);
  append_little(&out, large ? kMax32 : e.size, 4), append_little(&out, large ? kMax32 : e.size, 4);
  append_little(&out, e.name.size(), 2), append_little(&out, extra, 2);
  return out;
}

std::string local_header(const ZipEntry& e) {
  const bool large = e.size >= kMax32;
  const std::string extra = large ? zip64_extra({e.size, e.size}) : "";
  std::string out;
  append_little(&out, kLocal, 4);
  return out + common_fields(e, large, extra.size()) + e.name + extra;
}

std::string directory_entry(const ZipEntry& e) {
  const bool large = e.size >= kMax32, far = e.header >= kMax32;
  std::string extra;
  if (large && far) extra = zip64_extra({e.size, e.size, e.header});
  if (large && !far) extra = zip64_extra({e.size, e.size});
  if (!large && far) extra = zip64_extra({e.header});
  std::string out;
  append_little(&out, kCentral, 4), append_little(&out, 45, 2);
  out += common_fields(e, large || far, extra.size());
  if (!large && far) {  // the sizes themselves fit into 32 bits
    for (const size_t at : {20, 24}) {
      std::string size;
      append_little(&size, e.size, 4);
      out.replace(at, 4, size);
    }
  }
  append_little(&out, 0, 2), append_little(&out, 0, 2), append_little(&out, 0, 2), append_little(&out, 0, 4);
  append_little(&out, far ? kMax32 : e.header, 4);
  return out + e.name + extra;
}

std::string end_records(uint64_t count, uint64_t offset, uint64_t size) {
  std::string out;
  if (count >= 0xffff || offset >= kMax32 || size >= kMax32) {
    append_little(&out, kEnd64, 4), append_little(&out, 44, 8), append_little(&out, 45, 2), append_little(&out, 45, 2);
    append_little(&out, 0, 4), append_little(&out, 0, 4);
    for (const uint64_t v : {count, count, size, offset}) append_little(&out, v, 8);
    append_little(&out, kLocator64, 4), append_little(&out, 0, 4), append_little(&out, offset + size, 8);
    append_little(&out, 1, 4);
  }
  append_little(&out, kEnd, 4), append_little(&out, 0, 4);
  append_little(&out, std::min<uint64_t>(count, 0xffff), 2), append_little(&out, std::min<uint64_t>(count, 0xffff), 2);
  append_little(&out, std::min(size, kMax32), 4), append_little(&out, std::min(offset, kMax32), 4);
  append_little(&out, 0, 2);
  return out;
}

}  // namespace

NamedTensors load_npz(const std::string& path) {
  const InputFile file(path);
  const std::vector<ZipEntry> entries = read_directory(file);
  check_apart(file, entries);
  NamedTensors out;
  std::set<std::string> names;
  for (const ZipEntry& e : entries) {
    std::string name = e.name;
    const size_t dot = name.size() >= 4 ? name.size() - 4 : 0;
    if (name.compare(dot, std::string::npos, ".npy") != 0) {
      fail("load: '", path, "' is no .npz file: it holds '", name, "', and .npy files only can be read");
    }
    name.resize(dot);
    if (!names.insert(name).second) fail("load: '", path, "' holds '", name, "' twice");
    EntrySource in(file, e);
    out.emplace_back(name, read_npy(in));
  }
  return out;
}

void save_npz(const std::string& path, const NamedTensors& tensors) {
  std::vector<std::string> headers;
  for (const auto& [name, t] : tensors) {
    headers.push_back(npy_header(t));
    if (name.size() > 60000) fail("save: a name of ", name.size(), " bytes is too long for a .npz file");
  }
  AtomicFile out(path);
  std::string directory;
  for (size_t i = 0; i < tensors.size(); i++) {
    const Tensor& t = tensors[i].second;
    ZipEntry e;
    e.name = tensors[i].first + ".npy";
    e.size = headers[i].size() + byte_count(t);
    e.header = out.written();
    e.crc = crc_of(crc_of(0, headers[i].data(), headers[i].size()), t->data(), byte_count(t));
    const std::string local = local_header(e);
    out.write(local.data(), local.size());
    out.write(headers[i].data(), headers[i].size());
    out.write(t->data(), byte_count(t));
    directory += directory_entry(e);
  }
  directory += end_records(tensors.size(), out.written(), directory.size());
  out.write(directory.data(), directory.size());
  out.commit();
}

}  // namespace lutra
