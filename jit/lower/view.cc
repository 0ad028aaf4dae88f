// Computes the operand's index of a view from an index of the result.
#include <algorithm>
#include <optional>

#include "jit/lower/lower.h"

namespace lutra {
namespace {

// The index into the operand; none if it is not affine.
using Map = std::optional<Index>;

Map map_permute(const Index& in, const std::vector<int64_t>& dims) {
  Index out(dims.size());
  for (size_t d = 0; d < dims.size(); d++) out[size_t(dims[d])] = in[d];
  return out;
}

Map map_transpose(const Node& n, Index in) {
  const int64_t rank = n.results[0]->dim();
  if (rank > 0) {
    std::swap(in[size_t(wrap_dim(n.args[1].sym_int().hint, rank))],
              in[size_t(wrap_dim(n.args[2].sym_int().hint, rank))]);
  }
  return in;
}

Map map_permute(const Node& n, const Index& in) {
  std::vector<int64_t> dims;
  for (SymInt d : n.args[1].as<Sizes>()) dims.push_back(wrap_dim(d.hint, n.results[0]->dim()));
  return map_permute(in, dims);
}

// Dimension dim of the operand is start + index * step. dropped: the result does not have it.
Map map_line(Index in, int64_t dim, SymInt start, SymInt step, bool dropped) {
  const Affine at = Affine::constant(start);
  if (dropped) {
    in.insert(in.begin() + dim, at);
  } else {
    in[size_t(dim)] = at + in[size_t(dim)] * step;
  }
  return in;
}

// The meta rule may have clamped a symbolic start by another symbol. That is not repeated here; such a view is read
// from memory.
Map map_select(const Node& n, const Index& index) {
  Tensor in = n.args[0].tensor();
  int64_t dim = wrap_dim(n.args[1].sym_int().hint, in->dim());
  SymInt i = n.args[2].sym_int(), size = in->sizes[size_t(dim)];
  if (!i.is_constant()) return std::nullopt;
  return map_line(index, dim, i.hint < 0 ? i + size : i, 1, true);
}

Map map_slice(const Node& n, const Index& index) {
  Tensor in = n.args[0].tensor();
  int64_t dim = wrap_dim(n.args[1].sym_int().hint, in->dim());
  SymInt size = in->sizes[size_t(dim)];
  SymInt start = n.args[2].is_none() ? SymInt(0) : n.args[2].sym_int();
  if (!start.is_constant() || (start.hint != 0 && !size.is_constant())) return std::nullopt;
  int64_t first = start.hint < 0 ? std::max<int64_t>(start.hint + size.hint, 0) : start.hint;
  if (first) first = std::min(first, size.hint);
  return map_line(index, dim, first, n.args[4].sym_int(), false);
}

// Regroups dimensions: pieces of equal extent are found from the left. A piece with one operand dimension is affine.
Map map_reshape(const Node& n, const Index& in, SymFacts& facts) {
  const Sizes &from = n.args[0].tensor()->sizes, &to = n.results[0]->sizes;
  Index out(from.size());
  size_t i = 0, j = 0;
  while (true) {
    while (i < from.size() && facts.is_one(from[i])) i++;
    while (j < to.size() && facts.is_one(to[j])) j++;
    if (i == from.size() || j == to.size()) return i == from.size() && j == to.size() ? Map(out) : std::nullopt;
    // from[i] = to[j] * ... * to[k - 1]
    SymInt extent = to[j];
    size_t k = j + 1;
    while (!facts.equal(extent, from[i]) && k < to.size()) extent = extent * to[k++];
    if (!facts.equal(extent, from[i])) return std::nullopt;
    SymInt stride = 1;
    for (size_t d = k; d-- > j;) {
      out[i] = out[i] + in[d] * stride;
      stride = stride * to[d];
    }
    i++, j = k;
  }
}

// The last dimension of the result goes along two dimensions of the operand.
Map map_diagonal(const Node& n, const Index& in) {
  const int64_t rank = n.args[0].tensor()->dim();
  const SymInt offset = n.args[1].sym_int();  // its sign is known, since the meta rule has guarded on it
  const int64_t a = wrap_dim(n.args[2].sym_int().hint, rank), b = wrap_dim(n.args[3].sym_int().hint, rank);
  Index out;
  size_t next = 0;
  for (int64_t d = 0; d < rank; d++) out.push_back(d == a || d == b ? in.back() : in[next++]);
  const size_t later = size_t(offset.hint < 0 ? a : b);
  out[later] = out[later] + Affine::constant(offset.hint < 0 ? SymInt(0) - offset : offset);
  return out;
}

Map map_unfold(const Node& n, const Index& in) {
  const int64_t rank = n.args[0].tensor()->dim(), dim = wrap_dim(n.args[1].sym_int().hint, rank);
  Index out(in.begin(), in.end() - 1);
  if (rank) out[size_t(dim)] = out[size_t(dim)] * n.args[3].sym_int() + in.back();
  return out;
}

Map map_of(const Node& n, SymFacts& facts) {
  const Index in = parameters(n.results[0]->sizes.size());
  switch (n.op) {
    case OpId::transpose: return map_transpose(n, in);
    case OpId::permute: return map_permute(n, in);
    case OpId::expand: return broadcast_index(facts, in, n.results[0]->sizes, n.args[0].tensor()->sizes);
    case OpId::select: return map_select(n, in);
    case OpId::slice: return map_slice(n, in);
    case OpId::diagonal: return map_diagonal(n, in);
    case OpId::unfold: return map_unfold(n, in);
    case OpId::as_strided:
    case OpId::view_dtype:
    case OpId::view_as_bytes:
    case OpId::view_as_packed:
    case OpId::view_as_real:
    case OpId::view_as_complex: return std::nullopt;
    case OpId::view:
    case OpId::unsqueeze:
    case OpId::squeeze: return map_reshape(n, in, facts);
    case OpId::detach:
    case OpId::alias: return in;
    default: fail_internal(name(n.op), ": a view without its index map");
  }
}

}  // namespace

Lowered lower_view(const Node& node, SymFacts& facts) {
  Lowered l;
  l.kind = Lowered::kView;
  l.reads = {node.args[0].tensor()};
  Map map = map_of(node, facts);
  l.affine = map.has_value();
  if (map) l.map = std::move(*map);
  return l;
}

}  // namespace lutra
