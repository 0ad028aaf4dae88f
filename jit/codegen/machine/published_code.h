// Machine code that can be run. The object owns its memory.
#pragma once
#include <cstddef>
#include <utility>

namespace lutra {

class PublishedCode {
 public:
  PublishedCode() = default;
  PublishedCode(void* entry, size_t bytes) : entry_(entry), bytes_(bytes) {}
  PublishedCode(PublishedCode&& o) noexcept : entry_(std::exchange(o.entry_, nullptr)), bytes_(o.bytes_) {}
  PublishedCode& operator=(PublishedCode&& o) noexcept {
    std::swap(entry_, o.entry_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~PublishedCode();
  explicit operator bool() const { return entry_ != nullptr; }
  size_t bytes() const { return bytes_; }
  template <class Fn>
  Fn as() const {
    return reinterpret_cast<Fn>(entry_);
  }

 private:
  void* entry_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lutra
