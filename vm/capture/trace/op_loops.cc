// Numeric and generic for loops, unrolled. A loop that began before the segment ends it at its back edge.
#include <algorithm>
#include <cmath>
#include <lua.hpp>
#include <set>
#include <vector>

#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/interpreter.h"

namespace lutra {
namespace {

// Returns whether the loop continues. LuaJIT takes the direction from the sign bit: -0 and negative NaN count down.
bool within(double index, double limit, double step) { return std::signbit(step) ? index >= limit : index <= limit; }

double loop_number(Trace& t, Frame& f, unsigned slot) {
  Var* v = t.force(t.slot(f, slot));
  if (v->kind != VarKind::kNumber) t.stop(Break::raises, {"a for loop with a bound that is not a number"});
  return t.constant(v);
}

bool is_argument(const Source* s) { return s && (s->kind == SourceKind::kArg || s->kind == SourceKind::kVararg); }

// Returns whether a number is computed only from arguments, sizes of theirs that changed, and constants.
bool is_of_arguments(const Trace& t, const Var& v) {
  if (v.source || v.num.expr == 0) return is_argument(v.source);
  std::vector<int32_t> parts{v.num.expr};
  std::set<int32_t> seen;
  while (!parts.empty()) {
    const SymExpr& e = (*t.graph->env)[parts.back()];
    parts.pop_back();
    const Source* tensor = e.op == SymOp::kSize ? t.inputs[size_t(e.a)].source : nullptr;
    if (e.op == SymOp::kSize && !(is_argument(tensor) && t.is_learnt(*tensor, e.b))) return false;
    if (e.op == SymOp::kScalarInput && !is_argument(t.program.scalar_sources[size_t(e.a)])) return false;
    if (arity(e.op) > 0 && seen.insert(e.a).second) parts.push_back(e.a);
    if (arity(e.op) > 1 && seen.insert(e.b).second) parts.push_back(e.b);
  }
  return true;
}

// Keeps a loop (does not unroll it) whose number of iterations varies between calls. A field or a length must have
// varied twice, since one variation may come from two models, each with its own number.
void keep_where_varied(Trace& t, Frame& f, unsigned a) {
  for (unsigned slot : {a, a + 1, a + 2}) {
    Var* v = t.force(t.slot(f, slot));
    if (t.options.fullgraph || v->kind != VarKind::kNumber || v->tensor) continue;
    if (!t.has_varied(v, is_of_arguments(t, *v) ? 1 : 2)) continue;
    if (t.decisions.kept_loops.insert({&f.code->proto(), f.pc}).second) throw Restart{};
  }
}

bool has_history(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& n) {
    return std::any_of(n->results.begin(), n->results.end(), [](const Tensor& t) { return t && t->requires_grad; });
  });
}

// Returns whether the loop was unrolled long enough. Compiling its body once is cheaper: a graph of many iterations
// takes longer to compile than it saves in hundreds of calls. But a later backward needs them in one graph.
bool is_unrolled_enough(Trace& t, Frame& f) {
  constexpr size_t kRounds = 100, kOps = 1000;
  if (++f.rounds % kRounds != 0 || t.graph->nodes.size() < f.nodes_before + kOps) return false;
  if (t.options.fullgraph || !t.regions.empty()) return false;
  // A user who compiles a function wants the loops of its callees in its graph.
  return (&f == t.frames[0] || t.options.automatic) && !has_history(*t.graph);
}

void bound_unrolled(Trace& t, Frame& f) {
  if (is_unrolled_enough(t, f) && !f.active.empty()) throw LongLoop{};
}

void op_fori(Trace& t, Frame& f, bc::Ins i) {
  const unsigned a = op_a(i);
  keep_where_varied(t, f, a);
  const double index = loop_number(t, f, a), limit = loop_number(t, f, a + 1), step = loop_number(t, f, a + 2);
  if (!within(index, limit, step)) return jump(f, bc::jump_target(f.pc, i));
  t.set(f, a + 3, t.number(index));
}

void op_forl(Trace& t, Frame& f, bc::Ins i) {
  const unsigned a = op_a(i);
  if (!f.slots[a] || !f.slots[a + 1] || !f.slots[a + 2]) throw LoopStop{};
  const double step = loop_number(t, f, a + 2), limit = loop_number(t, f, a + 1);
  const double index = loop_number(t, f, a) + step;
  t.set(f, a, t.number(index));
  if (within(index, limit, step)) {
    bound_unrolled(t, f);
    t.set(f, a + 3, t.number(index));
    jump(f, bc::jump_target(f.pc, i));
  }
}

// Returns whether the loop of this iterator is not to be unrolled; the segment began in its body.
bool is_kept(const Trace& t, const Frame& f) {
  for (const bc::Loop& l : f.code->loops()) {
    if (l.iter == f.pc) return t.decisions.kept_loops.count({&f.code->proto(), l.head}) > 0;
  }
  return false;
}

// Keeps a loop over a list that had other lengths in earlier calls.
void keep_where_list_varied(Trace& t, Frame& f, unsigned a) {
  constexpr int kLengths = 2;
  const Var *iterator = t.force(t.slot(f, a - 3)), *list = t.force(t.slot(f, a - 2));
  const bool lists = iterator->builtin && std::string_view(iterator->builtin->name) == "ipairs iterator";
  if (!lists || t.options.fullgraph || !list->table || list->table->pin == 0) return;
  if (t.lengths_of(*list->table) < kLengths) return;
  for (const bc::Loop& l : f.code->loops()) {
    if (l.iter == f.pc && t.decisions.kept_loops.insert({&f.code->proto(), l.head}).second) throw Restart{};
  }
}

void op_iterator(Trace& t, Frame& f, bc::Ins i) {
  const unsigned a = op_a(i);
  if (!f.slots[a - 3] || !f.slots[a - 2] || !f.slots[a - 1] || is_kept(t, f)) throw LoopStop{};
  keep_where_list_varied(t, f, a);
  const Vars results = t.call(t.slot(f, a - 3), {t.slot(f, a - 2), t.slot(f, a - 1)}, true);
  for (unsigned n = 0; n + 1 < op_b(i); n++) t.set(f, a + n, n < results.size() ? results[n] : t.nil());
}

// Runs at each iteration of a loop that is not a `for`. The loop is not in `active`: a break in its body ends the
// segment there, not at the head.
void op_loop(Trace& t, Frame& f, bc::Ins) {
  if (is_unrolled_enough(t, f) && t.decisions.kept_loops.insert({&f.code->proto(), f.pc}).second) throw Restart{};
}

// Handles the back edge of a loop in a frame to which the trace has returned. Its control value differs between
// iterations. If the frame has taken the back edge before, the next iterations are a segment of their own.
void come_round_above(Trace& t, Frame& f) {
  if (t.frames[0] != &f || !f.returned_to) return;
  for (const bc::Loop& l : f.code->loops()) {
    if (l.end != f.pc || !f.began_in(l) || !f.active.empty()) continue;
    if (f.came_round && t.decisions.kept_loops.insert({&f.code->proto(), l.head}).second) throw Restart{};
    f.active.push_back(&l);
  }
}

void op_iterl(Trace& t, Frame& f, bc::Ins i) {
  const unsigned a = op_a(i);
  Var* first = t.force(t.slot(f, a));
  if (first->kind == VarKind::kNil) return;
  come_round_above(t, f);
  bound_unrolled(t, f);
  t.set(f, a - 1, first);
  jump(f, bc::jump_target(f.pc, i));
}

constexpr int kFewRounds = 8;

bool has_few_items(Trace& t, const Table& table) {
  if (table.pin == 0) return table.entries.size() <= kFewRounds;
  int items = 0;
  t.push_pin(table.pin);
  for (lua_pushnil(t.L); items <= kFewRounds && lua_next(t.L, -2); lua_pop(t.L, 1)) items++;
  lua_pop(t.L, items <= kFewRounds ? 1 : 2);
  return items <= kFewRounds;
}

}  // namespace

bool has_few_rounds(Trace& t, const Frame& f, const bc::Loop& loop) {
  const auto at = [&](unsigned slot) { return f.slots[slot]; };
  if (loop.kind == bc::Loop::Kind::kFor) {
    const Var *index = at(loop.base), *limit = at(loop.base + 1), *step = at(loop.base + 2);
    const auto is_number = [](const Var* v) { return v && v->kind == VarKind::kNumber && !v->tensor; };
    if (!is_number(index) || !is_number(limit) || !is_number(step)) return false;
    const double rest = (limit->num.to_double() - index->num.to_double()) / step->num.to_double();
    return rest < kFewRounds;
  }
  const Var *iterator = at(loop.base - 3), *list = at(loop.base - 2);
  return iterator && list && !(iterator->builtin && list->table && !has_few_items(t, *list->table));
}

void install_loops(Handlers& h) {
  h.set(Op::FORI, op_fori);
  h.set(Op::FORL, op_forl);
  h.set(Op::ITERC, op_iterator);
  h.set(Op::ITERN, op_iterator);
  h.set(Op::ITERL, op_iterl);
  h.set(Op::LOOP, op_loop);
}

}  // namespace lutra
