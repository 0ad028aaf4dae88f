// Converts real tensors to the views that kernels take.
#pragma once
#include "ops/core/error.h"
#include "ops/extern/extern.h"

namespace lutra {

inline ExternView view_of(const Tensor& t) {
  LUTRA_CHECK(t->dim() <= kExternDims);
  ExternView v;
  v.data = t->data();
  v.dtype = t->dtype;
  v.dim = int32_t(t->dim());
  for (int32_t d = 0; d < v.dim; d++) v.sizes[d] = t->sizes[size_t(d)].hint, v.strides[d] = t->strides[size_t(d)].hint;
  return v;
}

// Expands both to their common shape, which must exist.
inline void broadcast_views(ExternView& a, ExternView& b) {
  ExternView wide[2] = {a, b};
  const ExternView* from[2] = {&a, &b};
  const int32_t dim = a.dim > b.dim ? a.dim : b.dim;
  for (int k = 0; k < 2; k++) {
    wide[k].dim = dim;
    for (int32_t d = 0; d < dim; d++) {
      const int32_t at = d - (dim - from[k]->dim), other = d - (dim - from[1 - k]->dim);
      const int64_t mine = at < 0 ? 1 : from[k]->sizes[at], theirs = other < 0 ? 1 : from[1 - k]->sizes[other];
      wide[k].sizes[d] = mine == 1 ? theirs : mine;
      wide[k].strides[d] = mine == 1 ? 0 : from[k]->strides[at];
    }
  }
  a = wide[0], b = wide[1];
}

}  // namespace lutra
