// The modes installed on a thread. See modes.h.
#include "ops/defs/modes.h"

namespace lutra {

constinit thread_local Modes* installed_modes = nullptr;

Modes& thread_modes() {
  thread_local Modes own;
  return own;
}

bool grad_enabled() { return modes().grad; }
void set_grad_enabled(bool on) { modes().grad = on; }
Generator& default_generator() { return modes().generator; }

}  // namespace lutra
