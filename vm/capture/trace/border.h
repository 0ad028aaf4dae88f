// The autograd history at the beginning of a segment: the history that inputs have from before it, and the new history
// that writes in the segment give them.
//
// Invariants:
// 1. An input with history from before the segment is a non-leaf in the trace, too. A backward that would continue into
//    that history ends the segment before itself.
// 2. If a write gives an input another history, the input's last value is an output, and the real tensor takes its
//    history. Such an input is not a view.
#pragma once
#include "vm/capture/trace/trace.h"

namespace lutra {

// A scope in which backward or lt.grad is traced. It records whether the gradient continues into history from before
// the segment, which raises an error.
struct BorderScope {
  explicit BorderScope(Trace& t);
  ~BorderScope();
  BorderScope(const BorderScope&) = delete;
  Trace& trace;
  bool goes_beyond = false;

 private:
  BorderScope* const outer_;
};

// Gives the fake of an input the autograd state of the real tensor. Returns the edge that its gradient goes to.
Edge border(const Tensor& fake, const Tensor& real);
// Returns whether a write in the segment has given the input a new history.
bool has_new_history(const Trace::TensorInput& in);
// Checks the writes among the graph's nodes from `first` on. Ends the segment before a write to a view that gives its
// base a history (the base may have hooks, and the segment does not know it), and before a write to a view with hooks,
// which see the gradient of the old value.
void see_writes(Trace& t, size_t first);

}  // namespace lutra
