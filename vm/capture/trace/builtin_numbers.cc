// Models of Lua's functions of numbers: they make expressions of the graph if a number is symbolic.
#include "vm/capture/trace/builtin_numbers.h"

#include <cmath>
#include <cstring>
#include <lua.hpp>

#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/cdata.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/read_numbers.h"
#include "vm/capture/trace/regions.h"
#include "vm/capture/trace/texts.h"
#include "vm/capture/trace/trace.h"
#include "vm/guard/random.h"

namespace lutra {
namespace {

// Runs the function on constants.
Vars as_it_is(Trace& t, Var* self, const Vars& args) { return t.call_pure(self, args, self->builtin->name); }

// A function of math that becomes an expression for a symbolic number.
struct MathRow {
  const char* name;
  SymOp op;
};
const MathRow kMathRows[] = {
    {"math.sqrt", SymOp::kNSqrt},   {"math.exp", SymOp::kNExp},   {"math.log", SymOp::kNLog},
    {"math.sin", SymOp::kNSin},     {"math.cos", SymOp::kNCos},   {"math.floor", SymOp::kNFloor},
    {"math.ceil", SymOp::kNCeil},   {"math.abs", SymOp::kNAbs},   {"math.tan", SymOp::kNTan},
    {"math.asin", SymOp::kNAsin},   {"math.acos", SymOp::kNAcos}, {"math.atan", SymOp::kNAtan},
    {"math.sinh", SymOp::kNSinh},   {"math.cosh", SymOp::kNCosh}, {"math.tanh", SymOp::kNTanh},
    {"math.log10", SymOp::kNLog10},
};

bool are_numbers(Trace& t, const Vars& args, size_t count) {
  if (args.size() != count) return false;
  return std::all_of(args.begin(), args.end(), [&](Var* v) { return t.force(v)->kind == VarKind::kNumber; });
}

// Returns whether the arguments are numbers, at least one of which may change.
bool are_symbols(Trace& t, const Vars& args) {
  if (args.empty() || !are_numbers(t, args, args.size())) return false;
  return std::any_of(args.begin(), args.end(), may_change);
}

// Makes expressions of a call's arguments.
struct Numbers {
  Trace& t;
  SymEnv& env = *t.graph->env;
  int32_t of(Var* v) { return number_expr(env, t.symbolic(v)); }
  int32_t make(SymOp op, int32_t a, int32_t b = 0) { return env.make(op, a, b); }
  Vars result(int32_t id) {
    Scalar r(env[id].d);
    if (env[id].op != SymOp::kConstNum) r.expr = id;
    return {t.scalar(r)};
  }
};

// A function of two or more numbers. The op joins them from the left.
struct JoinRow {
  const char* name;
  SymOp op;
  size_t least, most;  // arguments
};
const JoinRow kJoinRows[] = {
    {"math.atan2", SymOp::kNAtan2, 2, 2},   {"math.fmod", SymOp::kNFmod, 2, 2},
    {"bit.band", SymOp::kBitAnd, 2, 64},    {"bit.bor", SymOp::kBitOr, 2, 64},
    {"bit.bxor", SymOp::kBitXor, 2, 64},    {"bit.lshift", SymOp::kBitLeft, 2, 2},
    {"bit.rshift", SymOp::kBitRight, 2, 2}, {"bit.arshift", SymOp::kBitSigned, 2, 2},
    {"bit.rol", SymOp::kBitRotate, 2, 2},   {"bit.ror", SymOp::kBitRotate, 2, 2},
};

// Makes the expression of a bit function of one number; bit.band and others return its bits.
int32_t bits_of_one(Numbers& n, std::string_view name, int32_t a) {
  SymEnv& env = n.env;
  if (name == "bit.bnot") return n.make(SymOp::kBitXor, a, env.number(-1));
  if (name != "bit.bswap") return n.make(SymOp::kBitOr, a, env.number(0));
  const auto half = [&](double by, double mask) {
    return n.make(SymOp::kBitAnd, n.make(SymOp::kBitRotate, a, env.number(by)), env.number(mask));
  };
  return n.make(SymOp::kBitOr, half(8, 0x00ff00ff), half(24, 0xff00ff00));
}

}  // namespace

Vars run_tonumber(Trace& t, Var* self, const Vars& args) {
  if (are_numbers(t, args, 1)) return args;
  if (args.size() == 1 && is_changing_integer(t, args[0])) return {number_of_changing(t, args[0])};
  // It converts cdata and strings to numbers, and returns nil for anything else.
  const bool other = args.size() == 1 && args[0]->kind != VarKind::kString && args[0]->kind != VarKind::kObject;
  return other ? Vars{t.nil()} : as_it_is(t, self, args);
}

Vars run_pow(Trace& t, Var* self, const Vars& args) {
  if (!are_numbers(t, args, 2)) return as_it_is(t, self, args);
  return {arithmetic(t, bc::Op::POW, args[0], args[1])};
}

// For non-negative whole numbers the result is that of %.
Vars run_fmod(Trace& t, Var* self, const Vars& args) {
  if (!are_numbers(t, args, 2)) return as_it_is(t, self, args);
  if (may_change(args[1])) return run_joined(t, self, args);
  const double by = t.constant(args[1]);
  const Scalar v = args[0]->guarded && !args[0]->num.expr ? Scalar() : t.symbolic(args[0]);
  SymEnv& env = *t.graph->env;
  const bool plain = v.expr && v.kind == Scalar::kInt && by >= 1 && by == std::floor(by) && by < 0x1p52 &&
                     env.ask(SymCmp::kLe, env.constant(0), v.expr);
  return plain ? Vars{arithmetic(t, bc::Op::MODVV, args[0], args[1])} : run_joined(t, self, args);
}

Vars run_log(Trace& t, Var* self, const Vars& args) {
  if (args.size() != 2) return run_host(t, self, args);
  if (!are_symbols(t, args)) return as_it_is(t, self, args);
  Numbers n{t};
  const int32_t x = n.make(SymOp::kNLog2, n.of(args[0])), base = n.make(SymOp::kNLog2, n.of(args[1]));
  return n.result(n.make(SymOp::kNMul, x, n.make(SymOp::kNDiv, n.env.number(1), base)));  // rounds as LuaJIT does
}

// Uses a product with a power of 2, which rounds as ldexp does if the power is a normal number.
Vars run_ldexp(Trace& t, Var* self, const Vars& args) {
  constexpr double kMost = 1022;
  if (args.size() != 2 || !are_symbols(t, args)) return as_it_is(t, self, args);
  SymEnv& env = *t.graph->env;
  Numbers n{t};
  const int32_t by = n.of(args[1]);
  const auto within = [&](int32_t low, int32_t high) { return env.ask(SymCmp::kLe, low, high); };
  if (may_change(args[1]) && !env.ask_integer(by)) return as_it_is(t, self, args);
  const bool whole = may_change(args[1]) || env[by].d == std::floor(env[by].d);
  if (!whole || !within(env.number(-kMost), by) || !within(by, env.number(kMost))) return as_it_is(t, self, args);
  return n.result(n.make(SymOp::kNMul, n.of(args[0]), n.make(SymOp::kNPow, env.number(2), by)));
}

Vars run_modf(Trace& t, Var* self, const Vars& args) {
  if (args.size() != 1 || !are_symbols(t, args)) return as_it_is(t, self, args);
  Numbers n{t};
  const int32_t x = n.of(args[0]);
  return {n.result(n.make(SymOp::kNWhole, x))[0], n.result(n.make(SymOp::kNRest, x))[0]};
}

Vars run_joined(Trace& t, Var* self, const Vars& args) {
  if (!are_symbols(t, args)) return as_it_is(t, self, args);
  const std::string_view name = self->builtin->name;
  for (const JoinRow& row : kJoinRows) {
    if (name != row.name || args.size() < row.least || args.size() > row.most) continue;
    Numbers n{t};
    int32_t joined = n.of(args[0]);
    for (size_t i = 1; i < args.size(); i++) {
      int32_t next = n.of(args[i]);
      if (name == "bit.ror") next = n.make(SymOp::kNSub, n.env.number(0), bits_of_one(n, "bit.tobit", next));
      joined = n.make(row.op, joined, next);
    }
    return n.result(joined);
  }
  return as_it_is(t, self, args);
}

Vars run_bits(Trace& t, Var* self, const Vars& args) {
  if (args.size() != 1 || !are_symbols(t, args)) return run_joined(t, self, args);
  const std::string_view name = self->builtin->name;
  const bool joins = std::any_of(std::begin(kJoinRows), std::end(kJoinRows),
                                 [&](const JoinRow& row) { return name == row.name && row.most == 2; });
  Numbers n{t};
  return joins ? as_it_is(t, self, args) : n.result(bits_of_one(n, name, n.of(args[0])));
}

Vars run_host(Trace& t, Var* self, const Vars& args) {
  Var* v = args.empty() ? t.nil() : t.force(args[0]);
  if (args.size() != 1 || v->kind != VarKind::kNumber || (v->guarded && !v->num.expr)) return as_it_is(t, self, args);
  if (v->tensor) v = read_rounded(t, self->builtin->name, v);
  if (v->tensor) return {v};
  SymEnv& env = *t.graph->env;
  Scalar s = t.symbolic(v);
  SymOp op = SymOp::kNAbs;
  for (const MathRow& h : kMathRows) {
    if (!strcmp(h.name, self->builtin->name)) op = h.op;
  }
  if (s.kind == Scalar::kInt) {
    if (op == SymOp::kNFloor || op == SymOp::kNCeil) return {v};
    s.expr = env.make(SymOp::kToNum, s.expr);
  }
  // math.floor(size / n) is a size.
  const SymExpr e = env[s.expr];
  if (op == SymOp::kNFloor && e.op == SymOp::kNDiv) {
    auto whole = [&](int32_t id) -> int32_t {
      const SymExpr& x = env[id];
      if (x.op == SymOp::kToNum) return x.a;
      if (x.op == SymOp::kConstNum && std::floor(x.d) == x.d && x.d > 0 && x.d < 0x1p53)
        return env.constant(int64_t(x.d));
      return 0;
    };
    const int32_t a = whole(e.a), b = whole(e.b);
    // In doubles 0 / -2 is -0 and n / 0 is not an integer, so b must be positive.
    const bool exact = a && b && env.range(b).low > 0 && env.ask_exact(a) && env.ask_exact(b);
    if (exact) return {t.scalar(Scalar::of_sym(SymInt::of_expr(env, env.make(SymOp::kFloorDiv, a, b))))};
  }
  const int32_t id = env.make(op, s.expr);
  Scalar r(env[id].d);
  r.expr = id;
  return {t.scalar(r)};
}

// Computes the drawn number in advance from a copy of the generator's state; the segment's effects draw it later. The
// rest is LuaJIT's arithmetic.
Vars run_random(Trace& t, Var* self, const Vars& args) {
  constexpr int kMost = 64;  // each draw recomputes all draws before it
  if (!t.regions.empty()) t.regions.back()->refuse("math.random is called");
  bool fits = self->source && args.size() <= 2 && t.draws < kMost;
  for (Var* v : args) fits = fits && t.force(v)->kind == VarKind::kNumber;
  t.push_real(self);
  const int function = lua_gettop(t.L);
  if (!fits || !is_known_random(t.L, function)) t.stop(Break::random_number, {"math.random"});
  LuaRandom state = *random_of(t.L, function);
  if (t.random_seed) seed_random(state, t.random_seed_value);
  lua_settop(t.L, function - 1);
  lua_pushnumber(t.L, draw_ahead(state, t.draws));
  const std::string draw = str("math.random() (draw ", t.draws + 1);
  const std::string text = t.random_seed ? str(draw, " after math.randomseed(", t.random_seed->text, "))")
                           : t.draws     ? draw + ")"
                                         : "math.random()";
  Var* v = t.wrap(t.source(SourceKind::kRandom, self->source, t.random_seed, t.draws, text));
  t.random = self, t.draws++;
  t.effect = true;
  if (args.empty()) return {t.force(v)};
  using bc::Op;
  Var *low = args.size() == 1 ? t.number(1) : args[0], *range = args[0];
  if (args.size() == 2) range = arithmetic(t, Op::ADDVV, arithmetic(t, Op::SUBVV, args[1], low), t.number(1));
  Var floor;
  floor.builtin = find_builtin_row("math.floor");
  Var* whole = run_host(t, &floor, {arithmetic(t, Op::MULVV, v, range)})[0];
  if (const int32_t n = t.options.dynamic == 0 ? 0 : t.graph->env->ask_integer(whole->num.expr)) {
    whole = t.scalar(Scalar::of_sym(SymInt::of_expr(*t.graph->env, n)));  // an index, a size
  }
  return {arithmetic(t, Op::ADDVV, whole, low)};
}

// Models math.randomseed: later draws are those of a generator that was seeded so. The segment's effects seed the real
// one.
Vars run_randomseed(Trace& t, Var* self, const Vars& args) {
  if (!t.regions.empty()) t.regions.back()->refuse("math.randomseed is called");
  Var* seed = args.size() == 1 ? t.force(args[0]) : nullptr;
  const bool fits = self->source && seed && seed->kind == VarKind::kNumber && !seed->tensor;
  t.push_real(self);
  const bool known = fits && is_known_seeding(t.L, lua_gettop(t.L));
  lua_pop(t.L, 1);
  if (!known) t.stop(Break::random_number, {"math.randomseed"});
  const Scalar s = t.symbolic(seed);
  const Source* from = t.computed(s.expr ? s.expr : t.graph->env->number(s.to_double()));
  if (!from) t.stop(Break::random_number, {"math.randomseed"});
  t.random = self, t.random_seed = from, t.random_seed_value = s.to_double(), t.draws = 0;
  t.effect = true;
  return {};
}

// Models math.max and math.min of numbers, one of which is symbolic. The result of integers is an integer.
Vars run_extreme(Trace& t, Var* self, const Vars& args) {
  bool symbolic = false, read = false;
  for (size_t i = 0; i < args.size(); i++) {
    Var* v = t.force(args[i]);
    if (v->kind != VarKind::kNumber) return as_it_is(t, self, args);
    symbolic = symbolic || !v->guarded || v->num.expr;
    read = read || v->tensor;
  }
  if (!symbolic) return as_it_is(t, self, args);
  SymEnv& env = *t.graph->env;
  const bool most = !strcmp(self->builtin->name, "math.max");
  if (read) {
    const Device device =
        (*std::find_if(args.begin(), args.end(), [](const Var* v) { return v->tensor; }))->tensor->device();
    Var* best = args[0];
    for (size_t i = 1; i < args.size(); i++) best = read_extreme(t, most, best, args[i], device);
    return {best};
  }
  const auto whole = [&](const Scalar& s) -> int32_t {
    if (s.expr) return s.kind == Scalar::kInt && env.ask_exact(s.expr) ? s.expr : 0;
    const double d = s.to_double();
    return s.is_whole() && std::signbit(d) == (d < 0) ? env.constant(s.to_int()) : 0;  // -0 is not an integer
  };
  Scalar best = t.symbolic(args[0]);
  for (size_t i = 1; i < args.size(); i++) {
    const Scalar s = t.symbolic(args[i]);
    const int32_t a = whole(best), b = a ? whole(s) : 0;
    if (a && b) {
      best = Scalar::of_sym(SymInt::of_expr(env, env.make(most ? SymOp::kMax : SymOp::kMin, a, b)));
      continue;
    }
    const int32_t id = env.make(most ? SymOp::kNMax : SymOp::kNMin, number_expr(env, best), number_expr(env, s));
    best = Scalar(env[id].d);
    if (env[id].op != SymOp::kConstNum) best.expr = id;
  }
  return {t.scalar(best)};
}

}  // namespace lutra
