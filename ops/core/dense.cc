// Chunks of memory that are cut into pieces of whole cache lines, with a list of free pieces for each size.
#include "ops/core/dense.h"

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <mutex>

namespace lutra {
namespace {

// The address sanitizer checks each object only if it is allocated by itself.
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
  std::array<Piece*, kMost / kLine + 1> free{};  // indexed by the number of lines
  char *at = nullptr, *end = nullptr;            // the part of the newest chunk that is not cut yet
  size_t chunk = kFirstChunk;                    // bytes of the next chunk
};

// Never destroyed: objects may outlive the static destructors.
Pieces& pieces() {
  static Pieces& all = *new Pieces;
  return all;
}

size_t lines_of(size_t bytes) { return (bytes + kLine - 1) / kLine; }

// Adds a chunk twice as large as the last one, up to a huge page.
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
