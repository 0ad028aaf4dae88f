// What of memory a call reads, noted while it does so once: whoever makes it again after a long time asks for all of it
// together, and waits for the slowest line instead of one after the other.
#pragma once
#include <array>
#include <cstddef>

namespace lutra {

struct alignas(64) ReadLines {
  static constexpr size_t kMost = 31, kLine = 64;
  size_t count = 0;
  std::array<const char*, kMost> at{};

  void add(const void* memory, size_t bytes) {
    const char* begin = static_cast<const char*>(memory);
    for (size_t i = 0; i < bytes && count < kMost; i += kLine) at[count++] = begin + i;
  }
  // They may be gone: that a line is asked for has no effect but time.
  void ask() const {
    for (size_t i = 1; i < sizeof *this / kLine; i++) __builtin_prefetch(&count + i * kLine / sizeof count);
    for (size_t i = 0; i < count; i++) __builtin_prefetch(at[i]);
  }
};

// Who notes what this thread's calls read; null: nobody.
inline constinit thread_local ReadLines* noted_lines = nullptr;

inline void note_lines(const void* memory, size_t bytes) {
  if (noted_lines) [[unlikely]]
    noted_lines->add(memory, bytes);
}

}  // namespace lutra
