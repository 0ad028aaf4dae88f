// gather and index_select: a checked load whose address holds a value; scatter_add and index_add: a copy, then adds in
// the order of the index.
#include "jit/lower/lower.h"

namespace lutra {
namespace {

using loop::LoopMode;

int32_t checked(Emitter& e, const Tensor& index, const Index& at, SymInt size, int64_t dim, const Node& node) {
  int32_t v = e.body.cast(e.operand(index, at), DType::kInt64);
  e.check(v, size, int32_t(dim), node);
  return v;
}

struct Scatter {
  const Node* node;
  Tensor input, index, src;
  int64_t dim;
  bool elementwise_index;  // scatter_add: an index an element; index_add: one a slice
};

// Each element of the result takes at most one of src, since the index has size 1 where it scatters.
int32_t emit_single(const Scatter& s, Emitter& e, const Index& index) {
  Index at = index;
  at[size_t(s.dim)] = Affine();
  int32_t target = checked(e, s.index, at, s.input->sizes[size_t(s.dim)], s.dim, *s.node);
  int32_t here = e.body.index(index[size_t(s.dim)]);
  int32_t hit = e.body.op(loop::Op::kEq, DType::kBool, here, target);
  int32_t old = e.operand(s.input, index);
  int32_t sum = e.body.op(loop::Op::kAdd, s.input->dtype, old, e.operand(s.src, at));
  return e.body.op(loop::Op::kSelect, s.input->dtype, hit, sum, old);
}

bool is_single(const Scatter& s, SymFacts& facts) {
  if (!s.elementwise_index || s.input->dtype == DType::kBool || s.input->dim() == 0) return false;
  for (int64_t d = 0; d < s.input->dim(); d++) {
    SymInt i = s.index->sizes[size_t(d)];
    if (d == s.dim ? !(i.is_constant() && i.hint == 1) : !facts.equal(i, s.input->sizes[size_t(d)])) return false;
  }
  return true;
}

// An index of at least `at`'s dims cut or filled up with zeros to ndim dims: a 0-dim tensor goes with vectors.
Index fitted(Index at, int64_t ndim) {
  at.resize(size_t(ndim));
  return at;
}

// The loop along dim is the innermost: adds to one element come in the order of the index, the other dimensions are
// independent.
void emit_loops(const Scatter& s, Emitter& e, int32_t buffer) {
  const Sizes& sizes = s.elementwise_index ? s.index->sizes : s.src->sizes;
  const Tensor& out = s.node->results[0];
  Index at(sizes.size());
  int last = int(sizes.size()) - 1;
  if (last == int(s.dim)) last--;
  for (int d = 0; d <= last; d++) {
    if (d == int(s.dim)) continue;
    bool vector = d == last && e.facts.is_one(out->strides[size_t(d)]);
    LoopMode mode = vector ? LoopMode::kVector : LoopMode::kSerial;
    at[size_t(d)] = Affine::loop(e.body.open(sizes[size_t(d)], mode));
  }
  if (!sizes.empty()) at[size_t(s.dim)] = Affine::loop(e.body.open(sizes[size_t(s.dim)], LoopMode::kSerial));
  Index where = s.elementwise_index || at.empty() ? at : Index{at[size_t(s.dim)]};
  SymInt size = s.input->dim() ? s.input->sizes[size_t(s.dim)] : SymInt(1);
  int32_t target = checked(e, s.index, fitted(where, s.index->dim()), size, s.dim, *s.node);
  Index to = fitted(at, s.input->dim());
  if (!to.empty()) to[size_t(s.dim)] = Affine::value(target);
  Affine place = at_strides(to, out->strides, 0);
  int32_t v = e.operand(s.src, fitted(at, s.src->dim()));
  int32_t old = e.body.load(buffer, out->dtype, place);
  e.body.store(loop::Op::kStore, buffer, place, e.body.op(loop::Op::kAdd, out->dtype, old, v));
  for (size_t d = 0; d < sizes.size(); d++) e.body.close();
}

}  // namespace

Lowered lower_gather(const Node& node, SymFacts&) {
  Lowered l;
  Tensor input = node.args[0].tensor(), index = node.args[2].tensor();
  int64_t dim = wrap_dim(node.args[1].sym_int().hint, input->dim());
  l.reads = {input, index};
  l.checks = true;
  const Node* n = &node;
  l.emit = [=](Emitter& e, const Index& at) {
    bool vector = n->op == OpId::index_select && !at.empty();
    Index where = fitted(vector ? Index{at[size_t(dim)]} : at, index->dim()), from = fitted(at, input->dim());
    SymInt size = input->dim() ? input->sizes[size_t(dim)] : SymInt(1);
    int32_t target = checked(e, index, where, size, dim, *n);
    if (!from.empty()) from[size_t(dim)] = Affine::value(target);
    return e.operand(input, from);
  };
  return l;
}

Lowered lower_scatter_add(const Node& node, SymFacts& facts) {
  Lowered l;
  Scatter s{&node, node.args[0].tensor(), node.args[2].tensor(), node.args[3].tensor(), 0, false};
  s.dim = wrap_dim(node.args[1].sym_int().hint, s.input->dim());
  s.elementwise_index = node.op == OpId::scatter_add;
  l.reads = {s.input, s.index, s.src};
  l.checks = true;
  if (is_single(s, facts)) {
    l.emit = [s](Emitter& e, const Index& index) { return emit_single(s, e, index); };
    return l;
  }
  l.kind = Lowered::kScatter;
  l.independent = s.input->dim() > 1;  // the outermost loop is no dimension in which adds meet
  l.scatter = [s](Emitter& e, int32_t buffer) { emit_loops(s, e, buffer); };
  return l;
}

// Strides and offset are those of a view of the contiguous input.
Lowered lower_as_strided_scatter(const Node& node, SymFacts&) {
  Lowered l;
  l.kind = Lowered::kStrided;
  l.independent = true;
  Tensor src = node.args[1].tensor();
  Sizes sizes = node.args[2].as<Sizes>(), strides = node.args[3].as<Sizes>();
  SymInt offset = node.args[4].sym_int();
  l.reads = {node.args[0].tensor(), src};
  DType type = node.results[0]->dtype;
  l.scatter = [=](Emitter& e, int32_t buffer) {
    Index at;
    for (size_t d = 0; d < sizes.size(); d++) {
      bool inner = d + 1 == sizes.size();
      at.push_back(Affine::loop(e.body.open(sizes[d], inner ? loop::LoopMode::kVector : loop::LoopMode::kSerial)));
    }
    int32_t v = e.body.cast(e.operand(src, broadcast_index(e.facts, at, sizes, src->sizes)), type);
    e.body.store(loop::Op::kStore, buffer, at_strides(at, strides, offset), v);
    for (size_t d = 0; d < sizes.size(); d++) e.body.close();
  };
  return l;
}

// Each element is one of input or of src: sums of such, the gradients of a tensor's parts, are one loop.
Lowered lower_select_scatter(const Node& node, SymFacts&) {
  Lowered l;
  Tensor input = node.args[0].tensor(), src = node.args[1].tensor();
  const auto dim = size_t(wrap_dim(node.args[2].sym_int().hint, input->dim()));
  SymInt position = node.args[3].sym_int();
  if (position.hint < 0) position = position + input->sizes[dim];
  l.reads = {input, src};
  l.emit = [=](Emitter& e, const Index& index) {
    Index at = index;
    at.erase(at.begin() + long(dim));
    int32_t hit = e.body.op(loop::Op::kEq, DType::kBool, e.body.index(index[dim]), e.body.int_value(position));
    int32_t there = e.body.cast(e.operand(src, at), input->dtype);
    return e.body.op(loop::Op::kSelect, input->dtype, hit, there, e.operand(input, index));
  };
  return l;
}

Lowered lower_copy_(const Node& node, SymFacts&) {
  Lowered l;
  l.kind = Lowered::kCopy;
  Tensor to = node.args[0].tensor(), src = node.args[1].tensor();
  l.reads = {to, src};
  l.emit = [to, src](Emitter& e, const Index& index) {
    return e.body.cast(e.operand(src, broadcast_index(e.facts, index, to->sizes, src->sizes)), to->dtype);
  };
  return l;
}

}  // namespace lutra
