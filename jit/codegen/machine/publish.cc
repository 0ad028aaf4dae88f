// Code memory, one allocator for the process.
#include "jit/codegen/machine/publish.h"

namespace lutra {
namespace {

using asmjit::JitAllocator;

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

}  // namespace

asmjit::Error publish(asmjit::CodeHolder& code, PublishedCode* out) {
  ASMJIT_PROPAGATE(code.flatten());
  ASMJIT_PROPAGATE(code.resolveUnresolvedLinks());
  const size_t size = code.codeSize();
  void *entry = nullptr, *writable = nullptr;
  ASMJIT_PROPAGATE(allocator().alloc(&entry, &writable, size));
  PublishedCode published(entry, size);
  ASMJIT_PROPAGATE(code.relocateToBase(uint64_t(uintptr_t(entry))));
  ASMJIT_PROPAGATE(code.copyFlattenedData(writable, size, asmjit::CopySectionFlags::kPadSectionBuffer));
  *out = PublishedCode(std::exchange(published, PublishedCode()));
  return asmjit::kErrorOk;
}

PublishedCode::~PublishedCode() {
  if (entry_) allocator().release(entry_);
}

}  // namespace lutra
