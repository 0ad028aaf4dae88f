// Comparisons of tensors whose result is a one-element boolean tensor, for callers that cannot read elements yet.
#pragma once
#include <string>

#include "vm/bind/binding.h"

namespace lutra {

// Returns the result of "equal" or "allclose" as a tensor. Returns null if the sizes differ, for which equal returns
// false.
Tensor answer_of(const std::string& name, ArgReader& in);

}  // namespace lutra
