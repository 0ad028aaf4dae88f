// The assembler for this machine's processor; null if it is not supported.
#pragma once
#include <memory>

#include "jit/codegen/machine/assembler.h"

namespace lutra {

std::unique_ptr<Assembler> make_assembler();

}  // namespace lutra
