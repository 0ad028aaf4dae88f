// The autograd facts of a segment's outputs: the edges of its inputs' gradients, and the treatment of results that have
// a history or are views.
#pragma once
#include "vm/capture/segment/entry.h"

namespace lutra {

class Trace;

// Returns the edge of each graph input's gradient; without a node if it takes none.
std::vector<Edge> input_edges(const Trace& t);
// Sorts the outputs into leaves, refused ones and others. Returns whether a compiled backward is needed.
bool sort_outputs(Trace& t, Entry& e, const std::vector<Edge>& sources);
// Makes outputs of the leaves that the trace made and that a backward outside can reach, even if nothing else uses
// them. Returns their edges.
std::vector<Edge> keep_leaves(Trace& t, Entry& e);
void find_view_outputs(Trace& t, Entry& e);
// Makes outputs of tensors of which several outputs are views: a write through one view is visible in the others.
void output_bases(Trace& t);
// Finds the inputs whose requires_grad must be set for the run: the histories of outputs lead to leaves that required
// grad when they were used.
void find_requires_grad_writes(const Trace& t, Effects& left);
// Returns whether a compiled backward would need the Lua code of an autograd.Function.
bool parts_functions(const Trace& t);
// Returns whether the compiled backward would not reach a leaf that the segment makes and returns. It does not reach
// leaves that a user's backend makes, nor leaves in the memory of another tensor, since views are made again after the
// run.
bool parts_leaves(Trace& t, const std::vector<Edge>& sources, bool backend);

}  // namespace lutra
