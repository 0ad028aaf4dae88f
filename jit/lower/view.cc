// Views: the index of the operand that an index of the result stands for.
#include <algorithm>

#include "jit/lower/lower.h"

namespace lutra {
namespace {

using Map = std::function<bool(const Index&, Index&)>;

Map map_permute(std::vector<int64_t> dims) {
  return [dims](const Index& in, Index& out) {
    out.resize(dims.size());
    for (size_t d = 0; d < dims.size(); d++) out[size_t(dims[d])] = in[d];
    return true;
  };
}

Map map_transpose(const Node& n) {
  int64_t rank = n.results[0]->dim();
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  for (int64_t d = 0; d < rank; d++) dims[size_t(d)] = d;
  if (rank > 0) {
    std::swap(dims[size_t(wrap_dim(n.args[1].sym_int().hint, rank))],
              dims[size_t(wrap_dim(n.args[2].sym_int().hint, rank))]);
  }
  return map_permute(dims);
}

Map map_permute(const Node& n) {
  std::vector<int64_t> dims;
  for (SymInt d : n.args[1].as<Sizes>()) dims.push_back(wrap_dim(d.hint, n.results[0]->dim()));
  return map_permute(dims);
}

Map map_expand(const Node& n, SymFacts& facts) {
  Sizes from = n.args[0].tensor()->sizes, to = n.results[0]->sizes;
  SymFacts* f = &facts;
  return [from, to, f](const Index& in, Index& out) {
    out = broadcast_index(*f, in, to, from);
    return true;
  };
}

// One dimension is start + index * step of the operand's; `dropped` ones are absent from the result.
Map map_line(int64_t dim, SymInt start, SymInt step, bool dropped) {
  return [=](const Index& in, Index& out) {
    out = in;
    Affine at = Affine::constant(start);
    if (dropped) {
      out.insert(out.begin() + dim, at);
    } else {
      out[size_t(dim)] = at + in[size_t(dim)] * step;
    }
    return true;
  };
}

// Starts that the meta rule may have clamped by a symbol are not repeated here: such a view is read from memory.
Map map_memory() {
  return [](const Index&, Index&) { return false; };
}

Map map_select(const Node& n) {
  Tensor in = n.args[0].tensor();
  int64_t dim = wrap_dim(n.args[1].sym_int().hint, in->dim());
  SymInt i = n.args[2].sym_int(), size = in->sizes[size_t(dim)];
  if (!i.is_constant()) return map_memory();
  return map_line(dim, i.hint < 0 ? i + size : i, 1, true);
}

Map map_slice(const Node& n) {
  Tensor in = n.args[0].tensor();
  int64_t dim = wrap_dim(n.args[1].sym_int().hint, in->dim());
  SymInt size = in->sizes[size_t(dim)];
  SymInt start = n.args[2].is_none() ? SymInt(0) : n.args[2].sym_int();
  if (!start.is_constant() || (start.hint != 0 && !size.is_constant())) return map_memory();
  int64_t first = start.hint < 0 ? std::max<int64_t>(start.hint + size.hint, 0) : start.hint;
  if (first) first = std::min(first, size.hint);
  return map_line(dim, first, n.args[4].sym_int(), false);
}

// Regroups dimensions: pieces of equal extent are found from the left. A piece with one operand dimension is affine.
Map map_reshape(const Node& n, SymFacts& facts) {
  Sizes from = n.args[0].tensor()->sizes, to = n.results[0]->sizes;
  SymFacts* f = &facts;
  return [from, to, f](const Index& in, Index& out) {
    auto one = [f](SymInt s) { return f->is_one(s); };
    out.assign(from.size(), Affine());
    size_t i = 0, j = 0;
    while (true) {
      while (i < from.size() && one(from[i])) i++;
      while (j < to.size() && one(to[j])) j++;
      if (i == from.size() || j == to.size()) return i == from.size() && j == to.size();
      // from[i] = to[j] * ... * to[k - 1]
      SymInt extent = to[j];
      size_t k = j + 1;
      while (!f->equal(extent, from[i]) && k < to.size()) extent = extent * to[k++];
      if (!f->equal(extent, from[i])) return false;
      SymInt stride = 1;
      for (size_t d = k; d-- > j;) {
        out[i] = out[i] + in[d] * stride;
        stride = stride * to[d];
      }
      i++, j = k;
    }
  };
}

// The last dimension of the result walks along two of the operand's.
Map map_diagonal(const Node& n) {
  const int64_t rank = n.args[0].tensor()->dim(), offset = n.args[1].sym_int().hint;
  const int64_t a = wrap_dim(n.args[2].sym_int().hint, rank), b = wrap_dim(n.args[3].sym_int().hint, rank);
  return [=](const Index& in, Index& out) {
    out.clear();
    size_t next = 0;
    for (int64_t d = 0; d < rank; d++) out.push_back(d == a || d == b ? in.back() : in[next++]);
    out[size_t(a)] = out[size_t(a)] + Affine::constant(std::max<int64_t>(-offset, 0));
    out[size_t(b)] = out[size_t(b)] + Affine::constant(std::max<int64_t>(offset, 0));
    return true;
  };
}

Map map_unfold(const Node& n) {
  const int64_t rank = n.args[0].tensor()->dim(), dim = wrap_dim(n.args[1].sym_int().hint, rank);
  const SymInt step = n.args[3].sym_int();
  return [=](const Index& in, Index& out) {
    out.assign(in.begin(), in.end() - 1);
    if (rank) out[size_t(dim)] = out[size_t(dim)] * step + in.back();
    return true;
  };
}

Map identity() {
  return [](const Index& in, Index& out) {
    out = in;
    return true;
  };
}

}  // namespace

Lowered lower_view(const Node& node, SymFacts& facts) {
  Lowered l;
  l.kind = Lowered::kView;
  l.reads = {node.args[0].tensor()};
  switch (node.op) {
    case OpId::transpose: l.map = map_transpose(node); break;
    case OpId::permute: l.map = map_permute(node); break;
    case OpId::expand: l.map = map_expand(node, facts); break;
    case OpId::select: l.map = map_select(node); break;
    case OpId::slice: l.map = map_slice(node); break;
    case OpId::diagonal: l.map = map_diagonal(node); break;
    case OpId::unfold: l.map = map_unfold(node); break;
    case OpId::as_strided:
    case OpId::view_dtype:
    case OpId::view_as_bytes:
    case OpId::view_as_packed:
    case OpId::view_as_real:
    case OpId::view_as_complex: l.map = map_memory(); break;
    case OpId::view:
    case OpId::unsqueeze:
    case OpId::squeeze: l.map = map_reshape(node, facts); break;
    case OpId::detach:
    case OpId::alias: l.map = identity(); break;
    default: fail_internal(name(node.op), ": a view without its index map");
  }
  return l;
}

}  // namespace lutra
