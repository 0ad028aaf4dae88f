// What a floating point dtype that is computed in looks like: precision and bounds.
#pragma once
#include "ops/core/dtype.h"

namespace lutra {

struct FloatFormat {
  int digits;    // bits of the significand, the hidden one among them
  double least;  // the smallest number above zero
  double most;
};
FloatFormat float_format(DType dtype);

}  // namespace lutra
