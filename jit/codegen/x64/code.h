// A verified kernel in, published machine code out.
#pragma once
#include <memory>

#include "jit/loop/abi.h"
#include "jit/loop/loop.h"

namespace lutra::x64 {

enum class Isa : uint8_t { kAvx2, kAvx512 };

// Does this machine run what is emitted for the set?
bool has_avx2();
bool has_avx512();
// look_after: as KernelTarget has it.
std::shared_ptr<Code> compile(const loop::Kernel& kernel, Isa isa, bool listing, int look_after);
// What such code finds in its block's head, to call it.
LookFn* look_entry();

}  // namespace lutra::x64
