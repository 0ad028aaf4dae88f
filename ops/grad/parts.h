// What the gradient of a part of a tensor is made of, told from a node of a graph: zeros with the part in its place,
// and sums of such.
#pragma once
#include "ops/defs/call.h"

namespace lutra {

// Places from..to along a dimension that a part takes.
struct PlacedPart {
  Tensor around, value;
  int64_t dim = 0, from = 0, to = 0;
  bool thin = false;  // the dimension is left out of value

  // What a node gives, as a part in its place; false where it is none, or where that depends on symbols.
  bool find(OpId op, const Args& args, const Tensor& result);
};

// Of a node: whether all it gives is 0, and not -0.
bool gives_zeros(OpId op, const Args& args);
// Whether it adds two tensors of floats, both of the result's sizes and dtype.
bool gives_sum(OpId op, const Args& args, const Tensor& result);
// The value of a size that guards leave no choice.
std::optional<int64_t> fixed_size(SymInt s);
Tensor join(std::vector<Tensor> pieces, int64_t dim);

}  // namespace lutra
