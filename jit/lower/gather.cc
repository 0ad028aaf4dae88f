// gather, index_select, index and embedding are checked loads whose address contains a value. scatter_add of one
// element each is a select.
#include <algorithm>

#include "jit/lower/lower.h"
#include "ops/meta/index_place.h"

namespace lutra {
namespace {

int32_t checked(RuleContext& e, const Tensor& index, const Index& at, SymInt size, int64_t dim) {
  int32_t v = e.body.cast(e.operand(index, at), DType::kInt64);
  e.check(v, size, int32_t(dim));
  return v;
}

struct Scatter {
  Tensor input, index, src;
  int64_t dim;
};

// Each element of the result takes at most one element of src, since the index has size 1 along the dim.
int32_t emit_single(const Scatter& s, RuleContext& e, const Index& index) {
  Index at = index;
  at[size_t(s.dim)] = Affine();
  int32_t target = checked(e, s.index, at, s.input->sizes[size_t(s.dim)], s.dim);
  int32_t here = e.body.index(index[size_t(s.dim)]);
  int32_t hit = e.body.op(loop::Op::kEq, DType::kBool, here, target);
  int32_t old = e.operand(s.input, index);
  int32_t sum = e.body.op(loop::Op::kAdd, s.input->dtype, old, e.operand(s.src, at));
  return e.body.op(loop::Op::kSelect, s.input->dtype, hit, sum, old);
}

bool is_single(const Scatter& s, SymFacts& facts) {
  const int64_t dims = s.input->dim();
  if (is_bool(s.input->dtype) || dims == 0) return false;
  if (s.index->dim() != dims || s.src->dim() != dims) return false;  // an index of nothing goes with any
  for (int64_t d = 0; d < dims; d++) {
    SymInt i = s.index->sizes[size_t(d)];
    if (d == s.dim ? !(i.is_constant() && i.hint == 1) : !facts.equal(i, s.input->sizes[size_t(d)])) return false;
  }
  return true;
}

// Cuts `at` to ndim dims, or fills it up with zeros: a 0-dim tensor is accepted in place of a vector.
Index fitted(Index at, int64_t ndim) {
  at.resize(size_t(ndim));
  return at;
}

// Returns the position that an index op reads for the result's element `at`. Dims that are not indexed keep their
// index.
Index indexed(RuleContext& e, const Node& node, const Index& at) {
  const Tensor input = node.args[0].tensor();
  const auto& indices = node.args[1].as<std::vector<Tensor>>();
  const Sizes& dims = node.args[2].as<Sizes>();
  const auto first = size_t(index_place(
      dims.size(), [&](size_t k) { return dims[k].hint; }, [&](size_t k) { return indices[k]->dim(); }));
  const size_t places = at.size() - (size_t(input->dim()) - dims.size());
  const Index place(at.begin() + long(first), at.begin() + long(first + places));
  const Sizes& result = node.results[0]->sizes;
  const Sizes place_sizes(result.begin() + first, result.begin() + first + places);
  Index from;
  size_t next = 0, other = 0;
  for (int64_t d = 0; d < input->dim(); d++) {
    if (next == dims.size() || dims[next].hint != d) {
      if (other == first) other += places;
      from.push_back(at[other++]);
      continue;
    }
    const Tensor& index = indices[next++];
    const SymInt size = input->sizes[size_t(d)];
    int32_t v = e.operand(index, broadcast_index(e.facts, place, place_sizes, index->sizes));
    v = e.body.cast(v, DType::kInt64);
    const int32_t negative = e.body.op(loop::Op::kLt, DType::kBool, v, e.body.constant_int(DType::kInt64, 0));
    const int32_t wrapped = e.body.op(loop::Op::kAdd, DType::kInt64, v, e.body.int_value(size));
    v = e.body.op(loop::Op::kSelect, DType::kInt64, negative, wrapped, v);
    e.check(v, size, int32_t(d));
    from.push_back(Affine::value(v));
  }
  return from;
}

}  // namespace

Lowered lower_gather(const Node& node, SymFacts& facts) {
  Lowered l;
  const auto rank = size_t(node.results[0]->dim());
  if (node.op == OpId::index) {
    const Tensor input = node.args[0].tensor();
    l.reads = node.args[1].as<std::vector<Tensor>>();
    l.reads.insert(l.reads.begin(), input);
    l.element = element_function(
        l, facts, rank, [&](RuleContext& e, const Index& at) { return e.operand(input, indexed(e, node, at)); });
    return l;
  }
  if (node.op == OpId::embedding) {
    const Tensor index = node.args[0].tensor(), weight = node.args[1].tensor();
    l.reads = {index, weight};
    l.element = element_function(l, facts, rank, [&](RuleContext& e, const Index& at) {
      const Index place(at.begin(), at.end() - 1);
      return e.operand(weight, {Affine::value(checked(e, index, place, weight->sizes[0], 0)), at.back()});
    });
    return l;
  }
  Tensor input = node.args[0].tensor(), index = node.args[2].tensor();
  int64_t dim = wrap_dim(node.args[1].sym_int().hint, input->dim());
  l.reads = {input, index};
  l.element = element_function(l, facts, rank, [&](RuleContext& e, const Index& at) {
    bool vector = node.op == OpId::index_select && !at.empty();
    Index where = fitted(vector ? Index{at[size_t(dim)]} : at, index->dim()), from = fitted(at, input->dim());
    SymInt size = input->dim() ? input->sizes[size_t(dim)] : SymInt(1);
    int32_t target = checked(e, index, where, size, dim);
    if (!from.empty()) from[size_t(dim)] = Affine::value(target);
    return e.operand(input, from);
  });
  return l;
}

Lowered lower_scatter_add(const Node& node, SymFacts& facts) {
  Lowered l;
  Scatter s{node.args[0].tensor(), node.args[2].tensor(), node.args[3].tensor(), 0};
  s.dim = wrap_dim(node.args[1].sym_int().hint, s.input->dim());
  if (!is_single(s, facts)) return lower_extern(node, facts);
  l.reads = {s.input, s.index, s.src};
  l.element = element_function(l, facts, size_t(s.input->dim()),
                               [&](RuleContext& e, const Index& index) { return emit_single(s, e, index); });
  return l;
}

namespace {

// Returns true if no element is written twice, as far as strides in order of size show it. Asks only in the last place
// whether a size is 1, where the stride does not matter: the answer would bind the size.
bool writes_each_once(const Sizes& sizes, const Sizes& strides, SymFacts& facts) {
  std::vector<size_t> order;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (!facts.is_one(sizes[d])) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a].hint < strides[b].hint; });
  SymInt reach = 0;
  for (size_t d : order) {
    if (!facts.ask_less(reach, strides[d])) {
      if (sizes[d].hint == 1 && facts.ask_equal(sizes[d], 1)) continue;
      return false;
    }
    reach = reach + (sizes[d] - 1) * strides[d];
  }
  return true;
}

}  // namespace

// Strides and offset refer to the contiguous input. If elements are written twice, the writes are in order.
Lowered lower_as_strided_scatter(const Node& node, SymFacts& facts) {
  Lowered l;
  l.kind = Lowered::kStrided;
  Tensor src = node.args[1].tensor();
  Sizes sizes = node.args[2].as<Sizes>(), strides = node.args[3].as<Sizes>();
  SymInt offset = node.args[4].sym_int();
  l.independent = writes_each_once(sizes, strides, facts);
  l.reads = {node.args[0].tensor(), src};
  DType type = node.results[0]->dtype;
  l.writes.push_back(write_function(l, facts, [&](RuleContext& e) {
    // A dimension of one element has any stride, even 0; it gets no loop.
    std::vector<size_t> loops;
    for (size_t d = 0; d < sizes.size(); d++) {
      if (!e.facts.is_one(sizes[d])) loops.push_back(d);
    }
    // A short innermost loop makes poor vectors if a longer one is around it.
    if (size_t n = loops.size(); n >= 2 && l.independent) {
      const int64_t inner = sizes[loops[n - 1]].hint, outer = sizes[loops[n - 2]].hint;
      if (inner < 8 && outer >= 4 * inner) std::swap(loops[n - 1], loops[n - 2]);
    }
    Index at(sizes.size());
    for (size_t d : loops) {
      const bool vectors = d == loops.back() && l.independent;
      at[d] = Affine::loop(e.body.open(sizes[d], vectors ? loop::LoopMode::kVector : loop::LoopMode::kSerial));
    }
    int32_t v = e.body.cast(e.operand(src, broadcast_index(e.facts, at, sizes, src->sizes)), type);
    e.body.store(at_strides(at, strides, offset), v);
    e.body.close_all();
  }));
  return l;
}

// Selects each element from input or src. So a sum of such results, the gradients of a tensor's parts, is one loop.
Lowered lower_select_scatter(const Node& node, SymFacts& facts) {
  Lowered l;
  Tensor input = node.args[0].tensor(), src = node.args[1].tensor();
  const auto dim = size_t(wrap_dim(node.args[2].sym_int().hint, input->dim()));
  SymInt position = node.args[3].sym_int();
  if (position.hint < 0) position = position + input->sizes[dim];
  l.reads = {input, src};
  l.element = element_function(l, facts, size_t(input->dim()), [&](RuleContext& e, const Index& index) {
    Index at = index;
    at.erase(at.begin() + long(dim));
    int32_t hit = e.body.op(loop::Op::kEq, DType::kBool, e.body.index(index[dim]), e.body.int_value(position));
    int32_t there = e.body.cast(e.operand(src, at), input->dtype);
    return e.body.op(loop::Op::kSelect, input->dtype, hit, there, e.operand(input, index));
  });
  return l;
}

Lowered lower_copy_(const Node& node, SymFacts& facts) {
  Lowered l;
  l.kind = Lowered::kCopy;
  Tensor to = node.args[0].tensor(), src = node.args[1].tensor();
  l.reads = {to, src};
  l.element = element_function(l, facts, to->sizes.size(), [&](RuleContext& e, const Index& index) {
    return e.body.cast(e.operand(src, broadcast_index(e.facts, index, to->sizes, src->sizes)), to->dtype);
  });
  return l;
}

}  // namespace lutra
