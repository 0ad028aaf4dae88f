// The portable assembler for x64; null on another processor.
#pragma once
#include <memory>

#include "jit/codegen/machine/assembler.h"

namespace lutra::x64 {

std::unique_ptr<Assembler> make_assembler();

}  // namespace lutra::x64
