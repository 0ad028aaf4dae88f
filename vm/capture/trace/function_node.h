// lt.autograd.Function in a trace.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// _native.make_node(name, function, context, inputs, results, saved): results become those of a node of the tape,
// which calls the function for its gradients.
Vars run_make_node(Trace& t, Var* self, const Vars& args);
// Whether such a node may be asked for gradients on the way from t, which cannot be done after the trace: it is there,
// and nothing behind t has been released, so that a backward would be refused.
bool has_function_behind(const Tensor& t);

}  // namespace lutra
