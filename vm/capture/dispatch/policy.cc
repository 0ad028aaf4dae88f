// The lessons of a miss: sizes become symbols, other closures of a prototype are accepted, a point has enough entries.
#include "vm/capture/dispatch/policy.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <lua.hpp>
#include <optional>
#include <utility>

#include "ops/core/overlap.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/dispatch/capture_point.h"
#include "vm/capture/dispatch/costs.h"
#include "vm/capture/dispatch/entries.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/trace/hints.h"
#include "vm/guard/rows.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

bool is_tensor_check(GuardOp op) { return op == GuardOp::kTensorCheck || op == GuardOp::kGradTensorCheck; }

bool compares_constant(GuardOp op) {
  return op == GuardOp::kValueCheck || op == GuardOp::kFieldCheck || op == GuardOp::kGlobalCheck ||
         op == GuardOp::kUpvalueCheck;
}

// Returns the reason why a size stays a constant.
std::string size_hint(const TraceState& state, lua_State* L, const CompiledProto& compiled, const Tensor& t,
                      const TensorSpec& spec, int dim) {
  if (t->sizes[size_t(dim)].hint < 2 || (spec.sizes[size_t(dim)] >= 0 && spec.sizes[size_t(dim)] < 2)) {
    return "sizes 0 and 1 have entries of their own, since broadcasting is decided by them";
  }
  if (mark_of(state, L, t, dim).said < 0) return "lt.mark_static(x, dim) gives each size an entry";
  if (compiled.options.dynamic == 0) return "dynamic = false gives each size an entry";
  return recompile_hint("size");
}

// Returns the tensors that a call passes, by input. It ignores checks of tensors that fail. It loads nothing behind the
// first other failure.
std::vector<Tensor> tensors_of(lua_State* L, const GuardProgram& p, const CallValues& call, int tables) {
  GuardProgram loose = p;
  loose.steps.clear();
  std::vector<std::pair<int, int>> places;  // input, register
  for (const GuardStep& s : p.steps) {
    if (s.op == GuardOp::kTensorCheck) {
      places.push_back({s.index, s.a});
    } else if (is_load(s.op) ? s.op != GuardOp::kGradLoad : s.op == GuardOp::kTypeCheck) {
      loose.steps.push_back(s);
    }
  }
  std::vector<Tensor> found(p.tensors.size());
  GuardValues values;
  const int top = lua_gettop(L);
  if (run_guards(L, loose, call, tables, &values) < 0) {
    for (auto [input, reg] : places) {
      if (Tensor* t = to_tensor(L, values.base + reg)) found[size_t(input)] = *t;
    }
  }
  lua_settop(L, top);
  return found;
}

// Relaxes a step to what captures can learn to leave open: any number, any list length, another closure of a prototype.
// Returns false if nothing of the step remains.
bool loosen(lua_State* L, GuardStep& s, int constants) {
  if (s.op == GuardOp::kSymbolsCheck || s.op == GuardOp::kLengthCheck) return false;
  if (s.op == GuardOp::kListCheck) s.index = std::min(s.index, -1);
  if (s.op == GuardOp::kIdentityCheck && s.prototype) {
    s.op = GuardOp::kPrototypeCheck, s.index = s.prototype;
  } else if (compares_constant(s.op)) {
    lua_rawgeti(L, constants, s.index);
    if (lua_type(L, -1) == LUA_TNUMBER) s.op = GuardOp::kTypeCheck, s.index = LUA_TNUMBER;
    lua_pop(L, 1);
  }
  return true;
}

// Returns whether a call would run the entry if sizes, numbers and the like were other ones, and without the check
// `skipped_step`. f gets the values that the call passes.
template <class F>
bool is_near(lua_State* L, const GuardProgram& p, const CallValues& call, int tables, F f, int skipped_step = -1) {
  const std::vector<Tensor> tensors = tensors_of(L, p, call, tables);
  GuardProgram loose = p;
  for (size_t i = 0; i < tensors.size(); i++) {
    TensorSpec& spec = loose.tensors[i];
    if (!tensors[i] || spec.sizes.size() != tensors[i]->sizes.size()) continue;
    for (size_t d = 0; d < spec.sizes.size(); d++) {
      spec.sizes[d] = tensors[i]->sizes[d].hint, spec.strides[d] = tensors[i]->strides[d].hint;
    }
    spec.contiguous = false;
  }
  loose.steps.clear();
  const auto is_list = [&](const GuardStep& keys) {
    return std::any_of(p.steps.begin(), p.steps.end(),
                       [&](const GuardStep& s) { return s.op == GuardOp::kLengthCheck && s.a == keys.a; });
  };
  for (size_t i = 0; i < p.steps.size(); i++) {
    GuardStep s = p.steps[i];
    if (s.op == GuardOp::kKeysCheck && is_list(s)) continue;
    if (int(i) != skipped_step && loosen(L, s, tables)) loose.steps.push_back(s);
  }
  GuardValues values;
  const int top = lua_gettop(L);
  const bool runs = run_guards(L, loose, call, tables, &values) < 0;
  if (runs) f(values, tensors);
  lua_settop(L, top);
  return runs;
}

void note_value(ProtoPoint& point, const std::string& source, std::string value) {
  constexpr size_t kKnown = 8;
  auto& values = point.changing_values[source];
  if (values.size() < kKnown) values.insert(std::move(value));
}

// Marks a dim. Where it changes in two elements of a list, it will in the others.
void learn_size(ProtoPoint& point, const std::string& tensor, int dim) {
  point.dynamic_dims[tensor].insert(dim);
  const std::string elements = elements_text(tensor);
  if (elements.empty()) return;
  const auto is_other = [&](const auto& known) {
    return known.first != tensor && known.second.count(dim) > 0 && elements_text(known.first) == elements;
  };
  if (std::any_of(point.dynamic_dims.begin(), point.dynamic_dims.end(), is_other))
    point.dynamic_dims[elements].insert(dim);
}

// Marks dims whose size differs from the spec, so that the next capture makes them symbols, sizes 0 and 1 included if
// the call has one. A loop that such a size bounds need not be unrolled twice.
void learn_sizes(ProtoPoint& point, const GuardProgram& p, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < p.tensors.size(); i++) {
    const TensorSpec& spec = p.tensors[i];
    if (!tensors[i] || !p.tensor_sources[i] || spec.sizes.size() != tensors[i]->sizes.size()) continue;
    for (size_t d = 0; d < spec.sizes.size(); d++) {
      const int64_t size = tensors[i]->sizes[d].hint;
      if (size != spec.sizes[d] && size < kSymbolicSizes.low) {
        point.small_sizes = true;
        note_value(point, size_name(p.tensor_sources[i]->text, int(d)), std::to_string(size));
      }
      if (spec.sizes[d] < 0 || spec.sizes[d] == size) continue;
      learn_size(point, p.tensor_sources[i]->text, int(d));
    }
  }
}

// Runs the steps before the one that failed, which hold. f gets the values that they load.
template <class F>
void with_values(lua_State* L, const GuardProgram& p, int failed, const CallValues& call, int tables, F f) {
  GuardProgram until = p;
  until.steps.resize(size_t(failed));
  GuardValues values;
  const int top = lua_gettop(L);
  if (run_guards(L, until, call, tables, &values) < 0) f(values);
  lua_settop(L, top);
}

// If another closure of the same prototype came, makes the next entry accept any. Continues with the checks of
// functions behind the one that failed.
void learn_functions(lua_State* L, ProtoPoint& point, GuardProgram p, int failed, const CallValues& call, int tables) {
  while (failed >= 0) {
    GuardStep& s = p.steps[size_t(failed)];
    if (s.op != GuardOp::kIdentityCheck || !s.prototype) return;
    bool is_closure = false;
    with_values(L, p, failed, call, tables, [&](const GuardValues& values) {
      const int at = values.base + s.a;
      is_closure = lua_isfunction(L, at) && prototype_number(L, at) == s.prototype;
    });
    if (!is_closure) return;
    point.loose_functions.insert(s.source->text);
    s.op = GuardOp::kPrototypeCheck, s.index = s.prototype;
    GuardValues values;
    const int top = lua_gettop(L);
    failed = run_guards(L, p, call, tables, &values);
    lua_settop(L, top);
  }
}

// Learns that a constant number or string has changed. A whole number becomes an integer symbol of the next capture.
void learn_value(lua_State* L, ProtoPoint& point, const GuardStep& s, const GuardValues& values, int constants) {
  lua_rawgeti(L, constants, s.index);
  const int type = lua_type(L, -1);
  lua_pop(L, 1);
  const bool plain = type == LUA_TNUMBER || type == LUA_TSTRING;
  if (!plain || lua_type(L, values.base + s.a) != type) return;
  lua_pushvalue(L, values.base + s.a);
  size_t n = 0;
  const char* text = lua_tolstring(L, -1, &n);
  note_value(point, s.source->text, std::string(text, n));
  lua_pop(L, 1);
}

// Learns about lists: that a list ended elsewhere; that a list which is read at a changing place has another length;
// that a number read at such a place has changed.
void learn_places(lua_State* L, ProtoPoint& point, const GuardStep& s, const GuardValues& values, int constants) {
  const Source* from = s.source;
  if (!from) return;
  const bool is_position = from->kind == SourceKind::kField && s.a >= 0;
  if (is_position && (s.op == GuardOp::kNilCheck) != bool(lua_isnil(L, values.base + s.a))) {
    lua_rawgeti(L, constants, from->index);
    if (lua_type(L, -1) == LUA_TNUMBER) note_value(point, "#" + from->base->text, str(lua_tonumber(L, -1)));
    lua_pop(L, 1);
  }
  while (from && from->kind != SourceKind::kFieldBy) from = from->base;
  if (from && compares_constant(s.op)) learn_value(L, point, s, values, constants);
  if (from && s.op == GuardOp::kLengthCheck && lua_istable(L, values.base + s.a))
    note_value(point, "#" + s.source->text, str(lua_objlen(L, values.base + s.a)));
}

// Calls f for the numbers and sizes in a relation. Chains of expressions share parts; those marked in `seen` are
// skipped.
template <class F>
void each_leaf(const SymbolProgram& symbols, const SymGuard& g, std::vector<bool>& seen, F f) {
  std::vector<int> stack;
  const auto visit = [&](int at) {
    if (!seen[size_t(at)]) stack.push_back(at), seen[size_t(at)] = true;
  };
  visit(g.a);
  if (arity(g.cmp) > 1) visit(g.b);
  while (!stack.empty()) {
    const SymExpr& e = symbols[stack.back()];
    stack.pop_back();
    if (e.op == SymOp::kScalarInput || e.op == SymOp::kSize) f(e);
    if (arity(e.op) > 0) visit(e.a);
    if (arity(e.op) > 1) visit(e.b);
  }
}

// Learns from the relations that do not hold. If a relation pinned numbers and sizes to a value, these have changed.
// That is learned only if relations are the step that failed (`failed`). If a comparison had another outcome, it learns
// that about its numbers and sizes, because loops need to know it.
void learn_related(ProtoPoint& point, const GuardProgram& p, GuardValues& values, bool failed) {
  int first = 0;
  p.symbols.run(values.tensors, values.scalars, values.symbols, &first);
  std::vector<bool> pinned(p.symbols.size()), compared(p.symbols.size());
  for (const SymGuard& g : p.symbols.guards()) {
    if (arity(g.cmp) < 2 || p.symbols.holds(g, values.symbols)) continue;
    const bool pins = g.outcome && (g.cmp == SymCmp::kEq || g.cmp == SymCmp::kSame);
    if (pins && !failed) continue;
    const auto name = [&](const std::string& number) { return pins ? number : compared_name(number); };
    each_leaf(p.symbols, g, pins ? pinned : compared, [&](const SymExpr& e) {
      if (e.op == SymOp::kScalarInput) {
        note_value(point, name(p.scalar_sources[size_t(e.a)]->text), str(values.scalars[size_t(e.a)]));
        return;
      }
      const std::string& tensor = p.tensor_sources[size_t(e.a)]->text;
      if (pins) point.dynamic_dims[tensor].insert(e.b);
      const int64_t size = values.tensors[size_t(e.a)]->sizes[size_t(e.b)].hint;
      note_value(point, name(size_name(tensor, e.b)), str(size));
    });
  }
}

// Learns the other numbers, sizes and lengths of the call that have changed, so that one miss teaches all of them.
void learn_others(lua_State* L, ProtoPoint& point, const GuardProgram& p, const CallValues& call, int tables) {
  is_near(L, p, call, tables, [&](GuardValues& values, const auto& tensors) {
    learn_sizes(point, p, tensors);
    if (!p.symbols.empty()) learn_related(point, p, values, false);
    for (const GuardStep& s : p.steps) {
      const auto length = s.op == GuardOp::kLengthCheck ? int64_t(lua_objlen(L, values.base + s.a)) : s.index;
      if (length != s.index) note_value(point, "#" + s.source->text, str(length));
      if (!compares_constant(s.op)) continue;
      lua_rawgeti(L, tables, s.index);
      const bool is = lua_rawequal(L, -1, values.base + s.a);
      lua_pop(L, 1);
      if (!is) learn_value(L, point, s, values, tables);
    }
  });
}

// Returns whether the path of the source contains a number or a key that the program computes.
bool is_picked(lua_State* L, const Source* s, int constants) {
  for (; s && s->kind != SourceKind::kFieldBy; s = s->base) {
    if (s->kind != SourceKind::kField) continue;
    lua_rawgeti(L, constants, s->index);
    const bool number = lua_type(L, -1) == LUA_TNUMBER;
    lua_pop(L, 1);
    if (number) return true;
  }
  return s != nullptr;
}

// For a length that changed, or a value that was or was not nil, at a place picked by a number: learns that the number
// has changed. What stands at one place says nothing about other places.
void learn_picked(lua_State* L, ProtoPoint& point, const GuardProgram& p, int failed, const CallValues& call,
                  int tables) {
  if (p.symbols.empty()) return;
  is_near(
      L, p, call, tables, [&](GuardValues& values, const auto&) { learn_related(point, p, values, true); }, failed);
}

int level_of(const ProtoPoint& point, const Source* s) {
  while (s && s->base) s = s->base;
  if (!s || s->kind != SourceKind::kArg) return 0;
  return int(std::upper_bound(point.firsts.begin(), point.firsts.end(), s->index) - point.firsts.begin());
}

// Returns the level of the outermost frame whose numbers and sizes are read by the relations that fail.
int level_of_relations(const ProtoPoint& point, const GuardProgram& p, GuardValues& values) {
  int first = 0, level = 0;
  p.symbols.run(values.tensors, values.scalars, values.symbols, &first);
  std::vector<bool> seen(p.symbols.size());
  for (const SymGuard& g : p.symbols.guards()) {
    if (p.symbols.holds(g, values.symbols)) continue;
    each_leaf(p.symbols, g, seen, [&](const SymExpr& e) {
      const auto& sources = e.op == SymOp::kSize ? p.tensor_sources : p.scalar_sources;
      level = std::max(level, level_of(point, sources[size_t(e.a)]));
    });
  }
  return level;
}

int level_of(const ProtoPoint& point, const GuardProgram& p, const GuardStep& s, GuardValues& values) {
  return s.op == GuardOp::kSymbolsCheck ? level_of_relations(point, p, values) : level_of(point, s.source);
}

// The entries of a point that run something, and for each the guard step that fails. Guards run once for a call.
class FailedSteps {
 public:
  FailedSteps(lua_State* L, const ProtoPoint& point, const CallValues& call) : L_(L), point_(point), call_(call) {}

  // Calls f(miss) for each entry until it returns false. miss.step < 0: no step fails.
  template <class F>
  void each(F f) {
    const int top = lua_gettop(L_), tables = top + 1;
    size_t i = 0;
    for (const std::shared_ptr<Entry>& e : point_.entries) {
      if (e->decline) continue;
      lua_rawgeti(L_, LUA_REGISTRYINDEX, e->constants);
      lua_rawgeti(L_, LUA_REGISTRYINDEX, e->weak);
      if (i == steps_.size()) {
        GuardValues values;
        steps_.push_back(run_guards(L_, e->guards, call_, tables, &values));
        lua_settop(L_, tables + 1);
      }
      const bool goes_on = f(Miss{*e, steps_[i++], tables});
      lua_settop(L_, top);
      if (!goes_on) return;
    }
  }

 private:
  lua_State* const L_;
  const ProtoPoint& point_;
  const CallValues& call_;
  std::vector<int> steps_;
};

// Returns how many calls up the outermost frame is that differs from an entry's: loops of frames above add paths there.
int furthest_level(lua_State* L, const ProtoPoint& point, FailedSteps& failed, const CallValues& call) {
  int level = point.missed_level;
  failed.each([&](const Miss& miss) {
    if (miss.step < 0) return true;
    const GuardProgram& p = miss.entry.guards;
    with_values(L, p, miss.step, call, miss.tables, [&](GuardValues& found) {
      level = std::max(level, level_of(point, p, p.steps[size_t(miss.step)], found));
    });
    return true;
  });
  return level;
}

// Returns the number of lessons that misses have taught.
size_t lessons(const ProtoPoint& point) {
  size_t n = point.changing_values.size() + point.loose_functions.size();
  for (const auto& [source, dims] : point.dynamic_dims) n += dims.size();
  return n;
}

void log_recompile(const CompiledProto& compiled, const Recompile& r) {
  if (!log_wanted("recompiles")) return;
  // Modes have no place where they are read.
  log_text("recompiles", str(compiled.name, ": ", r.source, r.source.empty() ? "" : ": ", r.kind, " was ", r.old_text,
                             ", is ", r.new_text, " (read at ", r.file ? r.file : "?", ":", r.line, ")"));
}

// The unit is the time to check one entry (kAskMs). kAskedAtMost: a tree checks fewer entries. kSavedByOp: the least
// measured saving of an op. kMaxWorth: bounds the worth of a point on both sides, so that it soon adapts to other
// calls.
constexpr int kAskedAtMost = 8, kSavedByOp = 6, kOpsAtMost = 64, kMaxWorth = 256;
// Bytes that memory transfers in that time for an op that passes its result on through memory. All ops of a graph but
// one may have it in registers.
constexpr int64_t kPassedOn = 512;

int passed_on(const Entry& entry, const GuardTensors& inputs) {
  int64_t most = 0;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (!inputs[i]) continue;  // a memory, found by the run
    int64_t n = 1;
    for (const SymInt& size : inputs[i]->sizes) n *= size.hint;
    most = std::max(most, bytes_of(inputs[i]->dtype, n));
  }
  const int ops = int(std::min(entry.ops, size_t(kOpsAtMost)));
  return std::max(ops - 1, 0) * int(std::min<int64_t>(most / kPassedOn, kMaxWorth));
}

int saved_by(const Entry& entry, const GuardTensors& inputs) {
  return kSavedByOp * int(std::min(entry.ops, size_t(kOpsAtMost))) + passed_on(entry, inputs);
}

// Counts a miss at the limit. If entries have not paid off for thousands of calls, the point becomes dead.
void note_late_miss(ProtoPoint& point, CompiledProto& compiled) {
  constexpr int kMaxMisses = 288;
  const int asked = int(std::min(point.entries.size(), size_t(kAskedAtMost)));
  point.worth = std::max(point.worth - asked, -kMaxWorth);
  if (++point.misses < kMaxMisses) return;
  point.dead = compiled.changed = true;
}

// Makes each function that the point's code calls for more than a few ops a frame of its own, once the point has
// reached its limit. The function has entries for its own paths. So the numbers of paths are added, not multiplied.
bool part_calls(CompiledProto& compiled, ProtoPoint& point) {
  constexpr size_t kFewOps = 4;
  if (compiled.automatic || compiled.options.fullgraph || !point.firsts.empty()) return false;
  const size_t known = compiled.parted_calls.size();
  for (const auto& [pc, ops] : compiled.called_ops) {
    if (ops >= kFewOps) compiled.parted_calls.insert(pc);
  }
  return point.has_parted = compiled.parted_calls.size() > known;
}

// Describes a miss, and learns the sizes that differ if a tensor's size does.
Recompile describe_miss(const CaptureState& state, lua_State* L, const CompiledProto& compiled, ProtoPoint& point,
                        const Miss& miss, const CallValues& call) {
  const GuardProgram& p = miss.entry.guards;
  const GuardStep& s = p.steps[size_t(miss.step)];
  Recompile r;
  r.kind = kind_name(s.op);
  int relation = -1;
  r.new_text = describe_found(L, p, miss.step, call, miss.tables, &relation);
  const GuardRow row = relation >= 0 ? row_of_relation(p, size_t(relation)) : row_of(p, size_t(miss.step));
  r.source = row.source, r.old_text = row.expected, r.file = row.place.file, r.line = row.place.line;
  if (!is_tensor_check(s.op)) return r;
  const std::vector<Tensor> tensors = tensors_of(L, p, call, miss.tables);
  const Tensor& t = tensors[size_t(s.index)];
  TensorMiss differs;
  if (!t || matches(t, p.tensors[size_t(s.index)], &differs)) return r;
  r.kind = name(differs.fact), r.old_text = differs.old_text, r.new_text = differs.new_text;
  if (differs.fact == TensorFact::kSize) {
    learn_sizes(point, p, tensors);
    r.hint = size_hint(state.trace, L, compiled, t, p.tensors[size_t(s.index)], differs.dim);
  }
  return r;
}

// Learns from the step that failed, which `r` describes, and from other values that have changed. known: the number of
// lessons before the miss.
void learn(lua_State* L, ProtoPoint& point, const Miss& miss, const CallValues& call, const Recompile& r,
           size_t known) {
  const GuardProgram& p = miss.entry.guards;
  const GuardStep& s = p.steps[size_t(miss.step)];
  const int tables = miss.tables;
  learn_functions(L, point, p, miss.step, call, tables);
  const bool of_length = s.op == GuardOp::kLengthCheck;
  if (r.kind == name(TensorFact::kSize) || of_length || compares_constant(s.op))
    learn_others(L, point, p, call, tables);
  if ((of_length || s.op == GuardOp::kNilCheck) && is_picked(L, s.source, tables))
    learn_picked(L, point, p, miss.step, call, tables);
  with_values(L, p, miss.step, call, tables, [&](GuardValues& values) {
    if (compares_constant(s.op)) learn_value(L, point, s, values, tables);
    if (s.op == GuardOp::kCdataCheck) note_value(point, s.source->text, r.new_text);
    if (of_length) note_value(point, "#" + s.source->text, r.new_text);
    if (s.op == GuardOp::kSymbolsCheck) learn_related(point, p, values, true);
    learn_places(L, point, s, values, tables);
    if (point.firsts.empty() || lessons(point) > known) return;
    point.missed_level = level_of(point, p, s, values);
  });
}

// All modules of a program share a function that stdlib compiles for itself, so it may have more entries.
constexpr int kLibraryShare = 8;

bool handle_miss(CaptureState& state, lua_State* L, CompiledProto& compiled, ProtoPoint& point, const Miss& miss,
                 const CallValues& call) {
  Runtime& rt = runtime(L);
  const auto made = std::count_if(point.entries.begin(), point.entries.end(), [](auto& e) { return !e->decline; });
  const bool declines = miss.entry.decline;
  const bool limit = !declines && int(made) >= rt.config.recompile_limit * (compiled.for_library ? kLibraryShare : 1);
  if (limit && point.limit_reached) return note_late_miss(point, compiled), false;
  const size_t known = lessons(point);
  Recompile r = describe_miss(state, L, compiled, point, miss, call);
  learn(L, point, miss, call, r, known);
  if (r.hint.empty()) r.hint = recompile_hint(r.kind);
  if (declines) return point.entries.size() < 64;  // nothing was compiled, so this is no recompile
  if (limit && !part_calls(compiled, point)) {
    point.limit_reached = true;
    if (compiled.is_asked_for()) {
      fprintf(stderr,
              "lutra: %s: recompile_limit (%d) reached, running the original code; last: %s%s%s was %s, is %s\n",
              compiled.name.c_str(), rt.config.recompile_limit, r.source.c_str(), r.source.empty() ? "" : " ",
              r.kind.c_str(), r.old_text.c_str(), r.new_text.c_str());
    }
    return false;
  }
  counters_of(L, compiled).recompiles[r.kind]++;
  if (!compiled.for_library) log_recompile(compiled, r);
  compiled.recompiles->push_back(std::move(r));
  return true;
}

bool is_of_memory(const GuardProgram& p, int step) {
  const GuardStep& s = p.steps[size_t(step)];
  return s.op == GuardOp::kMemoryCheck ||
         (s.op == GuardOp::kTensorCheck && p.tensors[size_t(s.index)].in_shared_memory);
}

bool any_overlap(const GuardProgram& p, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); i++) {
    for (size_t k = 0; k < i; k++) {
      const bool both = p.tensors[i].in_shared_memory && p.tensors[k].in_shared_memory && tensors[i] && tensors[k];
      if (both && overlap(tensors[i], tensors[k]) != Overlap::kNone) return true;
    }
  }
  return false;
}

// Returns whether tensors of the call overlap as those of entries do, but at other offsets, which apparently change
// with each call. Offsets in shared memory are constants of a graph.
bool overlap_elsewhere(lua_State* L, const ProtoPoint& point, FailedSteps& failed, const CallValues& call) {
  constexpr int kMaxPlaces = 2;
  const auto has_places = [](const auto& e) {
    const auto& tensors = e->guards.tensors;
    return !e->decline && std::any_of(tensors.begin(), tensors.end(), [](auto& t) { return t.in_shared_memory; });
  };
  if (std::count_if(point.entries.begin(), point.entries.end(), has_places) < kMaxPlaces) return false;
  int places = 0;
  bool overlapping = false;
  failed.each([&](const Miss& miss) {
    const GuardProgram& p = miss.entry.guards;
    if (miss.step < 0 || !is_of_memory(p, miss.step)) return true;
    places++;
    overlapping = overlapping || any_overlap(p, tensors_of(L, p, call, miss.tables));
    return true;
  });
  return overlapping && places >= kMaxPlaces;
}

}  // namespace

// One of 32 calls checks entries, but not every 32nd: calls may have a rhythm.
bool skips_entries(ProtoPoint& point) {
  constexpr uint32_t kGoldenRatio = 0x9e3779b9, kPart = 1u << 27;
  return point.limit_reached && point.worth <= -kMaxWorth && ++point.skippable_calls * kGoldenRatio >= kPart;
}

double passed_on_ms(const Entry& entry, const GuardTensors& inputs) { return kAskMs * passed_on(entry, inputs); }

void note_hit(ProtoPoint& point, const Entry& entry, const GuardTensors& inputs) {
  if (entry.decline || (point.worth == kMaxWorth && point.misses == 0)) return;
  const int saved = saved_by(entry, inputs);
  point.worth = std::min(point.worth + saved, kMaxWorth);
  point.misses = std::max(point.misses - saved / kAskedAtMost, 0);
}

namespace {

bool handle_nearest_miss(CaptureState& state, lua_State* L, CompiledProto& compiled, ProtoPoint& point,
                         const Miss& miss, FailedSteps& others, const CallValues& call) {
  std::optional<bool> more;
  const auto tell = [&](const Miss& other) {
    const GuardProgram& p = other.entry.guards;
    if (other.step >= 0) {
      with_values(L, p, other.step, call, other.tables, [&](const GuardValues& found) {
        learn_places(L, point, p.steps[size_t(other.step)], found, other.tables);
      });
    }
    if (!is_near(L, p, call, other.tables, [](auto&, auto&) {})) return true;
    more = other.step < 0 || handle_miss(state, L, compiled, point, other, call);
    return false;
  };
  if (!point.limit_reached && point.entries.size() > 1) others.each(tell);
  return more ? *more : handle_miss(state, L, compiled, point, miss, call);
}

}  // namespace

bool note_miss(CaptureState& state, lua_State* L, CompiledProto& compiled, ProtoPoint& point, const Miss& miss,
               const CallValues& call) {
  FailedSteps all(L, point, call);
  if (!point.limit_reached && !compiled.options.fullgraph && overlap_elsewhere(L, point, all, call)) {
    const GuardPlace place = row_of(miss.entry.guards, size_t(miss.step)).place;
    const BreakAbout about{
        "", "keep the sizes and offsets of tensors that share memory: each other size or offset needs another graph"};
    if (!point.breaks_for_places) count_break(L, compiled, {Break::shared_memory, about, {place.file, place.line}});
    point.breaks_for_places = true;
    note_late_miss(point, compiled);
    return false;
  }
  const bool more = handle_nearest_miss(state, L, compiled, point, miss, all, call);
  if (point.missed_level > 0) point.missed_level = furthest_level(L, point, all, call);
  return more;
}

}  // namespace lutra
