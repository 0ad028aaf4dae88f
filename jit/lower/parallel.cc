// Which loops of a kernel threads share.
#include <algorithm>

#include "jit/lower/body.h"

namespace lutra {
namespace {

// The loop that stands alone but for instructions without effect, and that does not reduce; else null.
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

// An iteration of the outermost loop that may take milliseconds, in additions.
constexpr double kLongIteration = 1 << 22;

// values[i] in the place of the variable of nest[i].
void replace_variables(std::vector<BodyStmt>& body, const std::vector<BodyLoop*>& nest,
                       const std::vector<int32_t>& values) {
  const auto of = [&](const Affine::Term& t) {
    if (t.is_value) return Affine::value(t.id);
    for (size_t i = 0; i < nest.size(); i++) {
      if (nest[i]->id == t.id) return Affine::value(values[i]);
    }
    return Affine::loop(t.id);
  };
  for (BodyStmt& s : body) {
    if (s.loop)
      replace_variables(s.loop->body, nest, values);
    else
      s.inst.at = substitute(s.inst.at, of);
  }
}

}  // namespace

// The outermost loops of a nest, until an iteration of all of them is short.
std::vector<BodyLoop*> Body::outer_loops() {
  std::vector<BodyLoop*> nest;
  double parts = 1;
  for (BodyLoop* l = lone_loop(scopes_[0].body);
       l && l->mode == loop::LoopMode::kSerial && additions_ >= kLongIteration * parts; l = lone_loop(l->body)) {
    nest.push_back(l);
    parts *= double(std::max<int64_t>(1, l->size.hint));
  }
  return nest;
}

// The program may end between two iterations of the outermost loop. Where one takes long, it becomes one with loops
// within: their variables are values then, and the order of iterations stays.
void Body::join_outer_loops() {
  std::vector<BodyStmt>& all = scopes_[0].body;
  const std::vector<BodyLoop*> nest = outer_loops();
  if (nest.size() < 2 || has_op(all, loop::Op::kStoreAdd)) return;  // those come in order
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
  replace_variables(all, nest, values);
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

void Body::make_parallel(bool nested) {
  if (!nested) join_outer_loops();
  nested &= !has_op(scopes_[0].body, loop::Op::kStoreAdd);
  for (BodyLoop* l = lone_loop(scopes_[0].body); l; l = nested ? lone_loop(l->body) : nullptr) l->parallel = true;
}

}  // namespace lutra
