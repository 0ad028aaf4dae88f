// Makes a step of a guard program.
#pragma once
#include "vm/guard/program.h"

namespace lutra {

inline GuardStep step(GuardOp op, int a = -1, int b = -1, int index = 0) {
  GuardStep s;
  s.op = op, s.a = a, s.b = b, s.index = index;
  return s;
}

}  // namespace lutra
