// Recognises parts of tensors among the nodes of a gradient's graph: zeros with a part in its place, and sums of such.
#pragma once
#include "ops/defs/call.h"

namespace lutra {

// A part `value` in places from..to along dim of `around`.
struct PlacedPart {
  Tensor around, value;
  int64_t dim = 0, from = 0, to = 0;
  bool thin = false;  // value lacks the dimension

  // Finds the part that a node puts in its place. Returns false if it puts none, or if the place depends on symbols.
  bool find(OpId op, const Args& args, const Tensor& result);
};

// Returns whether all elements that the node makes are 0, and not -0.
bool gives_zeros(OpId op, const Args& args);
// Returns whether the node adds two tensors of floats, both of the result's sizes and dtype.
bool gives_sum(OpId op, const Args& args, const Tensor& result);
// Returns the value of a size if the guards allow only one.
std::optional<int64_t> fixed_size(SymInt s);
Tensor join(std::vector<Tensor> pieces, int64_t dim);

}  // namespace lutra
