// The precision and bounds of a computed floating point dtype.
#pragma once
#include "ops/core/dtype.h"

namespace lutra {

struct FloatFormat {
  int digits;    // bits of the significand, including the hidden one
  double least;  // the smallest number above zero
  double most;
};
FloatFormat float_format(DType dtype);

}  // namespace lutra
