// Ops that tell a size in; an integer of the graph that is at least 2 out. A run in which it is another runs the
// original code: 0 and 1 decide how tensors are broadcast.
#include "vm/capture/trace/unbacked_sizes.h"

#include <algorithm>
#include <lua.hpp>

#include "ops/decompose/emit.h"
#include "ops/meta/unbacked.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/read_numbers.h"
#include "vm/capture/trace/trace.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

constexpr int64_t kLeast = 2;

// Between the two, and seldom a size that something else has.
int64_t likely(int64_t most) {
  constexpr int64_t kWithoutBound = 33;
  return most == kMostElements ? kWithoutBound : std::min(most, std::max(kLeast, (most / 2) | 1));
}

SymRange range_of(const Trace& t, const Scalar& n) {
  if (n.expr) return n.kind == Scalar::kInt ? t.graph->env->range(n.expr) : SymRange{};
  const double d = n.to_double();
  return n.is_whole() ? SymRange{n.to_int(), n.to_int()} : SymRange{int64_t(std::floor(d)), int64_t(std::ceil(d))};
}

// lt.check_is_size compares what the program states.
bool is_stated(Trace& t) {
  const int top = lua_gettop(t.L);
  lua_getfield(t.L, LUA_REGISTRYINDEX, "lutra.module");
  lua_getfield(t.L, -1, "check_is_size");
  const bool known = lua_isfunction(t.L, -1) && !lua_iscfunction(t.L, -1);
  const void* const states = known ? prototype_identity(t.L, top + 2) : nullptr;
  const bool stated = states && std::any_of(t.frames.begin(), t.frames.end(), [&](const Frame* f) {
                        if (f->function->kind != VarKind::kFunction) return false;
                        t.push_pin(f->function->pin);
                        const bool is = prototype_identity(t.L, lua_gettop(t.L)) == states;
                        lua_pop(t.L, 1);
                        return is;
                      });
  lua_settop(t.L, top);
  return stated;
}

}  // namespace

bool TraceSizes::takes() { return !t_.ended && t_.regions.empty() && !t_.decisions.sizes_outside && !ends_graph(t_); }

SymInt TraceSizes::size(OpId op, SymInt most) {
  if (most.hint < kLeast || t_.program.scalar_sources.size() != t_.graph->scalars.size()) return 0;
  SymEnv& env = *t_.graph->env;
  t_.unbacked.push_back(int32_t(t_.graph->scalars.size()));
  const Scalar number = t_.graph->add_scalar(str("the size of ", name(op)), double(likely(most.hint)));
  t_.program.scalar_sources.push_back(nullptr);
  const int32_t n = env.ask_integer(number.expr);
  env.ask(SymCmp::kLe, env.constant(kLeast), n);
  env.ask(SymCmp::kLe, n, env.constant(most.is_constant() ? most.hint : kMostElements));
  if (!most.is_constant()) env.ask(SymCmp::kLe, n, most.expr);
  return SymInt::of_expr(env, n);
}

bool is_unbacked(const Trace& t, int32_t expr) {
  if (t.unbacked.empty() || !expr) return false;
  const std::vector<SymExpr>& exprs = t.graph->env->exprs();
  std::vector<int32_t> stack{expr};
  while (!stack.empty()) {
    const SymExpr& e = exprs[size_t(stack.back())];
    stack.pop_back();
    if (e.op == SymOp::kScalarInput && std::count(t.unbacked.begin(), t.unbacked.end(), e.a)) return true;
    if (arity(e.op) > 0) stack.push_back(e.a);
    if (arity(e.op) > 1) stack.push_back(e.b);
  }
  return false;
}

bool unbacked_less(Trace& t, bool or_equal, const Scalar& x, const Scalar& y) {
  const SymRange a = range_of(t, x), b = range_of(t, y);
  if (or_equal ? a.high <= b.low : a.high < b.low) return true;
  if (or_equal ? a.low > b.high : a.low >= b.high) return false;
  SymEnv& env = *t.graph->env;
  if (!is_stated(t)) t.stop(Break::needs_size);
  return env.ask(or_equal ? SymCmp::kLe : SymCmp::kLt, number_expr(env, x), number_expr(env, y));
}

bool unbacked_equal(Trace& t, const Scalar& x, const Scalar& y) {
  const SymRange a = range_of(t, x), b = range_of(t, y);
  if (a.high < b.low || b.high < a.low) return false;
  if (x.expr && x.expr == y.expr) return true;
  if (!is_stated(t)) t.stop(Break::needs_size);
  SymEnv& env = *t.graph->env;
  return env.ask(SymCmp::kEq, number_expr(env, x), number_expr(env, y));
}

Tensor unbacked_element(Trace& t, const Scalar& n) {
  const GradModeScope without_history(false);
  return full({}, as_number(n), DType::kFloat64, t.graph->device.value_or(Device{}));
}

}  // namespace lutra
