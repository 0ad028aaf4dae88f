// A graph that was traced for some sizes, made for those of a run: what compiles it answers questions of sizes by its
// hints.
#pragma once
#include <memory>
#include <vector>

#include "jit/graph/graph.h"

namespace lutra {

// From the env that the graph was traced in (traced, which is only read). Null where an answer that the trace relies on
// is another one for these sizes, and where a part of the graph has sizes of its own. Changes the hints of `pattern`.
std::unique_ptr<Graph> resized(Graph& pattern, const SymEnv& traced, const std::vector<Tensor>& inputs,
                               const std::vector<double>& scalars);

}  // namespace lutra
