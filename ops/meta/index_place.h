// Where the dimensions of the index tensors go in the result of x[indices at dims]: PyTorch's rule. A 0-dim index
// selects, so it leaves no dimension and does not stand between others. The others' common dimensions stand in the
// place of the first of them where they are neighbours, else in front.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lutra {

// dim_of(k), ascending, and rank_of(k) of the k-th of count indices.
template <class Dim, class Rank>
int64_t index_place(size_t count, const Dim& dim_of, const Rank& rank_of) {
  int64_t selected = 0, first = -1, next = 0;
  for (size_t k = 0; k < count; k++) {
    if (rank_of(k) == 0) {
      selected++;
      continue;
    }
    const int64_t at = dim_of(k) - selected;
    if (first < 0) {
      first = at;
    } else if (at != next) {
      return 0;
    }
    next = at + 1;
  }
  return first < 0 ? 0 : first;
}

}  // namespace lutra
