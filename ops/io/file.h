// Files for the readers and writers of tensors: sources of a known number of bytes, and files that appear whole or not
// at all.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace lutra {

// Bytes in order. The number of bytes left is known, so that a header can be checked before memory is allocated.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual void read(void* out, size_t size) = 0;  // reads all of them, or raises an Error
  uint64_t left() const { return left_; }
  // Raises "load: 'x.npy' is damaged: ...". All errors about a source begin like this.
  [[noreturn]] void damaged(const std::string& why) const;
  const std::string& name() const { return name_; }

 protected:
  ByteSource(std::string name, uint64_t left) : name_(std::move(name)), left_(left) {}
  std::string name_;
  uint64_t left_;
};

// A regular file, opened for reading.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  void read_at(uint64_t offset, void* out, size_t size) const;

 private:
  std::string path_;
  int fd_;
  uint64_t size_ = 0;
};

// A range of a file.
class FileSource : public ByteSource {
 public:
  FileSource(const InputFile& file, uint64_t offset, uint64_t size, std::string name)
      : ByteSource(std::move(name), size), file_(file), offset_(offset) {}
  void read(void* out, size_t size) override;

 private:
  const InputFile& file_;
  uint64_t offset_;
};

// Bytes in memory, which must outlive the source.
class MemorySource : public ByteSource {
 public:
  MemorySource(const void* bytes, size_t size, std::string name)
      : ByteSource(std::move(name), size), at_(static_cast<const char*>(bytes)) {}
  void read(void* out, size_t size) override;

 private:
  const char* at_;
};

// Invariants:
// 1. Until commit returns, the old file at `path` is untouched. Then the new bytes are there, and on the disk.
// 2. Bytes go to a temporary file in the same folder, which the destructor removes. A killed process leaves it behind,
//    and the next writer of `path` removes it. A process locks (flock) the file that it is writing.
// 3. A symbolic link stays one (its target is replaced). A device, pipe or folder is refused.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  void write(const void* bytes, size_t size);
  uint64_t written() const { return written_; }
  void commit();

 private:
  [[noreturn]] void fail_errno(const char* what) const;
  int open_temporary(const std::string& prefix);
  void push();
  std::string path_, target_, temporary_;
  int fd_ = -1;
  uint64_t written_ = 0, pushed_ = 0;
};

// Read and append little endian numbers of 2, 4 or 8 bytes.
inline uint64_t little_endian(const void* p, size_t bytes) {
  uint64_t v = 0;
  for (size_t i = 0; i < bytes; i++) v |= uint64_t(static_cast<const uint8_t*>(p)[i]) << (8 * i);
  return v;
}
inline void append_little(std::string* out, uint64_t v, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) *out += char(v >> (8 * i));
}

}  // namespace lutra
