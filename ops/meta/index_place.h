// PyTorch's rule for the place of the indices' dimensions in the result of x[indices at dims]. A 0-dim index selects:
// it leaves no dimension and does not separate others. The common dimensions of the other indices replace the first of
// their dims if these are neighbours; otherwise they come first.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lutra {

// Takes dim_of(k), ascending, and rank_of(k) for the k-th of count indices. Returns the place.
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
