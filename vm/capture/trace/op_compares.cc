// Compares, tests and jumps: constants are compared at once, symbols add a guard, tensors break the graph.
#include <lua.hpp>

#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/cdata.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/unbacked_sizes.h"
#include "vm/guard/native_run.h"

namespace lutra {
namespace {

// Takes or skips the JMP after a compare, which is taken if the condition holds.
void branch(Frame& f, bool taken) {
  const bc::Ins jmp = f.code->proto().code[f.pc + 1];
  f.next = taken ? bc::jump_target(f.pc + 1, jmp) : f.pc + 2;
}

// Compares by metamethod; both operands must have the same one. Without __le, a <= b is computed as not (b < a).
bool less_by_metamethod(Trace& t, Var* a, Var* b, bool or_equal) {
  Var *f = t.metamethod(a, or_equal ? "__le" : "__lt"), *g = t.metamethod(b, or_equal ? "__le" : "__lt");
  const bool has = f->kind != VarKind::kNil && g->kind != VarKind::kNil && t.same(f, g);
  if (!has && or_equal) return !less_by_metamethod(t, b, a, false);
  if (!has) t.stop(Break::raises, {"a comparison of tables"});
  const Vars r = t.call(f, {a, b}, true);
  return !r.empty() && t.truthy(r[0]);
}

// Returns whether the comparison tests a counter of the loop's iterations and may end the loop. A frame that began
// inside the loop passes it only once, and continues on one of two paths.
bool ends_count(const Frame& f) {
  const bc::Proto& proto = f.code->proto();
  const bc::Ins i = proto.code[f.pc];
  const bc::Counters loop = bc::counters(proto, f.pc);
  const bool counts = loop.slots[op_a(i)] || (bc::info(i).c == bc::Mode::Var && loop.slots[op_d(i)]);
  const auto leaves = [&](bc::Pc to) { return to < loop.first || to > loop.last; };
  return counts && leaves(f.began) && (leaves(bc::jump_target(f.pc + 1, proto.code[f.pc + 1])) || leaves(f.pc + 2));
}

bool is_symbolic(const Var* v) { return v->kind == VarKind::kNumber && !v->tensor && v->num.expr; }

// Stops unrolling at a comparison of changing values that each iteration of a loop makes, since it decides the number
// of iterations. Lua runs it, and the code between two such comparisons is a segment. asked: number of guards before
// it.
void leave_where_varied(Trace& t, Frame& f, const Var* a, const Var* b, size_t asked) {
  if ((!is_symbolic(a) && !is_symbolic(b)) || f.is_builtin() || t.options.fullgraph || !t.regions.empty()) return;
  constexpr bc::Pc kSettled = bc::Pc(1) << 30;  // a long chain is walked only once, not in each iteration
  if (f.asked.count(f.pc | kSettled)) return;
  const bool again = !f.asked.insert(f.pc).second;
  if (t.graph->env->guards().size() == asked || (!again && !ends_count(f))) return;
  if (!t.has_come_out_otherwise(a) && !t.has_come_out_otherwise(b)) {
    if (again) f.asked.insert(f.pc | kSettled);
    return;
  }
  if (t.decisions.kept_loops.insert({&f.code->proto(), f.pc}).second) throw Restart{};
}

bool less(Trace& t, Var* a, Var* b, bool or_equal) {
  if (a->kind == VarKind::kNumber && b->kind == VarKind::kNumber) {
    if (a->guarded && b->guarded && !a->num.expr && !b->num.expr) {
      const double x = a->num.to_double(), y = b->num.to_double();
      return or_equal ? x <= y : x < y;
    }
    SymEnv& env = *t.graph->env;
    const Scalar x = t.symbolic(a), y = t.symbolic(b);
    if (is_unbacked(t, x.expr) || is_unbacked(t, y.expr)) return unbacked_less(t, or_equal, x, y);
    const int32_t i = number_expr(env, x), j = number_expr(env, y);
    return env.ask(or_equal ? SymCmp::kLe : SymCmp::kLt, i, j);
  }
  if (a->kind == VarKind::kString && b->kind == VarKind::kString) {
    t.push_real(a), t.push_real(b);
    const bool r = lua_lessthan(t.L, -2, -1) || (or_equal && lua_rawequal(t.L, -2, -1));
    lua_pop(t.L, 2);
    return r;
  }
  if (a->kind == VarKind::kTensor || b->kind == VarKind::kTensor) {
    t.stop(Break::compares_tensors);
  }
  if (a->kind == VarKind::kTable && b->kind == VarKind::kTable) return less_by_metamethod(t, a, b, or_equal);
  if (Var* v = cdata_operation(t, or_equal ? "__le" : "__lt", a, b)) return t.truthy(v);
  const bool object = a->kind == VarKind::kObject || b->kind == VarKind::kObject;
  if (object) t.stop(Break::comparison, {"values that are not numbers"});
  t.stop(Break::raises, {"a comparison of values that are not numbers"});
}

// Returns the Lua type of a value known only by identity.
int object_type(Trace& t, Var* v) {
  if (v->kind == VarKind::kTensor) return LUA_TUSERDATA;
  if (v->kind != VarKind::kObject) return LUA_TNONE;
  t.push_pin(v->pin);
  const int type = lua_type(t.L, -1);
  lua_pop(t.L, 1);
  return type;
}

bool equal(Trace& t, Var* a, Var* b) {
  t.force(a), t.force(b);
  const int x = object_type(t, a), y = object_type(t, b);
  // 1LL == 1, and a NULL is nil.
  if (x == kCdataType || y == kCdataType) {
    if (Var* v = cdata_operation(t, "__eq", a, b)) return t.truthy(v);
    t.stop(Break::cdata, {"compared"});
  }
  if (t.same(a, b)) return true;
  const bool tensors = a->kind == VarKind::kTensor && b->kind == VarKind::kTensor;
  if (x == LUA_TUSERDATA && y == LUA_TUSERDATA && !tensors) t.stop(Break::comparison, {"userdata"});
  if (tensors || (a->kind == VarKind::kTable && b->kind == VarKind::kTable)) {
    Var *f = t.metamethod(a, "__eq"), *g = nullptr;
    if (f->kind == VarKind::kNil) return false;
    g = t.metamethod(b, "__eq");
    if (g->kind == VarKind::kNil || !t.same(f, g)) return false;
    Vars r = t.call(f, {a, b}, true);
    return !r.empty() && t.truthy(r[0]);
  }
  return false;
}

void op_order(Trace& t, Frame& f, bc::Ins i) {
  Var *a = t.force(t.slot(f, op_a(i))), *b = t.force(t.slot(f, op_d(i)));
  const bool or_equal = bc::op(i) == Op::ISLE || bc::op(i) == Op::ISGT;
  const bool negated = bc::op(i) == Op::ISGE || bc::op(i) == Op::ISGT;
  const size_t asked = t.graph->env->guards().size();
  const bool is = less(t, a, b, or_equal);
  leave_where_varied(t, f, a, b, asked);
  branch(f, is != negated);
}

void op_equal(Trace& t, Frame& f, bc::Ins i) {
  Var *a = t.slot(f, op_a(i)), *b = nullptr;
  bool want = true;
  switch (bc::op(i)) {
    case Op::ISNEV: want = false; [[fallthrough]];
    case Op::ISEQV: b = t.slot(f, op_d(i)); break;
    case Op::ISNES: want = false; [[fallthrough]];
    case Op::ISEQS: b = string_constant(t, f, op_d(i)); break;
    case Op::ISNEN: want = false; [[fallthrough]];
    case Op::ISEQN: b = number_constant(t, f, op_d(i)); break;
    case Op::ISNEP: want = false; [[fallthrough]];
    default: b = op_d(i) == 0 ? t.nil() : t.boolean(op_d(i) == 2);
  }
  const size_t asked = t.graph->env->guards().size();
  const bool is = equal(t, a, b);
  leave_where_varied(t, f, a, b, asked);
  branch(f, is == want);
}

void op_test(Trace& t, Frame& f, bc::Ins i) {
  Var* v = t.slot(f, op_d(i));
  const bool is = t.truthy(v);
  const Op op = bc::op(i);
  const bool taken = (op == Op::ISTC || op == Op::IST) ? is : !is;
  if (taken && (op == Op::ISTC || op == Op::ISFC)) t.set(f, op_a(i), v);
  branch(f, taken);
}

// Type checks of library functions that are written in bytecode.
void op_type_check(Trace& t, Frame& f, bc::Ins i) {
  constexpr unsigned kStr = 5, kFunc = 9, kTab = 12;  // LuaJIT's tags, counted from 1
  Var* v = t.force(t.slot(f, op_a(i)));
  bool fits = v->kind == VarKind::kNumber;
  if (bc::op(i) == Op::ISTYPE) {
    const unsigned type = op_d(i);
    const bool function = v->kind == VarKind::kFunction || v->kind == VarKind::kClosure || v->kind == VarKind::kBinding;
    fits = (type == kStr && v->kind == VarKind::kString) || (type == kTab && v->kind == VarKind::kTable) ||
           (type == kFunc && function);
  }
  if (!fits) t.stop(Break::argument, {"a function of Lua's library"});
}

// Begins a traversal. Such a function iterates a table without calling `next`, and counts slots of the table instead of
// keys.
void begin_traversal(Trace& t, Frame& f) {
  const bc::Ins iterator = f.code->proto().code[f.next];
  if (bc::op(iterator) != Op::ITERN) return;
  t.vars.emplace_back();
  t.vars.back().kind = VarKind::kClosure;
  t.vars.back().builtin = find_builtin_row("next");
  t.set(f, op_a(iterator) - 3, &t.vars.back());
  t.set(f, op_a(iterator) - 1, t.nil());
}

}  // namespace

void install_compares(Handlers& h) {
  for (Op op : {Op::ISLT, Op::ISGE, Op::ISLE, Op::ISGT}) h.set(op, op_order);
  for (Op op : {Op::ISEQV, Op::ISNEV, Op::ISEQS, Op::ISNES, Op::ISEQN, Op::ISNEN, Op::ISEQP, Op::ISNEP}) {
    h.set(op, op_equal);
  }
  for (Op op : {Op::ISTC, Op::ISFC, Op::IST, Op::ISF}) h.set(op, op_test);
  for (Op op : {Op::ISTYPE, Op::ISNUM}) h.set(op, op_type_check);
  h.set(Op::JMP, [](Trace& t, Frame& f, bc::Ins i) {
    jump(f, bc::jump_target(f.pc, i));
    if (f.is_builtin()) begin_traversal(t, f);
  });
  h.set(Op::ISNEXT, [](Trace&, Frame& f, bc::Ins i) { jump(f, bc::jump_target(f.pc, i)); });
}

}  // namespace lutra
