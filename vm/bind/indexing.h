// Indices as data: what x[...] holds, whatever form it was written in.
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

// An index in, its items out: a number, a slice {a, b, step}, ":", "...", a string of those, a tensor, a list of them.
std::vector<IndexItem> read_index(ArgReader& in, ArgReader::H index);

// The tensor indices that are left after select, slice and unsqueeze: positions in dimension dim of the view.
struct Advanced {
  int64_t dim;
  Tensor positions;
};
// t as an index holds it: int64 (int32 converted) or bool (uint8 counts as a mask), or an error.
Tensor index_tensor(const Tensor& t);

}  // namespace lutra
