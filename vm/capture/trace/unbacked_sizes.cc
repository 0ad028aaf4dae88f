// Makes integers of the graph for ops whose result size depends on elements. They are at least 2, since sizes 0 and 1
// change broadcasting: a run with such a size runs the original code. If there are no more elements than that, the size
// is their number.
#include "vm/capture/trace/unbacked_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <lua.hpp>
#include <optional>
#include <set>

#include "ops/decompose/emit.h"
#include "ops/decompose/numbers.h"
#include "ops/meta/unbacked.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/read_numbers.h"
#include "vm/capture/trace/trace.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

constexpr int64_t kLeast = 2;

// Returns a size that lies between the bounds and seldom equals another size.
int64_t likely(int64_t most) {
  constexpr int64_t kWithoutBound = 33;
  return most == kMaxElements ? kWithoutBound : std::min(most, std::max(kLeast, (most / 2) | 1));
}

// Returns the range of a number. An end beyond 2^53, where doubles do not represent all integers, is open.
SymRange range_of(const Trace& t, const Scalar& n) {
  constexpr int64_t kExact = int64_t(1) << 53;
  SymRange r;
  if (n.expr) {
    if (n.kind == Scalar::kInt) r = t.graph->env->range(n.expr);
  } else {
    const double d = n.to_double(), most = double(kExact);
    r.low = int64_t(std::floor(std::clamp(d, -most, most)));
    r.high = int64_t(std::ceil(std::clamp(d, -most, most)));
    if (d >= most) r.high = INT64_MAX;
    if (d <= -most) r.low = INT64_MIN;
  }
  if (r.high > kExact) r.high = INT64_MAX;
  if (r.low < -kExact) r.low = INT64_MIN;
  return {std::min(r.low, kExact), std::max(r.high, -kExact)};
}

bool is_nan(const Scalar& n) { return !n.expr && std::isnan(n.to_double()); }

// Returns whether the number is never NaN, whatever its symbols are.
bool is_number_of_integer(const Trace& t, const Scalar& n) {
  return n.kind == Scalar::kInt || (*t.graph->env)[n.expr].op == SymOp::kToNum;
}

// Returns whether the comparison runs in lt.check_is_size, which states facts.
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

// Returns whether an instruction may lie between a condition's value and the call that takes it as an argument.
bool only_loads(bc::Op op) {
  switch (op) {
    case bc::Op::KSTR:
    case bc::Op::KSHORT:
    case bc::Op::KNUM:
    case bc::Op::KPRI:
    case bc::Op::MOV:
    case bc::Op::CAT:
    case bc::Op::UGET:
    case bc::Op::GGET:
    case bc::Op::FNEW: return true;
    default: return false;
  }
}

// Returns whether the function is lt.check or assert. Both raise an error if their first argument is false.
bool is_check(Trace& t, Var* f) {
  if (!f || t.force(f)->kind != VarKind::kFunction) return false;
  if (f->builtin) return !strcmp(f->builtin->name, "assert");
  lua_getfield(t.L, LUA_REGISTRYINDEX, "lutra.module");
  lua_getfield(t.L, -1, "check");
  t.push_pin(f->pin);
  const bool is = lua_rawequal(t.L, -1, -2);
  lua_pop(t.L, 3);
  return is;
}

// Returns whether the code at pc passes false to a check.
bool fails_check(Trace& t, const Frame& f, bc::Pc pc) {
  constexpr unsigned kFalse = 1;
  const std::vector<bc::Ins>& code = f.code->proto().code;
  if (bc::op(code[pc]) != bc::Op::KPRI || bc::op_d(code[pc]) != kFalse) return false;
  const unsigned condition = bc::op_a(code[pc]);
  for (pc++; pc < code.size(); pc++) {
    const bc::Op op = bc::op(code[pc]);
    if (op == bc::Op::JMP) {
      const bc::Pc target = bc::jump_target(pc, code[pc]);
      if (target <= pc) return false;
      pc = target - 1;
    } else if (op == bc::Op::CALL || op == bc::Op::CALLT || op == bc::Op::CALLM || op == bc::Op::CALLMT) {
      const unsigned base = bc::op_a(code[pc]);
      return base + 2 == condition && base < f.slots.size() && is_check(t, f.slots[base]);
    } else if (!only_loads(op) || bc::op_a(code[pc]) <= condition) {
      return false;
    }
  }
  return false;
}

// Returns the result that the current comparison must have according to a check.
std::optional<bool> stated_outcome(Trace& t) {
  const Frame& f = *t.frames.back();
  const std::vector<bc::Ins>& code = f.code->proto().code;
  if (f.pc + 2 >= code.size() || bc::op(code[f.pc + 1]) != bc::Op::JMP) return {};
  const bool not_taken_fails = fails_check(t, f, f.pc + 2);
  if (!not_taken_fails && !fails_check(t, f, bc::jump_target(f.pc + 1, code[f.pc + 1]))) return {};
  switch (bc::op(code[f.pc])) {
    case bc::Op::ISLT:
    case bc::Op::ISLE:
    case bc::Op::ISEQV:
    case bc::Op::ISEQN: return not_taken_fails;
    case bc::Op::ISGE:
    case bc::Op::ISGT:
    case bc::Op::ISNEV:
    case bc::Op::ISNEN: return !not_taken_fails;
    default: return {};
  }
}

// Computes the values of all expressions if the graph's number `input` is n. Returns false if an expression has no
// value.
bool evaluate(const SymEnv& env, int32_t input, double n, std::vector<int64_t>& i, std::vector<double>& d) {
  const std::vector<SymExpr>& all = env.exprs();
  i.assign(all.size(), 0), d.assign(all.size(), 0);
  try {
    for (size_t k = 0; k < all.size(); k++) {
      const SymExpr& e = all[k];
      i[k] = e.i, d[k] = e.d;
      if (e.op == SymOp::kScalarInput && e.a == input) d[k] = n;
      if (arity(e.op) == 0) continue;
      const auto a = size_t(e.a), b = size_t(arity(e.op) > 1 ? e.b : e.a);
      if (e.op == SymOp::kToInt) {
        i[k] = eval_to_int(d[a]);
      } else if (e.op == SymOp::kToNum) {
        d[k] = double(i[a]);
      } else {
        is_number(e.op) ? void(d[k] = eval_number(e.op, d[a], d[b])) : void(i[k] = eval_int(e.op, i[a], i[b]));
      }
    }
  } catch (const Error&) {
    return false;
  }
  return true;
}

// A value that is not a likely size.
constexpr double kNone = -1;

// Returns sizes to try: small ones, larger ones, and those next to the values that the relation compares.
std::vector<double> candidates(const SymEnv& env, const SymGuard& wanted) {
  constexpr int kTried = 150;
  std::vector<double> all;
  for (int k = 0; k < kTried; k++) all.push_back(double(kLeast + k));
  for (const int32_t side : {wanted.a, arity(wanted.cmp) > 1 ? wanted.b : wanted.a}) {
    const double at = is_number(env[side].op) ? env[side].d : double(env[side].i);
    for (const double n : {at, at + 1, at - 1}) {
      if (n >= 0 && n <= double(kMaxElements)) all.push_back(n);
    }
  }
  for (int k = 0; k < kTried; k++) all.push_back(double((k + 2) * 64));
  all.insert(all.end(), {1, 0});
  return all;
}

// Returns a size for which the relation and the first `asked` guards hold; kNone if none is found.
double size_where(const SymEnv& env, int32_t input, const SymGuard& wanted, size_t asked) {
  std::vector<int64_t> i;
  std::vector<double> d;
  std::vector<SymGuard> all(env.guards().begin(), env.guards().begin() + long(asked));
  all.push_back(wanted);
  for (const double n : candidates(env, wanted)) {
    if (!evaluate(env, input, n, i, d)) continue;
    const bool fits = std::all_of(all.begin(), all.end(), [&](const SymGuard& g) {
      const auto a = size_t(g.a), b = size_t(arity(g.cmp) > 1 ? g.b : g.a);
      const bool holds = is_number(env[g.a].op) ? compare_number(g.cmp, d[a], d[b]) : compare_int(g.cmp, i[a], i[b]);
      return holds == g.outcome;
    });
    if (fits) return n;
  }
  return kNone;
}

// Starts the trace again with a number for which the relation holds, if there is one.
void try_where(Trace& t, const SymGuard& wanted, size_t asked) {
  constexpr int kMaxTries = 8;
  for (size_t k = 0; k < t.unbacked.size() && t.decisions.size_tries < kMaxTries; k++) {
    const double n = size_where(*t.graph->env, t.unbacked[k], wanted, asked);
    if (n == kNone) continue;
    t.decisions.likely_sizes[k] = n, t.decisions.size_tries++;
    throw Restart{};
  }
}

// States a fact. If the trace's current size contradicts it, starts again with another size.
bool state(Trace& t, const SymGuard& fact) {
  SymEnv& env = *t.graph->env;
  std::vector<int64_t> i;
  std::vector<double> d;
  evaluate(env, -1, 0, i, d);
  if (compare_number(fact.cmp, d[size_t(fact.a)], d[size_t(fact.b)]) != fact.outcome)
    try_where(t, fact, env.guards().size());
  const bool outcome = env.ask(fact.cmp, fact.a, fact.b);
  t.stated.push_back({fact.cmp, fact.a, fact.b, outcome});
  return outcome;
}

// Formats an expression for messages: unbacked sizes are n, long parts are left out.
std::string in_words(const SymEnv& env, int32_t id, int depth = 3) {
  const SymExpr& e = env[id];
  static const std::pair<SymOp, const char*> kInfix[] = {
      {SymOp::kAdd, " + "},  {SymOp::kNAdd, " + "}, {SymOp::kSub, " - "}, {SymOp::kNSub, " - "}, {SymOp::kMul, " * "},
      {SymOp::kNMul, " * "}, {SymOp::kNDiv, " / "}, {SymOp::kMod, " % "}, {SymOp::kNMod, " % "}};
  if (e.op == SymOp::kConstInt) return str(e.i);
  if (e.op == SymOp::kConstNum) return str(e.d);
  if (arity(e.op) == 0) return "n";
  if (e.op == SymOp::kToInt || e.op == SymOp::kToNum) return in_words(env, e.a, depth);
  for (const auto& [op, sign] : kInfix) {
    if (op == e.op && depth > 0) return in_words(env, e.a, depth - 1) + sign + in_words(env, e.b, depth - 1);
  }
  return "...";
}

std::string in_words(const SymEnv& env, const SymGuard& g) {
  const char* sign = "";
  switch (g.cmp) {
    case SymCmp::kEq:
    case SymCmp::kSame: sign = g.outcome ? " == " : " ~= "; break;
    case SymCmp::kNe: sign = g.outcome ? " ~= " : " == "; break;
    case SymCmp::kLt: sign = g.outcome ? " < " : " >= "; break;
    case SymCmp::kLe: sign = g.outcome ? " <= " : " > "; break;
    default: return in_words(env, g.a) + " is whole";
  }
  if (arity(env[g.a].op) == 0 && (env[g.a].op == SymOp::kConstInt || env[g.a].op == SymOp::kConstNum)) {
    const bool equal = g.cmp == SymCmp::kLe;
    const char* const flipped = g.outcome ? (equal ? " >= " : " > ") : (equal ? " < " : " <= ");
    if (equal || g.cmp == SymCmp::kLt) return in_words(env, g.b) + flipped + in_words(env, g.a);
  }
  return in_words(env, g.a) + sign + in_words(env, g.b);
}

constexpr const char* kReadName = "the number that item() read";

// Returns whether the last number in the expression was read by item().
bool is_read(const Trace& t, int32_t expr) {
  const std::vector<int32_t> levels = unbacked_levels(t.graph->env->exprs(), t.unbacked);
  const int32_t last = levels[size_t(expr)];
  return last > 0 && t.graph->scalars[size_t(t.unbacked[size_t(last) - 1])].name == kReadName;
}

Break break_of(const Trace& t, int32_t expr) { return is_read(t, expr) ? Break::needs_number : Break::needs_size; }

[[noreturn]] void stop_without(Trace& t, const SymGuard& fact, bool dirty) {
  t.stop(break_of(t, is_unbacked(t, fact.a) ? fact.a : fact.b),
         {"",
          str("nothing says whether ", in_words(*t.graph->env, fact),
              " before the graph has run: lt.check(condition) and ", "lt.check_is_size(n, {min =, max =}) state it"),
          dirty});
}

// Compares Lua numbers.
bool ask(Trace& t, SymCmp cmp, const Scalar& x, const Scalar& y) {
  SymEnv& env = *t.graph->env;
  const int32_t a = number_expr(env, x), b = number_expr(env, y);
  for (const SymGuard& g : t.stated) {
    if (g.cmp == cmp && g.a == a && g.b == b) return g.outcome;
  }
  if (const std::optional<bool> wanted = stated_outcome(t)) return state(t, {cmp, a, b, *wanted});
  if (!is_stated(t)) stop_without(t, {cmp, a, b, true}, false);
  return env.ask(cmp, a, b);
}

// Adds a number of the graph that no caller passes.
Scalar add_number(Trace& t, const std::string& name, double likely) {
  t.unbacked.push_back(int32_t(t.graph->scalars.size()));
  t.program.scalar_sources.push_back(nullptr);
  return t.graph->add_scalar(name, likely);
}

}  // namespace

std::optional<Scalar> tell_element(Trace& t, const Tensor& element, bool whole) {
  constexpr double kWhole = 5, kAny = 5.7;  // a small index, and a fraction
  constexpr double kExact = 0x1p53;         // beyond it an int64 may have been rounded
  UnbackedSizes* const sizes = UnbackedSizes::current();
  if (!sizes || !sizes->takes(false) || t.program.scalar_sources.size() != t.graph->scalars.size()) return {};
  const auto found = t.decisions.likely_sizes.find(t.unbacked.size());
  const auto fits = [&](double n) { return !whole || (std::fabs(n) < kExact && n == std::floor(n)); };
  const bool known = found != t.decisions.likely_sizes.end() && fits(found->second);
  const Scalar number = add_number(t, kReadName, known ? found->second + 0.0 : whole ? kWhole : kAny);
  t.recorder.set_location(t.file(), t.line());
  t.effect = true;
  tell_number(element, number);
  if (!whole) return number;
  SymEnv& env = *t.graph->env;
  env.ask(SymCmp::kLt, env.number(-kExact), number.expr);
  env.ask(SymCmp::kLt, number.expr, env.number(kExact));
  const int32_t n = env.ask_integer(number.expr);
  LUTRA_CHECK(n, "an integer that is none");
  return Scalar::of_sym(SymInt::of_expr(env, n));
}

// In an unrolled loop the trace accepts only a few such sizes. The break at the next one keeps the loop, so its body
// becomes a segment, which continues after such a size.
bool TraceSizes::takes(bool first) {
  constexpr size_t kMaxInLoops = 8;
  if (t_.ended || !t_.regions.empty() || t_.decisions.sizes_outside) return false;
  if (!(first ? is_in_loop(t_) : ends_graph(t_)) || t_.options.fullgraph) return true;
  return !t_.graph->nodes.empty() && t_.unbacked.size() < kMaxInLoops;
}

SymInt TraceSizes::size(OpId op, SymInt most) {
  const bool few = most.hint < kLeast;
  if ((few && !most.is_constant()) || t_.program.scalar_sources.size() != t_.graph->scalars.size()) return 0;
  SymEnv& env = *t_.graph->env;
  if (few) {  // all of them, or none
    const int32_t n = env.ask_integer(add_number(t_, str("the size of ", name(op)), double(most.hint)).expr);
    env.ask(SymCmp::kEq, n, env.constant(most.hint));
    return SymInt::of_expr(env, n);
  }
  const auto found = t_.decisions.likely_sizes.find(t_.unbacked.size());
  const bool known = found != t_.decisions.likely_sizes.end();
  const bool fits = known && found->second >= double(kLeast) && found->second <= double(most.hint);
  const Scalar number = add_number(t_, str("the size of ", name(op)), fits ? found->second : double(likely(most.hint)));
  const int32_t n = env.ask_integer(number.expr);
  env.ask(SymCmp::kLe, env.constant(kLeast), n);
  env.ask(SymCmp::kLe, n, env.constant(most.is_constant() ? most.hint : kMaxElements));
  if (!most.is_constant()) env.ask(SymCmp::kLe, n, most.expr);
  return SymInt::of_expr(env, n);
}

bool is_unbacked(const Trace& t, int32_t expr) {
  if (t.unbacked.empty() || !expr) return false;
  const std::vector<SymExpr>& exprs = t.graph->env->exprs();
  std::vector<int32_t> stack{expr};
  std::set<int32_t> seen;  // expressions share subexpressions
  while (!stack.empty()) {
    const SymExpr& e = exprs[size_t(stack.back())];
    stack.pop_back();
    if (e.op == SymOp::kScalarInput && std::count(t.unbacked.begin(), t.unbacked.end(), e.a)) return true;
    if (arity(e.op) > 0 && seen.insert(e.a).second) stack.push_back(e.a);
    if (arity(e.op) > 1 && seen.insert(e.b).second) stack.push_back(e.b);
  }
  return false;
}

bool unbacked_less(Trace& t, bool or_equal, const Scalar& x, const Scalar& y) {
  if (is_nan(x) || is_nan(y)) return false;
  const SymRange a = range_of(t, x), b = range_of(t, y);
  if (or_equal ? a.high <= b.low : a.high < b.low) return true;
  if (or_equal ? a.low > b.high : a.low >= b.high) return false;
  return ask(t, or_equal ? SymCmp::kLe : SymCmp::kLt, x, y);
}

bool unbacked_equal(Trace& t, const Scalar& x, const Scalar& y) {
  if (is_nan(x) || is_nan(y)) return false;
  const SymRange a = range_of(t, x), b = range_of(t, y);
  if (a.high < b.low || b.high < a.low) return false;
  if (x.expr && x.expr == y.expr && is_number_of_integer(t, x)) return true;
  return ask(t, SymCmp::kEq, x, y);
}

Tensor unbacked_element(Trace& t, const Scalar& n) {
  const GradModeScope without_history(false);
  return full({}, as_number(n), DType::kFloat64, t.graph->device.value_or(Device{}));
}

void stop_at_size(Trace& t, int32_t expr) {
  std::string words = in_words(*t.graph->env, expr);
  if (words.find("...") != std::string::npos) words = "n";  // what it is computed from
  t.stop(break_of(t, expr), {"",
                             str("nothing says which number ", words,
                                 " is before the graph has run, and as many results or steps need it"),
                             true});
}

void stop_at_error(Trace& t, size_t guards, const BreakAbout& about) {
  const std::vector<SymGuard>& asked = t.graph->env->guards();
  for (size_t k = asked.size(); k-- > guards;) {
    SymGuard g = asked[k];
    if (!is_unbacked(t, g.a) && !is_unbacked(t, g.b)) continue;
    g.outcome = !g.outcome;
    try_where(t, g, k);
    stop_without(t, g, about.dirty);
  }
  t.stop(Break::raises, about);
}

}  // namespace lutra
