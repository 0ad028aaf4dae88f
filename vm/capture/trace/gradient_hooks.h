// Models of x:retain_grad() and x:register_hook(f): hooks run where the trace runs a backward. So do those that leaves
// have when the segment begins. As in PyTorch:
// 1. A leaf's hooks run once a backward, in order, on the sum of what has come to it, before .grad takes that; its post
//    accumulate hooks afterwards, on the leaf. Those run that are there when its turn comes: what a hook registers
//    waits for the next backward, what it removes runs once more.
// 2. What a hook reads (variables, fields, .grad) is read when it runs. Which functions run is guarded.
// 3. Memory that a hook sees becomes no leaf's .grad (Engine::owned). What a hook gives may be written by another one.
// 4. A hook that is there at the end of the segment is registered after the run, for backwards behind it.
// 5. The trace does not know the order of hooks of inputs with a history: it breaks where a gradient comes to one.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

Vars run_retain_grad(Trace& t, Var* self, const Vars& args);
// Before a backward that has these arguments: non-leaves among those that it is asked for keep their gradient.
void keep_gradients_of_inputs(Trace& t, const Vars& args);
Vars run_register_hook(Trace& t, Var* self, const Vars& args);
// Before a backward: the hooks that an input had when the segment began become its fake's.
void load_hooks(Trace& t, size_t input);

}  // namespace lutra
