// Numbers as tensors: float64 without dims. Ops on them compute what arithmetic of doubles does, to the same bits.
#pragma once
#include "ops/defs/call.h"

namespace lutra {

// Returns a copy of the one element of t, so that later writes to t don't change it. It has no gradient.
Tensor number_of_element(const Tensor& t);
// Returns a copy of the one boolean element of t. not_of() negates it.
Tensor truth_of_element(const Tensor& t);
// Makes a symbolic number of the graph the value of `element`, which number_of_element() returned.
void tell_number(const Tensor& element, const Scalar& number);
Tensor not_of(const Tensor& truth);
// Returns a - floor(a / b) * b.
Tensor number_remainder(const Tensor& a, const Tensor& b);
// Returns whether op's results are positions in memory or counts of them, so that no element exceeds 2^53.
bool counts_elements(OpId op, const Args& args);

}  // namespace lutra
