// Derives lessons and decisions from the slots and loops at the end of a trace and from the sizes of its inputs.
#include "vm/capture/segment/lessons.h"

#include <algorithm>
#include <cmath>
#include <lua.hpp>

#include "vm/capture/trace/trace.h"

namespace lutra {
namespace {

// Returns for each expression whether it contains one for which `is` returns true.
template <class F>
std::vector<bool> made_of(const SymEnv& env, F is) {
  std::vector<bool> made(env.size());
  for (size_t i = 0; i < made.size(); i++) {
    const SymExpr& e = env.exprs()[i];
    made[i] = is(e) || (arity(e.op) > 0 && made[size_t(e.a)]) || (arity(e.op) > 1 && made[size_t(e.b)]);
  }
  return made;
}

// Returns whether all tensors with the size have it first and are contiguous. For others eager code distinguishes empty
// tensors and the graph does not: strides are products of non-zero sizes, and an empty tensor is contiguous.
bool lies_plainly(const Graph& graph, int32_t size) {
  const SymExpr leaf = (*graph.env)[size];
  const auto has =
      made_of(*graph.env, [&](const SymExpr& e) { return e.op == leaf.op && e.a == leaf.a && e.b == leaf.b; });
  const auto depends = [&](SymInt n) { return n.expr && size_t(n.expr) < has.size() && has[size_t(n.expr)]; };
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& node) {
    return std::all_of(node->results.begin(), node->results.end(), [&](const Tensor& t) {
      if (!t || std::none_of(t->sizes.begin(), t->sizes.end(), depends)) return true;
      const Sizes want = contiguous_strides(t->sizes);
      const auto is_as = [&](SymInt a, SymInt b) { return same_expr(a, b) && !depends(a); };
      return std::none_of(t->sizes.begin() + 1, t->sizes.end(), depends) &&
             std::equal(want.begin(), want.end(), t->strides.begin(), t->strides.end(), is_as);
    });
  });
}

// Returns whether a loop's number may be a fraction; then its variable may be one, too.
bool may_be_fraction(Trace& t, Var* v) {
  const auto is_fraction = [](double d) { return d != std::floor(d); };
  if (v->kind == VarKind::kLazy) {
    t.push_pin(v->pin);
    const double d = lua_tonumber(t.L, -1);
    lua_pop(t.L, 1);
    return is_fraction(d);
  }
  if (v->kind != VarKind::kNumber || v->tensor) return true;
  return v->num.expr ? v->num.kind != Scalar::kInt : is_fraction(v->num.to_double());
}

bool is_changing_integer(Trace& t, Var& v) {
  return !v.tensor && v.num.expr && v.num.kind == Scalar::kInt && t.has_varied(&v);
}

}  // namespace

const bc::Loop* ending_loop(const Frame& f, const SegmentEnd& end) {
  const std::vector<bc::Loop>& loops = f.code->loops();
  const auto loop = std::find_if(loops.begin(), loops.end(), [&](const bc::Loop& l) { return l.head == f.pc; });
  return end.kind == SegmentEnd::kLoop && loop != loops.end() ? &*loop : nullptr;
}

bool ends_at_comparison(const Frame& f, const SegmentEnd& end) {
  return end.kind == SegmentEnd::kLoop && bc::has(f.code->proto().code[f.pc], bc::kCompare);
}

SegmentLessons lessons_of(Trace& t, const SegmentEnd& end) {
  SegmentLessons lessons;
  Frame& f = *t.frames[0];
  if (const bc::Loop* loop = ending_loop(f, end); loop && loop->kind == bc::Loop::Kind::kFor) {
    if (may_be_fraction(t, t.slot(f, loop->base)) || may_be_fraction(t, t.slot(f, loop->base + 2)))
      lessons.fractions.insert(loop->head);
  }
  for (unsigned s = 0; s < f.slots.size(); s++) {
    Var* v = s < f.cells.size() && f.cells[s] ? f.cells[s]->value : f.slots[s];
    if (v && v->kind == VarKind::kLazy) {
      // Known by this name, but maybe not by the slot's name.
      const auto known = t.options.dynamic_dims.find(v->source->text);
      if (known != t.options.dynamic_dims.end()) lessons.sizes[s] = known->second;
    }
    const bool is_local = !bc::local_name(f.code->proto(), f.pc, s).empty();
    if (v && v->kind == VarKind::kNumber && is_local && is_changing_integer(t, *v)) lessons.numbers.insert(s);
    const bool is_table = v && v->kind == VarKind::kTable && v->table->pin;
    if (is_table && !t.options.loop_variables.empty() && !v->table->appended.empty()) lessons.lists.insert(s);
    if (!v || v->kind != VarKind::kTensor) continue;
    const Sizes& sizes = v->tensor->sizes;
    for (size_t d = 0; d < sizes.size(); d++) {
      if (sizes[d].expr) lessons.sizes[s].insert(int(d));
    }
  }
  return lessons;
}

void decide_open_sizes(Trace& t) {
  SymEnv& env = *t.graph->env;
  bool news = false;
  for (const Trace::TensorInput& in : t.inputs) {
    for (size_t d = 0; in.source && d < in.fake->sizes.size(); d++) {
      const SymInt size = in.fake->sizes[d];
      if (!size.expr || env.made_range(size.expr).low >= kSymbolicSizes.low) continue;
      const SymRange range = env.range(size.expr);
      bool closes = range.low == range.high || range.low >= kSymbolicSizes.low;
      if (!closes && range.low == 0 && !lies_plainly(*t.graph, size.expr)) closes = size == 0;
      if (closes) news |= t.decisions.closed_sizes.insert(size_name(in.source->text, int(d))).second;
    }
  }
  if (news) throw Restart();
}

}  // namespace lutra
