// The tables behind loop.h's enumerations, and clone.
#include "jit/loop/loop.h"

#include "ops/core/error.h"

namespace lutra::loop {

const OpInfo& info(Op op) {
  static const OpInfo kInfo[] = {
#define X(e, text, n, rule, types, cost) {text, n, TypeRule::rule, TypeSet::types, cost},
      LUTRA_LOOP_OPS(X)
#undef X
  };
  LUTRA_CHECK(op < Op::kCount);
  return kInfo[size_t(op)];
}

int cost(Op op, DType type) {
  constexpr int kIntegerDivision = 20;
  return op == Op::kDiv && !is_float(type) ? kIntegerDivision : info(op).cost;
}

const char* name(RedOp op) {
  static const char* const kNames[] = {"sum", "prod", "max", "min", "argmax", "argmin", "any", "all"};
  LUTRA_CHECK(size_t(op) < std::size(kNames));
  return kNames[size_t(op)];
}

bool accepts(TypeSet set, DType type) {
  if (type == DType::kNone) return false;
  switch (set) {
    case TypeSet::kAll: return true;
    case TypeSet::kNumbers: return !is_bool(type);
    case TypeSet::kFloats: return is_float(type);
    case TypeSet::kLogic: return is_integral(type);
    case TypeSet::kInts: return is_integral(type) && !is_bool(type);
  }
  return false;
}

bool has_access(Op op) { return op == Op::kLoad || op == Op::kStore || op == Op::kStoreAdd; }

bool has_effect(Op op) { return !info(op).defines(); }

namespace {
std::vector<Stmt> clone_body(const std::vector<Stmt>& body) {
  std::vector<Stmt> out;
  out.reserve(body.size());
  for (const Stmt& s : body) {
    if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s)) {
      auto copy = std::make_unique<Loop>();
      copy->id = (*l)->id, copy->size = (*l)->size, copy->mode = (*l)->mode, copy->parallel = (*l)->parallel;
      copy->accs = (*l)->accs;
      copy->body = clone_body((*l)->body);
      out.push_back(std::move(copy));
    } else {
      out.push_back(std::get<Inst>(s));
    }
  }
  return out;
}
}  // namespace

Kernel clone(const Kernel& k) {
  Kernel out;
  out.name = k.name, out.params = k.params, out.ints = k.ints, out.scalars = k.scalars;
  out.values = k.values, out.loops = k.loops;
  out.body = clone_body(k.body);
  return out;
}

}  // namespace lutra::loop
