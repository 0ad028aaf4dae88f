// What autograd has to know of a segment's outputs: where the gradients of inputs go to, and what becomes of results
// that have a history or are views.
#pragma once
#include "vm/capture/segment/entry.h"

namespace lutra {

class Trace;

// By graph input: where its gradient goes to, no node where it takes none.
std::vector<Edge> input_edges(const Trace& t);
// Sorts the outputs by what autograd has to know of them; true when a compiled backward is needed.
bool sort_outputs(Trace& t, Entry& e, const std::vector<Edge>& sources);
// Leaves that the trace made and a backward outside reaches are outputs, whoever sees them: it goes on to them. Gives
// their edges.
std::vector<Edge> keep_leaves(Trace& t, Entry& e);
void find_view_outputs(Trace& t, Entry& e);
// What several outputs are views of is an output, too: a write through one of them is seen by the others.
void output_bases(Trace& t);
// Histories of outputs lead to leaves that required grad when they were used.
void find_requires_grad_writes(const Trace& t, Effects& left);
// Would a compiled backward need the Lua code of an autograd.Function?
bool parts_functions(const Trace& t);
// Would the compiled backward not reach a leaf that the segment makes and gives out? It reaches none that a user's
// backend makes, and none that lies in the memory of another tensor: views are made again after the run.
bool parts_leaves(Trace& t, const std::vector<Edge>& sources, bool backend);

}  // namespace lutra
