// Code memory. On x86-64 an allocator maps its blocks twice, once to write and once to run, so that small pieces share
// pages. Elsewhere each piece has pages of its own, which are written and then made executable: QEMU before 8.1, which
// runs the tests, misses writes through another mapping.
#include "jit/codegen/machine/publish.h"

#include <cstring>

#include "ops/core/cpu.h"
#include "ops/core/error.h"

namespace lutra {
namespace {

using asmjit::JitAllocator;
namespace VirtMem = asmjit::VirtMem;

// Never destroyed: code may outlive other statics. Its methods are safe to call from any thread.
JitAllocator& allocator() {
  static JitAllocator* const a = [] {
    JitAllocator::CreateParams params{};
    params.options = asmjit::JitAllocatorOptions::kUseDualMapping;
    params.blockSize = 1 << 18;
    return new JitAllocator(&params);
  }();
  return *a;
}

size_t whole_pages(size_t bytes) {
  const size_t page = VirtMem::info().pageSize;
  return (bytes + page - 1) / page * page;
}

asmjit::Error allocate(void** entry, void** writable, size_t bytes) {
  if constexpr (cpu::kX64) return allocator().alloc(entry, writable, bytes);
  const asmjit::Error e = VirtMem::alloc(entry, whole_pages(bytes), VirtMem::MemoryFlags::kAccessRW);
  *writable = *entry;
  return e;
}

asmjit::Error make_executable(void* entry, size_t bytes) {
  if constexpr (cpu::kX64) return asmjit::kErrorOk;
  ASMJIT_PROPAGATE(VirtMem::protect(entry, whole_pages(bytes), VirtMem::MemoryFlags::kAccessRX));
  VirtMem::flushInstructionCache(entry, bytes);
  return asmjit::kErrorOk;
}

// Allocates memory, fills it by write(entry, writable, size), and makes it executable.
template <class F>
asmjit::Error publish_as(size_t size, const F& write, PublishedCode* out) {
  void *entry = nullptr, *writable = nullptr;
  ASMJIT_PROPAGATE(allocate(&entry, &writable, size));
  PublishedCode published(entry, size);
  ASMJIT_PROPAGATE(write(entry, writable, size));
  ASMJIT_PROPAGATE(make_executable(entry, size));
  *out = std::move(published);
  return asmjit::kErrorOk;
}

}  // namespace

void check_step(asmjit::Error e, const std::string& kernel) {
  if (e == asmjit::kErrorOutOfMemory) throw std::bad_alloc();
  if (e != asmjit::kErrorOk) fail_internal("codegen: kernel ", kernel, ": ", asmjit::DebugUtils::errorAsString(e));
}

void attach(asmjit::CodeHolder& code, asmjit::BaseEmitter& emitter, const std::string& kernel) {
  const asmjit::Error e = code.attach(&emitter);
  if (e != asmjit::kErrorOk) emitter._code = nullptr;  // its destructor would look for it among the emitters of code
  check_step(e, kernel);
}

asmjit::Error publish(asmjit::CodeHolder& code, PublishedCode* out) {
  ASMJIT_PROPAGATE(code.flatten());
  ASMJIT_PROPAGATE(code.resolveUnresolvedLinks());
  const auto write = [&](void* entry, void* writable, size_t size) {
    ASMJIT_PROPAGATE(code.relocateToBase(uint64_t(uintptr_t(entry))));
    return code.copyFlattenedData(writable, size, asmjit::CopySectionFlags::kPadSectionBuffer);
  };
  return publish_as(code.codeSize(), write, out);
}

asmjit::Error publish(std::string_view image, PublishedCode* out) {
  const auto write = [&](void*, void* writable, size_t size) {
    std::memcpy(writable, image.data(), size);
    return asmjit::Error(asmjit::kErrorOk);
  };
  return publish_as(image.size(), write, out);
}

PublishedCode::~PublishedCode() {
  if (!entry_) return;
  if constexpr (cpu::kX64)
    allocator().release(entry_);
  else
    VirtMem::release(entry_, whole_pages(bytes_));
}

}  // namespace lutra
