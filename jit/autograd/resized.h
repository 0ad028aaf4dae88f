// Rebuilds a graph that was traced for some sizes for the sizes of a run. The compiler needs this: it answers questions
// about sizes by the graph's hints.
#pragma once
#include <memory>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// traced: the env that the graph was traced in; only read. Returns null if the trace relies on a guard with another
// outcome for these sizes, or if a node has unbacked sizes or functions. Changes the hints of `pattern`.
std::unique_ptr<Graph> resized(Graph& pattern, const SymEnv& traced, const std::vector<Tensor>& inputs,
                               const std::vector<double>& scalars);

}  // namespace lutra
