// The dtype in which a number is searched among boundaries: their own dtype if that holds the number, else float64, so
// that 2.5 lies between the integers 2 and 3.
#pragma once
#include <cmath>

#include "ops/core/dtype.h"

namespace lutra {

inline DType number_search_type(DType boundaries, double number) {
  if (is_float(boundaries)) return boundaries;
  const double most = is_bool(boundaries) ? 1 : info(boundaries).most;
  const bool is_signed = !is_bool(boundaries) && info(boundaries).least < -most;
  const double least = is_signed ? info(boundaries).least : 0;  // a number that wraps around is not held
  const bool held = std::trunc(number) == number && number >= least && number <= most;
  return held ? boundaries : DType::kFloat64;
}

}  // namespace lutra
