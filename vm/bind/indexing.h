// Indices as data: the contents of x[...], whatever form they were written in.
#pragma once
#include <optional>

#include "vm/bind/binding.h"

namespace lutra {

struct IndexItem {
  enum Kind : uint8_t { kInt, kSlice, kNewAxis, kEllipsis, kTensor } kind;
  SymInt at;                                // kInt
  std::optional<SymInt> start, stop, step;  // kSlice
  Tensor tensor;                            // kTensor: int64 positions or a bool mask
};

// Reads an index into its items. It may be a number, a slice {a, b, step}, ":", "...", a string of those, a tensor, or
// a list of these.
std::vector<IndexItem> read_index(ArgReader& in, ArgReader::H index);

// A tensor index that remains after select, slice and unsqueeze: positions in dimension dim of the view.
struct Advanced {
  int64_t dim;
  Tensor positions;
};
// Converts t to an index tensor: int64 (int32 is converted) or bool (uint8 counts as a mask). Throws for other dtypes.
Tensor index_tensor(const Tensor& t);

}  // namespace lutra
