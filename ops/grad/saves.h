// The values whose elements a vjp rule reads, by the arguments that want gradients: the parsed saves text of a rule.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

struct SaveMasks {
  uint32_t args = 0, results = 0;  // bit n: of args[n], of results[n]
};

// wants: bit k is set if args[k] requires grad. in_place: the result is written over args[0].
SaveMasks saved_by(OpId op, uint32_t wants, bool in_place = false);

}  // namespace lutra
