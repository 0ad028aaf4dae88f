// Graph passes: pure functions from graph to graph, one file and one golden-text test each; jit/compile.cc runs them.
#pragma once
#include <functional>

#include "jit/graph/graph.h"

namespace lutra {

using GraphPtr = std::unique_ptr<Graph>;

GraphPtr functionalise(const Graph& g);  // in-place ops and writes through views become values; copy_ into inputs last
GraphPtr decompose(const Graph& g);      // composites become primitives
GraphPtr cse(const Graph& g);            // one node for equal pure nodes
GraphPtr dce(const Graph& g);            // drops what no output, write or check needs

struct PassRow {
  const char* name;
  GraphPtr (*run)(const Graph&);
};
extern const PassRow kPasses[];
extern const size_t kPassCount;

// Copies g node by node through call_op in a recorder of a new graph (same SymEnv); rewrite may return replacements for
// a node's results (args already mapped), or an empty list to copy the node as it is.
GraphPtr rebuild(const Graph& g, const std::function<bool(const Node& node, Args& args, Results& results)>& rewrite);

}  // namespace lutra
