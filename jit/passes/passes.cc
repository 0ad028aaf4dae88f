// The rows of passes.def as a table.
#include "jit/passes/passes.h"

namespace lutra {

const PassRow kPasses[] = {
#define PASS(name, ...) {#name, name},
#include "jit/passes/passes.def"
};
const size_t kPassCount = sizeof kPasses / sizeof *kPasses;

}  // namespace lutra
