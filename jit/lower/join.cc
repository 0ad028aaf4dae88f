// cat copies the inputs into their parts of the result. flip loads at the mirrored index.
#include <algorithm>
#include <span>

#include "jit/lower/lower.h"

namespace lutra {
namespace {

// A shorter innermost loop makes poor vectors if a longer one is around it.
constexpr int64_t kShortLoop = 8;

// Opens loops over t's dimensions, except those of size one; the last one is a vector loop. Returns the index of the
// element.
Index open_loops(RuleContext& e, const Tensor& t) {
  std::vector<size_t> order;
  for (size_t d = 0; d < t->sizes.size(); d++) {
    if (!e.facts.is_one(t->sizes[d])) order.push_back(d);
  }
  if (size_t n = order.size(); n >= 2) {
    int64_t inner = t->sizes[order[n - 1]].hint, outer = t->sizes[order[n - 2]].hint;
    if (inner < kShortLoop && outer >= 4 * inner) std::swap(order[n - 1], order[n - 2]);
  }
  Index at(t->sizes.size());
  for (size_t i = 0; i < order.size(); i++) {
    bool last = i + 1 == order.size();
    auto mode = last ? loop::LoopMode::kVector : loop::LoopMode::kSerial;
    at[order[i]] = Affine::loop(e.body.open(t->sizes[order[i]], mode));
  }
  return at;
}

// The number of inputs of one size that one nest of loops copies, so that what they share is computed once. Two are the
// halves that rotary positions turn into each other. More would be too many streams of memory at a time.
constexpr size_t kTogether = 2;

struct Piece {
  Tensor from;
  SymInt start;  // in the result's dim
};

void copy_pieces(RuleContext& e, std::span<const Piece> pieces, const Tensor& to, size_t dim) {
  Index at = open_loops(e, pieces[0].from);
  for (const Piece& p : pieces) {
    int32_t v = e.body.cast(e.operand(p.from, at), to->dtype);
    Index where = at;
    where[dim] = where[dim] + Affine::constant(p.start);
    e.body.store(at_strides(where, to->strides, 0), v);
  }
  e.body.close_all();
}

// Where short pieces lie beside a long one in each row, one nest of loops copies a row at a time, a few pieces each. A
// loop over the rows of a short piece alone would touch each line of memory for a few of its elements.
constexpr int64_t kShortPiece = 32, kLongPiece = 16, kLongRow = 1 << 12;
constexpr size_t kPiecesOfRow = 8;

void copy_rows(RuleContext& e, std::span<const Piece> pieces, const Tensor& to) {
  const size_t dim = to->sizes.size() - 1;
  Index at(dim + 1);
  for (size_t d = 0; d < dim; d++) {
    if (!e.facts.is_one(to->sizes[d])) at[d] = Affine::loop(e.body.open(to->sizes[d], loop::LoopMode::kSerial));
  }
  for (const Piece& p : pieces) {
    const bool one = e.facts.is_one(p.from->sizes[dim]);
    at[dim] = one ? Affine() : Affine::loop(e.body.open(p.from->sizes[dim], loop::LoopMode::kVector));
    const int32_t v = e.body.cast(e.operand(p.from, at), to->dtype);
    Index where = at;
    where[dim] = where[dim] + Affine::constant(p.start);
    e.body.store(at_strides(where, to->strides, 0), v);
    if (!one) e.body.close();
  }
  e.body.close_all();
}

bool lie_in_short_rows(SymFacts& facts, std::span<const Piece> pieces, const Tensor& to, size_t dim) {
  if (dim + 1 != to->sizes.size() || !facts.ask_equal(to->strides[dim], 1)) return false;
  bool is_short = false, is_long = false;
  for (const Piece& p : pieces) {
    const int64_t n = p.from->sizes[dim].hint;
    is_short |= n < kShortPiece, is_long |= n >= kLongPiece;
  }
  const int64_t row = to->sizes[dim].hint;
  return is_short && is_long && row <= kLongRow && row < to->numel().hint;
}

bool have_one_size(SymFacts& facts, const Tensor& a, const Tensor& b) {
  for (size_t d = 0; d < a->sizes.size(); d++) {
    if (!facts.equal(a->sizes[d], b->sizes[d])) return false;
  }
  return true;
}

}  // namespace

Lowered lower_join(const Node& node, SymFacts& facts) {
  Lowered l;
  l.kind = Lowered::kJoin;
  Tensor out = node.results[0];
  auto dim = size_t(wrap_dim(node.args[1].sym_int().hint, out->dim()));
  SymInt start = 0;
  std::vector<Piece> pieces;
  for (const Tensor& t : node.args[0].as<std::vector<Tensor>>()) {
    SymInt n = t->numel();
    // An empty vector may be joined with any tensor.
    if (t->dim() != out->dim() || (n.is_constant() && n.hint == 0)) continue;
    l.reads.push_back(t);
    pieces.push_back({t, start});
    start = start + t->sizes[dim];
  }
  const bool rows = lie_in_short_rows(facts, pieces, out, dim);
  for (size_t i = 0, n; i < pieces.size(); i += n) {
    n = rows ? std::min(kPiecesOfRow, pieces.size() - i) : 1;
    if (rows) {
      const std::span<const Piece> some(&pieces[i], n);
      l.writes.push_back(write_function(l, facts, [&](RuleContext& e) { copy_rows(e, some, out); }));
      continue;
    }
    while (n < kTogether && i + n < pieces.size() && have_one_size(facts, pieces[i].from, pieces[i + n].from)) n++;
    const std::span<const Piece> together(&pieces[i], n);
    l.writes.push_back(write_function(l, facts, [&](RuleContext& e) { copy_pieces(e, together, out, dim); }));
  }
  return l;
}

Lowered lower_flip(const Node& node, SymFacts& facts) {
  Lowered l;
  Tensor in = node.args[0].tensor();
  std::vector<bool> mirrored(size_t(in->dim()), false);
  for (SymInt d : node.args[1].as<Sizes>()) {
    if (in->dim()) mirrored[size_t(wrap_dim(d.hint, in->dim()))] = true;
  }
  l.reads = {in};
  l.element = element_function(l, facts, mirrored.size(), [&](RuleContext& e, const Index& index) {
    Index at = index;
    for (size_t d = 0; d < mirrored.size(); d++) {
      if (mirrored[d]) at[d] = Affine::constant(in->sizes[d] - 1) + index[d] * SymInt(-1);
    }
    return e.operand(in, at);
  });
  return l;
}

}  // namespace lutra
