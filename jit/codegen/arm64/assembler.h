// The portable assembler for arm64; null on another processor.
#pragma once
#include <memory>

#include "jit/codegen/machine/assembler.h"

namespace lutra::arm64 {

std::unique_ptr<Assembler> make_assembler();

}  // namespace lutra::arm64
