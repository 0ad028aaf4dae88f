// The assembler of the processor that this is; null where there is none for it.
#pragma once
#include <memory>

#include "jit/codegen/machine/assembler.h"

namespace lutra {

std::unique_ptr<Assembler> make_assembler();

}  // namespace lutra
