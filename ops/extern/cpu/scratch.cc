// Keeps each thread's working memory by slot (scratch.h).
#include "ops/extern/cpu/scratch.h"

#include "ops/core/block_memory.h"

namespace lutra {
namespace {

// Large buffers are whole large pages: a product reads its packed operand all over, and the processor remembers the
// addresses of few pages.
constexpr size_t kLargePage = size_t(2) << 20, kLarge = kLargePage / 4;

size_t whole(size_t bytes) {
  const size_t unit = bytes >= kLarge ? kLargePage : kBlockAlignment;
  return (bytes + unit - 1) / unit * unit;
}

class Buffer {
 public:
  ~Buffer() { clear(); }
  // Returns memory of at least `bytes`, or null where there is none.
  void* at_least(size_t bytes) {
    if (size_ < bytes) {
      clear();
      data_ = new_block(whole(bytes));
      size_ = data_ ? whole(bytes) : 0;
    }
    return data_;
  }

 private:
  void clear() {
    if (data_) free_block(data_, size_);
    data_ = nullptr, size_ = 0;
  }

  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

void* scratch(Scratch slot, size_t bytes, const char* who) {
  thread_local Buffer buffers[size_t(Scratch::kCount)];
  void* p = buffers[size_t(slot)].at_least(bytes);
  if (!p && bytes) throw Error(ErrorKind::kMemory, str(who, ": out of memory (", bytes, " bytes to work in)"));
  return p;
}

}  // namespace lutra
