// Asks each architecture for its assembler.
#include "jit/codegen/assembler.h"

#include "jit/codegen/arm64/assembler.h"
#include "jit/codegen/x64/assembler.h"

namespace lutra {

std::unique_ptr<Assembler> make_assembler() {
  if (auto x64 = x64::make_assembler()) return x64;
  return arm64::make_assembler();
}

}  // namespace lutra
