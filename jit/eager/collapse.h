// Collapses the layouts of a pointwise op's operands into the fewest loops that visit them all.
#pragma once
#include "ops/core/tensor.h"

namespace lutra {

// Invariants: operand 0 is the result; dims are ordered by its strides, outermost first; no dim has size 1, except that
// there is always at least one dim; a dim that an operand broadcasts has stride 0; zero-dimensional operands have no
// strides but keep their place.
struct Collapsed {
  static constexpr int kOperands = 8, kDims = 2 * int(kMaxDims);
  int operands = 0, dims = 0;
  int64_t elements = 1;
  int64_t sizes[kDims];
  int64_t strides[kOperands][kDims];

  // Returns true if no element of the result is reached twice, as far as strides in order of size show it.
  bool writes_each_once() const;

  // If operand k has a stride other than 0 and 1 in the inner dim, returns the outer dim in which it has stride 1;
  // otherwise -1. Code generators read such columns in tiles.
  int column(int k) const {
    if (strides[k][dims - 1] == 0 || strides[k][dims - 1] == 1) return -1;
    int d = dims - 2;
    while (d >= 0 && strides[k][d] != 1) d--;
    return d;
  }
};

// operands[0] is the result. The others have its sizes or broadcast to them. in_order: dims keep their order.
Collapsed collapse(const TensorImpl* const* operands, int count, bool in_order = false);

}  // namespace lutra
