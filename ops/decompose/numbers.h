// Numbers as tensors: float64 without dims. Arithmetic of doubles on them is that of ops, to the same bits.
#pragma once
#include "ops/defs/call.h"

namespace lutra {

// The one element of t as it is now, whatever is written to t later. It has no gradient.
Tensor number_of_element(const Tensor& t);
// Of a boolean: itself, and what `not` makes of it.
Tensor truth_of_element(const Tensor& t);
// From there on a number of the graph is what number_of_element() gave.
void tell_number(const Tensor& element, const Scalar& number);
Tensor not_of(const Tensor& truth);
// a - floor(a / b) * b
Tensor number_remainder(const Tensor& a, const Tensor& b);
// Whether no element of what op gives is beyond 2^53: it is a place in memory, or counts such places.
bool counts_elements(OpId op, const Args& args);

}  // namespace lutra
