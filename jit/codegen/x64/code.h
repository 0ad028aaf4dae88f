// A verified kernel in, published machine code out.
#pragma once
#include <memory>

#include "jit/loop/abi.h"
#include "jit/loop/loop.h"

namespace lutra::x64 {

// Does this machine run what Avx512 emits?
bool has_avx512();
std::shared_ptr<Code> compile_avx512(const loop::Kernel& kernel, bool listing);

}  // namespace lutra::x64
