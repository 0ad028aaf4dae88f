// Describes scattering into a tensor, for the kernels of every device. A walk has positions (the index's own dims,
// row-major) and, for each, a slice (the dims that no index takes). Elements that meet in one place are combined in the
// order of the positions.
#pragma once
#include <string_view>
#include <vector>

#include "ops/extern/extern.h"

namespace lutra {

enum class ScatterMode { kSet, kAdd, kMul, kMax, kMin };

struct IndexOperand {
  const ExternView* view;
  int64_t strides[kExternDims] = {};  // by position dim
  int64_t size = 0, stride = 0;       // of the result's dim that it indexes
  int64_t dim = 0;                    // for messages
};

struct ScatterWalk {
  std::string_view op;  // for messages
  bool wraps = false;   // negative positions count from the end
  int dims = 0;         // the number of position dims
  int64_t sizes[kExternDims], dst[kExternDims] = {}, src[kExternDims] = {};
  std::vector<IndexOperand> indices;
  int slice_dims = 0;
  int64_t slice_sizes[kExternDims], slice_dst[kExternDims], slice_src[kExternDims];
  // A position dim along which elements never meet; -1: there is none.
  int apart = -1;

  int64_t positions() const {
    int64_t n = 1;
    for (int d = 0; d < dims; d++) n *= sizes[d];
    return n;
  }
  int64_t slice() const {
    int64_t n = 1;
    for (int d = 0; d < slice_dims; d++) n *= slice_sizes[d];
    return n;
  }
  void add_position(int64_t size, int64_t dst_stride, int64_t src_stride) {
    sizes[dims] = size, dst[dims] = dst_stride, src[dims] = src_stride;
    dims++;
  }
  void add_slice(int64_t size, int64_t dst_stride, int64_t src_stride) {
    if (size == 1) return;
    slice_sizes[slice_dims] = size, slice_dst[slice_dims] = dst_stride, slice_src[slice_dims] = src_stride;
    slice_dims++;
  }
};

struct ScatterReduction {
  ScatterMode mode;
  bool mean = false;
};
// Parses "sum", "mean", ... An empty text is kSet.
ScatterReduction scatter_reduction(std::string_view reduce);

// The walk for an index of the result's rank: an element goes to the same place, except along dim.
ScatterWalk elementwise_walk(const char* op, const ExternView& out, int64_t dim, const ExternView& index,
                             const ExternView& src);
// The walk for a vector of positions along dim. src has the result's shape except there.
ScatterWalk slice_walk(const char* op, const ExternView& out, int64_t dim, const ExternView& index,
                       const ExternView& src);
// The walk of index_put: several indices that broadcast together. The values broadcast to the indexing result.
ScatterWalk index_put_walk(const ExternCall& call);
// Returns whether a call with operands (input, index, source) puts row i of the source into the row that element i of
// the index names, one after the other. Then several calls for some rows each, in order, equal one call.
bool is_by_rows(const ExternCall& call);
// The walk of embedding_dense_backward: rows of the gradient go into rows of the result.
ScatterWalk embedding_walk(const ExternCall& call);

}  // namespace lutra
