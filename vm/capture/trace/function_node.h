// lt.autograd.Function in a trace.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// Models _native.make_node(name, function, context, inputs, results, saved): makes the results those of a tape node,
// which calls the function for its gradients.
Vars run_make_node(Trace& t, Var* self, const Vars& args);
// Returns whether a backward from t may call such a node, which is impossible after the trace. False if there is none,
// or if part of the graph was released, so that a backward would raise an error.
bool has_function_behind(const Tensor& t);

}  // namespace lutra
