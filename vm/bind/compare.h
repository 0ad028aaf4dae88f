// What functions that compare tensors ask, as a tensor of one truth: for who cannot read it yet.
#pragma once
#include <string>

#include "vm/bind/binding.h"

namespace lutra {

// Of "equal" or "allclose"; null where the tensors' sizes differ, which equal says no to.
Tensor answer_of(const std::string& name, ArgReader& in);

}  // namespace lutra
