// The cache lines that a call reads, noted during one run of it. When the call is made again after a long time, all
// lines are prefetched together. So it waits for the slowest line, instead of for one after the other.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lutra {

// Its own size is less than two lines.
struct ReadLines {
  static constexpr size_t kMost = 13, kLine = 64;
  size_t count = 0;
  std::array<uintptr_t, kMost> rows{};  // rows of adjacent lines: the address of the first line, plus the number of
                                        // lines, less than kLine

  void add(const void* memory, size_t bytes) {
    const auto begin = std::bit_cast<uintptr_t>(memory);
    for (uintptr_t line = begin & ~(kLine - 1); line < begin + bytes; line += kLine) add_line(line);
  }
  // Prefetches the lines. The memory may be gone: a prefetch affects time only.
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

// Notes what this thread's calls read; null: nothing does.
inline constinit thread_local ReadLines* noted_lines = nullptr;

inline void note_lines(const void* memory, size_t bytes) {
  if (noted_lines) [[unlikely]]
    noted_lines->add(memory, bytes);
}

}  // namespace lutra
