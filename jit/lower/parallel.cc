// Decides which loops of a kernel run in parallel.
#include <algorithm>

#include "jit/lower/body.h"

namespace lutra {
namespace {

// Returns the loop that is the only statement with an effect, if it does not reduce. Otherwise returns null.
BodyLoop* lone_loop(std::vector<BodyStmt>& body) {
  BodyLoop* only = nullptr;
  for (BodyStmt& s : body) {
    if (!s.loop && !loop::has_effect(s.inst.inst.op)) continue;
    if (!s.loop || only) return nullptr;
    only = s.loop.get();
  }
  return only && only->accs.empty() && only->mode != loop::LoopMode::kLanes ? only : nullptr;
}

bool has_op(const std::vector<BodyStmt>& body, loop::Op op) {
  return std::any_of(body.begin(), body.end(),
                     [op](const BodyStmt& s) { return s.loop ? has_op(s.loop->body, op) : s.inst.inst.op == op; });
}

// In additions. kLongIteration: an iteration of the outermost loop that may take milliseconds. kWorthItsPlace: an
// iteration of joined loops that pays for computing its place.
constexpr double kLongIteration = 1 << 22, kWorthItsPlace = 1 << 12;
// So many iterations serve every number of threads that loops are divided for.
constexpr double kManyIterations = 64;
// A row of so many elements loses little by being a loop of its own, whose place is computed from values.
constexpr int64_t kOwnRow = 512;

// Returns the size of the first loop over vectors or lanes in a loop, or of the loop itself. Returns 0 if there is
// none.
int64_t row_of(const BodyLoop& l) {
  if (l.mode != loop::LoopMode::kSerial) return l.size.hint;
  for (const BodyStmt& s : l.body) {
    if (const int64_t n = s.loop ? row_of(*s.loop) : 0) return n;
  }
  return 0;
}

// Returns true if vectors are loaded from columns, along a loop around them. Code generators load such columns in
// tiles, and recognise them by that loop.
bool loads_columns(const std::vector<BodyStmt>& body, const BodyLoop* vectors) {
  const auto is = [](const SymInt& v, int64_t n) { return v.is_constant() && v.hint == n; };
  return std::any_of(body.begin(), body.end(), [&](const BodyStmt& s) {
    if (s.loop) return loads_columns(s.loop->body, s.loop->mode == loop::LoopMode::kVector ? s.loop.get() : vectors);
    if (!vectors || s.inst.inst.op != loop::Op::kLoad) return false;
    bool strides = false, along = false;
    for (const Affine::Term& t : s.inst.at.terms) {
      const bool own = !t.is_value && t.id == vectors->id;
      strides |= own && !is(t.coef, 0) && !is(t.coef, 1);
      along |= !own && !t.is_value && is(t.coef, 1);
    }
    return strides && along;
  });
}

// Replaces each term of the positions in body by of(term).
template <class F>
void replace_terms(std::vector<BodyStmt>& body, const F& of) {
  for (BodyStmt& s : body) {
    if (s.loop)
      replace_terms(s.loop->body, of);
    else
      s.inst.at = substitute(s.inst.at, of);
  }
}

}  // namespace

// Undoes the last merge of `row`: puts the outer one of the two merged loops around it again.
void Body::undo_merge(BodyLoop& around, const BodyLoop* row) {
  const auto place =
      std::find_if(around.body.begin(), around.body.end(), [row](const BodyStmt& s) { return s.loop.get() == row; });
  std::unique_ptr<BodyLoop> inner = std::move(place->loop);
  auto outer = std::make_unique<BodyLoop>();
  outer->id = loops_++;
  outer->size = inner->merges.back().outer, inner->size = inner->merges.back().inner;
  inner->merges.pop_back();
  replace_terms(inner->body, [&](const Affine::Term& t) {
    const Affine same = t.is_value ? Affine::value(t.id) : Affine::loop(t.id);
    return t.is_value || t.id != inner->id ? same : Affine::loop(outer->id) * inner->size + same;
  });
  outer->body.emplace_back().loop = std::move(inner);
  place->loop = std::move(outer);
}

// Returns the outermost loops of a nest: as many as it takes to make an iteration of all of them short, and to have as
// many iterations as there are shares of the work that are worth a thread.
std::vector<BodyLoop*> Body::outer_loops(double least_share) {
  std::vector<BodyLoop*> nest;
  double parts = 1;
  const double shares = std::min(kManyIterations, additions_ / least_share);
  BodyLoop* l = lone_loop(scopes_[0].body);
  while (l) {
    const bool takes_long = additions_ >= kLongIteration * parts;
    const bool undoes = l->mode != loop::LoopMode::kSerial && !nest.empty() && !l->merges.empty();
    const int64_t row = undoes ? l->merges.back().inner.hint : row_of(*l);
    if (!takes_long && (parts >= shares || row < kOwnRow)) break;
    const auto pays = [&](const SymInt& size) { return additions_ >= kWorthItsPlace * parts * double(size.hint); };
    if (l->mode == loop::LoopMode::kSerial && pays(l->size)) {
      nest.push_back(l);
      parts *= double(std::max<int64_t>(1, l->size.hint));
    } else if (undoes && pays(l->merges.back().outer)) {
      undo_merge(*nest.back(), l);
    } else {
      break;
    }
    l = lone_loop(nest.back()->body);
  }
  return nest;
}

// The program may be stopped between two iterations of the outermost loop, and threads share its iterations. If an
// iteration takes long, or there are few, this joins the outermost loop with loops within it. The variables of these
// become values; the order of iterations stays.
void Body::join_outer_loops(double least_share) {
  std::vector<BodyStmt>& all = scopes_[0].body;
  if (has_op(all, loop::Op::kStoreAdd) || loads_columns(all, nullptr)) return;  // kStoreAdd adds in order
  const std::vector<BodyLoop*> nest = outer_loops(least_share);
  if (nest.size() < 2) return;
  auto joined = std::make_unique<BodyLoop>();
  joined->id = loops_++;
  joined->size = nest[0]->size;
  for (size_t i = 1; i < nest.size(); i++) joined->size = joined->size * nest[i]->size;
  const auto add = [&](BodyInst in) {
    in.inst.type = DType::kInt64, in.inst.id = new_value(DType::kInt64, 1);
    joined->body.push_back({in, nullptr});
    return in.inst.id;
  };
  BodyInst first{{loop::Op::kIndex}};
  first.at = Affine::loop(joined->id);
  std::vector<int32_t> values(nest.size());
  values[0] = add(first);
  for (size_t i = nest.size() - 1; i > 0; i--) {
    BodyInst size{{loop::Op::kIntArg}}, part{{loop::Op::kRem}}, rest{{loop::Op::kFloorDiv}};
    size.expr = nest[i]->size.to_expr();
    part.inst.a = rest.inst.a = values[0], part.inst.b = rest.inst.b = add(size);
    values[i] = add(part), values[0] = add(rest);
  }
  replace_terms(all, [&](const Affine::Term& t) {
    for (size_t i = 0; !t.is_value && i < nest.size(); i++) {
      if (nest[i]->id == t.id) return Affine::value(values[i]);
    }
    return t.is_value ? Affine::value(t.id) : Affine::loop(t.id);
  });
  for (size_t i = 0; i < nest.size(); i++) {
    const BodyLoop* next = i + 1 < nest.size() ? nest[i + 1] : nullptr;
    for (BodyStmt& s : nest[i]->body) {
      if (!next || s.loop.get() != next) joined->body.push_back(std::move(s));
    }
  }
  for (BodyStmt& s : all) {
    if (s.loop.get() == nest[0]) s.loop = std::move(joined);
  }
}

void Body::make_parallel(bool nested, double least_share) {
  if (!nested) join_outer_loops(least_share);
  nested &= !has_op(scopes_[0].body, loop::Op::kStoreAdd);
  for (BodyLoop* l = lone_loop(scopes_[0].body); l; l = nested ? lone_loop(l->body) : nullptr) l->parallel = true;
}

}  // namespace lutra
