// Makes walks from the operands of scattering ops.
#include "ops/extern/scatter_walk.h"

#include <algorithm>

#include "ops/meta/index_place.h"

namespace lutra {
namespace {

// A 0-dim tensor counts as one of shape {1}.
int64_t size_at(const ExternView& v, int d) { return v.dim ? v.sizes[d] : 1; }
int64_t stride_at(const ExternView& v, int d) { return v.dim ? v.strides[d] : 0; }
int wrap(int64_t dim, const ExternView& v) { return int(dim < 0 ? dim + std::max(v.dim, 1) : dim); }

// Returns a walk with one index, of dim `at`. Its strides are not set.
ScatterWalk walk_by(const char* op, const ExternView& out, int at, const ExternView& index) {
  ScatterWalk w;
  w.op = op;
  w.indices.push_back({&index, {}, size_at(out, at), stride_at(out, at), at});
  return w;
}

}  // namespace

ScatterReduction scatter_reduction(std::string_view reduce) {
  if (reduce == "sum" || reduce == "add") return {ScatterMode::kAdd};
  if (reduce == "prod" || reduce == "multiply") return {ScatterMode::kMul};
  if (reduce == "mean") return {ScatterMode::kAdd, true};
  if (reduce == "amax" || reduce == "max") return {ScatterMode::kMax};
  if (reduce == "amin" || reduce == "min") return {ScatterMode::kMin};
  return {ScatterMode::kSet};
}

ScatterWalk elementwise_walk(const char* op, const ExternView& out, int64_t dim, const ExternView& index,
                             const ExternView& src) {
  const int at = wrap(dim, out);
  ScatterWalk w = walk_by(op, out, at, index);
  for (int d = 0; d < index.dim; d++) {
    w.indices[0].strides[d] = index.strides[d];
    const bool fits = index.dim == std::max(out.dim, 1);  // an empty index may have any rank
    w.add_position(index.sizes[d], d == at || !fits ? 0 : stride_at(out, d), d < src.dim ? src.strides[d] : 0);
    if (d != at && index.sizes[d] > 1 && w.apart < 0) w.apart = d;
  }
  return w;
}

ScatterWalk slice_walk(const char* op, const ExternView& out, int64_t dim, const ExternView& index,
                       const ExternView& src) {
  const int at = wrap(dim, out);
  ScatterWalk w = walk_by(op, out, at, index);
  w.indices[0].strides[0] = stride_at(index, 0);
  w.add_position(size_at(index, 0), 0, src.dim ? src.strides[at] : 0);
  for (int d = 0; d < out.dim; d++) {
    if (d != at) w.add_slice(out.sizes[d], out.strides[d], src.dim ? src.strides[d] : 0);
  }
  return w;
}

bool is_by_rows(const ExternCall& call) {
  if (call.op != OpId::index_add && call.op != OpId::index_put) return false;
  if (call.in.size() != 3 || call.ints.empty() || call.ints[0] != 0) return false;
  const ExternView &out = call.out[0], &index = call.in[1], &source = call.in[2];
  if (index.dim != 1 || out.dim == 0 || source.dim != out.dim || source.sizes[0] != index.sizes[0]) return false;
  for (int d = 1; d < out.dim; d++) {
    if (source.sizes[d] != out.sizes[d]) return false;
  }
  return true;
}

ScatterWalk index_put_walk(const ExternCall& call) {
  const ExternView &out = call.out[0], &values = call.in[call.in.size() - 1];
  const size_t count = call.in.size() - 2;
  ScatterWalk w;
  w.op = call.strings[0];
  w.wraps = true;
  int places = 0;
  for (size_t k = 0; k < count; k++) places = std::max(places, int(call.in[1 + k].dim));
  int64_t place_sizes[kExternDims];
  std::fill(place_sizes, place_sizes + kExternDims, 1);
  for (size_t k = 0; k < count; k++) {
    const ExternView& index = call.in[1 + k];
    IndexOperand operand{&index};
    operand.dim = call.ints[k];
    operand.size = out.sizes[operand.dim], operand.stride = out.strides[operand.dim];
    for (int d = 0; d < index.dim; d++) {
      const int at = places - index.dim + d;
      if (index.sizes[d] != 1) place_sizes[at] = index.sizes[d], operand.strides[at] = index.strides[d];
    }
    w.indices.push_back(operand);
  }
  const int rank = out.dim - int(count) + places;
  const auto first = int(index_place(
      count, [&](size_t k) { return call.ints[k]; }, [&](size_t k) { return call.in[1 + k].dim; }));
  const auto value_stride = [&](int d) {
    const int at = d - (rank - values.dim);
    return at < 0 || values.sizes[at] == 1 ? 0 : values.strides[at];
  };
  for (int d = 0; d < places; d++) w.add_position(place_sizes[d], 0, value_stride(first + d));
  int other = 0;
  for (int d = 0; d < out.dim; d++) {
    if (std::find(call.ints.begin(), call.ints.begin() + long(count), d) != call.ints.begin() + long(count)) continue;
    if (other == first) other += places;
    w.add_slice(out.sizes[d], out.strides[d], value_stride(other++));
  }
  return w;
}

ScatterWalk embedding_walk(const ExternCall& call) {
  const ExternView &g = call.in[0], &index = call.in[1], &out = call.out[0];
  ScatterWalk w;
  w.op = "embedding";
  IndexOperand operand{&index};
  operand.size = out.sizes[0], operand.stride = out.strides[0];
  for (int d = 0; d < index.dim; d++) {
    operand.strides[d] = index.strides[d];
    w.add_position(index.sizes[d], 0, g.strides[d]);
  }
  w.indices.push_back(operand);
  w.slice_dims = 1;
  w.slice_sizes[0] = out.sizes[1], w.slice_dst[0] = out.strides[1], w.slice_src[0] = g.strides[g.dim - 1];
  return w;
}

}  // namespace lutra
