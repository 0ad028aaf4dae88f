// Keeps each thread's working memory by slot (scratch.h).
#include "ops/extern/cpu/scratch.h"

#include <memory>
#include <new>

namespace lutra {
namespace {

struct Free {
  void operator()(void* p) const { ::operator delete(p, std::align_val_t(64)); }
};
struct Buffer {
  std::unique_ptr<void, Free> data;
  size_t size = 0;
};

}  // namespace

void* scratch(Scratch slot, size_t bytes, const char* who) {
  thread_local Buffer buffers[size_t(Scratch::kCount)];
  Buffer& b = buffers[size_t(slot)];
  if (b.size < bytes) {
    b.data.reset();
    b.size = 0;
    b.data.reset(::operator new(bytes, std::align_val_t(64), std::nothrow));
    if (!b.data) throw Error(ErrorKind::kMemory, str(who, ": out of memory (", bytes, " bytes to work in)"));
    b.size = bytes;
  }
  return b.data.get();
}

}  // namespace lutra
