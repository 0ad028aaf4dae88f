// Models of x:retain_grad() and x:register_hook(f): hooks run where the trace runs a backward. So do hooks that leaves
// have when the segment begins. As in PyTorch:
// 1. A leaf's hooks run once for each backward, in order, on the sum of its gradients, before that is added to .grad.
//    Its post-accumulate hooks run afterwards, on the leaf. The list of hooks is fixed when the leaf's turn begins: a
//    hook that another one registers runs from the next backward on, and a hook that another one removes runs once
//    more.
// 2. Variables, fields and .grad that a hook uses are read when it runs. Guards check which functions run.
// 3. Memory that a hook sees does not become a leaf's .grad (Engine::owned). The result of a hook may be written by
//    another one.
// 4. A hook that exists at the end of the segment is registered after the run, for later backwards.
// 5. The trace does not know the order of hooks of inputs with a history: it breaks if a gradient reaches one.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

Vars run_retain_grad(Trace& t, Var* self, const Vars& args);
// Called before a backward with these arguments: makes the non-leaves among its `inputs` keep their gradient.
void keep_gradients_of_inputs(Trace& t, const Vars& args);
Vars run_register_hook(Trace& t, Var* self, const Vars& args);
// Called before a backward: gives the fake of an input the hooks that the input had when the segment began.
void load_hooks(Trace& t, size_t input);

}  // namespace lutra
