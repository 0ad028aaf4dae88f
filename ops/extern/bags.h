// What the kernels of embedding_bag on all devices share: the order of a sum, and errors.
#pragma once
#include "ops/core/error.h"

namespace lutra {

// Rows of a block of a sum. Blocks are summed with compensation.
inline constexpr int64_t kBagBlock = 32;

inline Error wrong_bag_id(int64_t id, int64_t rows) {
  return {ErrorKind::kData, str("embedding_bag: an id is no row of weight: ", id, ", which has ", rows)};
}

enum class BagOffset { kFirst, kLarge, kDescends };  // what is wrong with an offset
inline Error wrong_bag_offset(BagOffset what, int64_t offset) {
  const char* text = what == BagOffset::kFirst   ? "offsets[0] must be 0: the first bag begins with the first id"
                     : what == BagOffset::kLarge ? "an offset is greater than the number of ids"
                                                 : "offsets must not descend";
  return {ErrorKind::kData, str("embedding_bag: ", text, ", got ", offset)};
}

}  // namespace lutra
