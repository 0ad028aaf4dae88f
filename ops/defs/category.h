// What kind of op a row is, and how a batch goes through it: both follow from the row.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

enum class Category : uint8_t {
  kPointwise,    // an element of the result from those at its place
  kReduction,    // dimensions become one value
  kContraction,  // a sum of products
  kSpatial,      // windows over images
  kView,         // the same memory
  kMovement,     // elements in other places, which sizes and numbers give
  kGather,       // elements from places that a tensor gives
  kScatter,      // elements to places that a tensor gives
  kLibrary,      // whole rows by a kernel of its own: scans, sorts, histograms
  kRandom,
  kCreation,
  kWrite,
  kComposite,  // its decomposition is its meaning
  kDynamic,    // elements decide the result's shape
};
const char* name(Category c);
Category category(OpId op);
// Whether a scatter sets elements, whatever they were: done twice it is done once.
bool only_sets(OpId op, const Args& args);

// How an op takes a batch dimension in front of its tensors (batch.h).
enum class Batching : uint8_t {
  kBroadcast,  // as it is: operands of fewer dimensions get ones of size 1 behind the batch
  kDims,       // as it is, with dimensions that count one further
  kParts,      // by its decomposition
  kNone,       // no rule yet
};
const char* name(Batching b);
Batching batching(OpId op);
// An argument that names dimensions.
bool names_dims(const ArgInfo& arg);

}  // namespace lutra
