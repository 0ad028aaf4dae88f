// What autograd has to know of a segment's beginning: the history that inputs bring from before it, and the history
// that writes in it give them.
//
// Invariants:
// 1. An input with history from before the segment is a non-leaf for the trace, too. A backward that would go on into
//    that history ends the segment before it.
// 2. Where a write gives an input another history, its last value is an output; the real tensor takes its history. It
//    is no view.
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

 private:
  BorderScope* const outer_;
};

// Gives the fake of an input the autograd state that the real tensor has; where its gradient goes to.
Edge border(const Tensor& fake, const Tensor& real);
// Whether a write in the segment has given the input a history.
bool has_new_history(const Trace::TensorInput& in);
// After writes among the graph's nodes from `first` on: ends the segment before a write to a view that gives a history
// to the view's base, which may have hooks (the segment does not know it), or to a view with hooks: they see the
// gradient of what it was.
void see_writes(Trace& t, size_t first);

}  // namespace lutra
