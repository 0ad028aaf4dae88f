// What autograd has to know of a segment's beginning: the history that inputs bring from before it, and the history
// that writes in it give them.
//
// Invariants:
// 1. An input with history from before the segment is a non-leaf for the trace, too. A backward that would go on into
//    that history ends the segment before it.
// 2. Where a write gives an input another history, its last value is an output; the real tensor takes its history.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// While backward or lt.grad is traced: tells whether the gradient goes on into history from before the segment, which
// raises an error.
struct BorderScope {
  explicit BorderScope(Trace& t);
  ~BorderScope();
  BorderScope(const BorderScope&) = delete;
  Trace& trace;
  bool goes_beyond = false;
};

// Gives the fake of an input the autograd state that the real tensor has; where its gradient goes to.
Edge border(const Tensor& fake, const Tensor& real);
// Whether a write in the segment has given the input a history.
bool has_new_history(const Trace::TensorInput& in);
// Whether eager lets a write give a tensor a history: not a view of a leaf, nor one that was made in no_grad mode.
bool is_writable(const Tensor& real);
// After writes among the graph's nodes from `first` on: these inputs become views for the tape. Ends the segment
// before a write that eager refuses, or to a view with hooks: they see the gradient of what it was.
void see_writes(Trace& t, size_t first);

}  // namespace lutra
