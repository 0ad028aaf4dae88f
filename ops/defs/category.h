// The category of an op and its batching rule. Both follow from the op's row.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

enum class Category : uint8_t {
  kPointwise,    // an element of the result depends on those at its place
  kReduction,    // dimensions become one value
  kContraction,  // a sum of products
  kSpatial,      // windows over images
  kView,         // the same memory
  kMovement,     // elements move to places given by sizes and numbers
  kGather,       // elements come from places that a tensor gives
  kScatter,      // elements go to places that a tensor gives
  kLibrary,      // whole rows by a kernel of its own: scans, sorts, histograms
  kRandom,
  kCreation,
  kWrite,
  kComposite,  // its decomposition is its meaning
  kDynamic,    // elements decide the result's shape
};
const char* name(Category c);
Category category(OpId op);
// Returns whether a scatter only sets elements, independent of their old values. Running it twice then equals running
// it once.
bool only_sets(OpId op, const Args& args);

// How an op is called with a batch dimension in front of its tensors (batch.h).
enum class Batching : uint8_t {
  kBroadcast,  // unchanged: operands of fewer dimensions get dimensions of size 1 behind the batch
  kDims,       // unchanged, but with its dimension arguments incremented
  kParts,      // by its decomposition
  kNone,       // no rule yet
};
const char* name(Batching b);
Batching batching(OpId op);
// Returns whether an argument names dimensions.
bool names_dims(const ArgInfo& arg);

}  // namespace lutra
