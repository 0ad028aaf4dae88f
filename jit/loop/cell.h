// The interpreter's representation of a value, and the initial values of reductions.
#pragma once
#include <limits>

#include "jit/loop/loop.h"

namespace lutra::loop {

// A value: floats in f (a float32 as the double equal to it), integers and bools in i.
union Cell {
  double f;
  int64_t i;
};

// Returns the initial value of an accumulator.
inline Cell identity(RedOp op, DType t) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Cell r;
  r.i = 0;
  const bool greatest = op == RedOp::kMin || op == RedOp::kArgMin, least = op == RedOp::kMax || op == RedOp::kArgMax;
  if (is_float(t)) {
    r.f = least ? -infinity : greatest ? infinity : op == RedOp::kProd ? 1 : 0;
  } else if (greatest || least) {
    r.i = greatest ? greatest_integer(t) : least_integer(t);
  } else {
    r.i = op == RedOp::kProd || op == RedOp::kAll;
  }
  return r;
}

constexpr int64_t kNoPosition = std::numeric_limits<int64_t>::max();

}  // namespace lutra::loop
