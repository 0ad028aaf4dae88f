// The order of the passes.
#include "jit/passes/passes.h"

namespace lutra {

const PassRow kPasses[] = {
    {"functionalise", functionalise},
    {"decompose", decompose},
    {"cse", cse},
    {"dce", dce},
    {"sink_views", sink_views},
    {"recompute", recompute},
    {"channels_last", channels_last},
    {"pad_rows", pad_rows},
};
const size_t kPassCount = sizeof kPasses / sizeof *kPasses;

}  // namespace lutra
