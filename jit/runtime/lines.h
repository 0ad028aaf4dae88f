// What of memory a call reads, noted while it does so once: whoever makes it again after a long time asks for all of it
// together, and waits for the slowest line instead of one after the other.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lutra {

// Itself it is less than two lines.
struct ReadLines {
  static constexpr size_t kMost = 13, kLine = 64;
  size_t count = 0;
  std::array<uintptr_t, kMost> rows{};  // lines in a row: where the first one begins, and how many, less than kLine

  void add(const void* memory, size_t bytes) {
    const auto begin = std::bit_cast<uintptr_t>(memory);
    for (uintptr_t line = begin & ~(kLine - 1); line < begin + bytes; line += kLine) add_line(line);
  }
  // They may be gone: that a line is asked for has no effect but time.
  void ask() const {
    for (size_t i = 0; i < count; i++) {
      const char* first = std::bit_cast<const char*>(rows[i] & ~(kLine - 1));
      for (size_t n = rows[i] % kLine; n > 0; n--, first += kLine) __builtin_prefetch(first);
    }
  }

 private:
  void add_line(uintptr_t line) {
    for (size_t i = 0; i < count; i++) {
      const uintptr_t first = rows[i] & ~(kLine - 1), n = rows[i] % kLine;
      if (line >= first && line < first + n * kLine) return;
      if (line == first + n * kLine && n + 1 < kLine) return void(rows[i]++);
    }
    if (count < kMost) rows[count++] = line + 1;
  }
};

// Who notes what this thread's calls read; null: nobody.
inline constinit thread_local ReadLines* noted_lines = nullptr;

inline void note_lines(const void* memory, size_t bytes) {
  if (noted_lines) [[unlikely]]
    noted_lines->add(memory, bytes);
}

}  // namespace lutra
