// Chunks of memory, cut into pieces of whole cache lines; a list of free pieces a size.
#include "ops/core/dense.h"

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <mutex>

namespace lutra {
namespace {

// The address sanitizer sees to each object by itself.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMost = 0;
#else
constexpr size_t kMost = 4096;
#endif
constexpr size_t kLine = 64, kPageAlignment = 4096, kFirstChunk = size_t(1) << 16, kHugePage = size_t(1) << 21;
constexpr std::align_val_t kAligned{kLine};

struct Piece {
  Piece* next;
};

struct Pieces {
  std::mutex mutex;
  std::array<Piece*, kMost / kLine + 1> free{};  // by lines
  char *at = nullptr, *end = nullptr;            // of the newest chunk: what is not cut yet
  size_t chunk = kFirstChunk;                    // how large the next one is
};

// Objects may die after all else of the process.
Pieces& pieces() {
  static Pieces& all = *new Pieces;
  return all;
}

size_t lines_of(size_t bytes) { return (bytes + kLine - 1) / kLine; }

// As large as all before it, up to a page of the large kind.
void add_chunk(Pieces& all) {
  const bool huge = all.chunk == kHugePage;
  all.at = static_cast<char*>(::operator new(all.chunk, std::align_val_t(huge ? kHugePage : kPageAlignment)));
  all.end = all.at + all.chunk;
  if (huge) madvise(all.at, all.chunk, MADV_HUGEPAGE);
  if (!huge) all.chunk *= 2;
}

}  // namespace

void* take_dense(size_t bytes) {
  if (bytes > kMost) return ::operator new(bytes, kAligned);
  Pieces& all = pieces();
  const std::lock_guard lock(all.mutex);
  Piece*& free = all.free[lines_of(bytes)];
  if (free) {
    Piece* piece = free;
    free = piece->next;
    return piece;
  }
  const size_t size = lines_of(bytes) * kLine;
  if (size_t(all.end - all.at) < size) add_chunk(all);
  char* piece = all.at;
  all.at += size;
  return piece;
}

void give_back_dense(void* p, size_t bytes) noexcept {
  if (!p) return;
  if (bytes > kMost) return ::operator delete(p, kAligned);
  Pieces& all = pieces();
  const std::lock_guard lock(all.mutex);
  Piece*& free = all.free[lines_of(bytes)];
  free = new (p) Piece{free};
}

}  // namespace lutra
