// Captures one segment: makes attempts until a trace ends at a possible place, compiles the graph and makes an entry.
#include "vm/capture/segment/capture.h"

#include <algorithm>
#include <lua.hpp>

#include "jit/graph/unbacked.h"
#include "jit/repro/repro.h"
#include "ops/core/dense.h"
#include "ops/grad/saved_tensor.h"
#include "vm/capture/segment/begin.h"
#include "vm/capture/segment/call_ops.h"
#include "vm/capture/segment/graph_table.h"
#include "vm/capture/segment/lessons.h"
#include "vm/capture/segment/links.h"
#include "vm/capture/segment/outputs.h"
#include "vm/capture/trace/regions.h"
#include "vm/host/callable.h"
#include "vm/host/runtime.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

template <class F>
void each_recipe(Entry& e, F f) {
  for (Recipe& r : e.effects.results) f(r);
  for (FreshTable& t : e.effects.tables) {
    for (auto& [k, v] : t.items) f(k), f(v);
    f(t.metatable);
  }
  for (FreshClosure& c : e.effects.closures) {
    for (FreshVariable& v : c.variables) f(v.value);
  }
  for (FreshText& t : e.effects.texts) {
    f(t.function);
    for (Recipe& r : t.args) f(r);
  }
  for (TableWrite& w : e.effects.table_writes) f(w.table), f(w.key), f(w.value);
  for (MetatableWrite& w : e.effects.metatable_writes) f(w.table), f(w.metatable);
  for (UpvalueWrite& w : e.effects.upvalue_writes) f(w.function), f(w.value);
  for (SlotWrite& w : e.effects.slot_writes) f(w.value);
  for (GradWrite& w : e.effects.grad_writes) f(w.value);
  for (Recipe& r : e.effects.retained) f(r);
  for (LeftHook& h : e.effects.hooks) f(h.tensor), f(h.function);
  f(e.effects.draws.function), f(e.effects.draws.seed);
  f(e.effects.seed);
  for (ResumeFrame& r : e.resumes) f(r.function);
}

// Adds the guards on symbols as the last check of a program. results: the entry whose results also need symbols; null
// if they are handled later. end: the end of the trace, which is the place of the compiler's guards.
void finish_symbols(GuardProgram& p, const GuardPlace& end, SymEnv& env, Entry* results) {
  p.relation_places.resize(env.guards().size(), end);
  std::vector<GuardPlace> places;
  std::vector<int32_t> unbacked;  // the run itself checks their values
  for (size_t i = 0; i < p.scalar_sources.size(); i++) {
    if (!p.scalar_sources[i]) unbacked.push_back(int32_t(i));
  }
  for (size_t origin : p.symbols.add_guards(env, unbacked_levels(env.exprs(), unbacked)))
    places.push_back(p.relation_places[origin]);
  p.relation_places = std::move(places);
  if (results) {
    each_recipe(*results, [&](Recipe& r) {
      if (r.kind == Recipe::kSymbol) r.index = p.symbols.need(env, r.index);
    });
  }
  if (p.symbols.empty()) return;
  GuardStep step;
  step.op = GuardOp::kSymbolsCheck;
  p.steps.push_back(step);
  p.expected.push_back("");
}

// Returns whether the last writes of tables restore the old values.
bool writes_back(const Trace& t) {
  const auto as_before = [](const TableEntry& e) {
    return e.before && (e.before == e.value || (e.before->kind == VarKind::kNil && e.value->kind == VarKind::kNil));
  };
  return std::all_of(t.written_tables.begin(), t.written_tables.end(), [&](const Table* table) {
    return std::all_of(table->log.begin(), table->log.end(), [&](const Key& id) {
      const TableEntry& e = table->entries.at(id);
      return !e.written || as_before(e);
    });
  });
}

// Removes the check of symbols. The graph that includes this one adds the same guards on its own symbols.
void drop_symbols_check(GuardProgram& p) {
  if (p.steps.empty() || p.steps.back().op != GuardOp::kSymbolsCheck) return;
  p.steps.pop_back(), p.expected.pop_back();
}

// Removes type checks that a later, stronger check of the same value implies.
void drop_implied(GuardProgram& p) {
  const auto strong = [](GuardOp op) {
    return op == GuardOp::kNumberCheck || op == GuardOp::kValueCheck || op == GuardOp::kFieldCheck ||
           op == GuardOp::kGlobalCheck || op == GuardOp::kUpvalueCheck || op == GuardOp::kIdentityCheck ||
           op == GuardOp::kCdataCheck;
  };
  constexpr size_t kNone = ~size_t{0};
  std::vector<size_t> next(size_t(p.registers), kNone);  // next step that reads the register
  std::vector<bool> implied(p.steps.size());
  for (size_t i = p.steps.size(); i-- > 0;) {
    const GuardStep& s = p.steps[i];
    if (s.op == GuardOp::kGradLoad || s.op == GuardOp::kGradNilCheck || s.op == GuardOp::kGradTensorCheck) {
      continue;  // their operands are tensor inputs
    }
    if (s.op == GuardOp::kTypeCheck && s.index != LUA_TTABLE && next[size_t(s.a)] != kNone) {
      const GuardStep& later = p.steps[next[size_t(s.a)]];
      implied[i] = later.a == s.a && strong(later.op);
    }
    if (implied[i]) continue;
    if (s.a >= 0) next[size_t(s.a)] = i;
    if (s.b >= 0) next[size_t(s.b)] = i;
  }
  size_t kept = 0;
  for (size_t i = 0; i < p.steps.size(); i++) {
    if (implied[i]) continue;
    p.steps[kept] = p.steps[i];
    if (kept != i) p.expected[kept] = std::move(p.expected[i]);
    kept++;
  }
  p.steps.resize(kept);
  p.expected.resize(kept);
}

bool is_waited_for(lua_State* L, const CaptureOptions& options) {
  if (options.backend_function || options.backend != "native") return true;  // there is no code to compile
  return options.wait < 0 ? !runtime(L).config.async.value_or(false) : options.wait != 0;
}

CompileOptions compile_options(lua_State* L, const CaptureOptions& options, const GuardPlace& start) {
  CompileOptions o;
  o.background = !is_waited_for(L, options);
  o.backend = options.backend_function ? "eager" : options.backend;
  o.kept = true;
  o.autotune = options.autotune;
  o.disabled_passes = runtime(L).config.passes_off;
  o.memory_budget = runtime(L).config.activation_memory_budget;
  o.random_cut = uint64_t(runtime(L).config.random_cut);
  if (start.file) o.about = str(start.file, ":", start.line);
  o.failed = keep_failure;
  o.verify = runtime(L).verify;
  if (*o.verify > 0) o.watch = watch_runs;
  o.wanted = [](const char* stage) { return log_wanted(stage); };
  o.log = [](const char* stage, const std::string& text) { log_text(stage, text); };
  return o;
}

// Calls backend = function(graph). Its result is called instead of compiled code; with nil or the graph itself, the
// graph runs eagerly.
void ask_backend(lua_State* L, int function, Entry& e) {
  push_graph(L, e);
  lua_rawgeti(L, LUA_REGISTRYINDEX, function);
  lua_pushvalue(L, -2);
  lua_call(L, 1, 1);
  if (lua_isnil(L, -1) || lua_rawequal(L, -1, -2)) {
    lua_pop(L, 2);
    return;
  }
  if (!can_be_called(L, -1)) {
    fail("compile: the backend must return a function, nil or its graph, not a ", luaL_typename(L, -1));
  }
  e.callable = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pop(L, 1);
}

void note_compiled(Entry& e) {
  const Compiled& compiled = e.segment->forward();
  e.graph_text = e.segment->text();
  e.kept_bytes = e.segment->kept_bytes();
  e.kernels = compiled.kernels;
  e.compile_ms = compiled.compile_ms;
  for (const Compiled::Stage& s : compiled.stages) {
    const std::string_view name = s.name;
    const bool plans = name == "lower" || name == "schedule";
    (plans ? e.schedule_ms : name == "codegen" ? e.codegen_ms : e.passes_ms) += s.ms;
  }
}

void compile_entry(Trace& t, const CaptureOptions& wanted, Entry& e) {
  if (t.graph->nodes.empty() && t.graph->outputs.empty()) {  // the entry only resumes a callee
    t.close();
    return finish_symbols(t.program, t.place(), *t.graph->env, &e);
  }
  std::vector<Edge> sources = input_edges(t);
  const bool differentiable = sort_outputs(t, e, sources);
  std::vector<Edge> leaves;
  if (differentiable && !wanted.backend_function) leaves = keep_leaves(t, e);
  find_view_outputs(t, e);
  t.close();
  Graph& g = *t.graph;
  g.renumber();
  e.ops = g.nodes.size();
  for (const auto& n : g.nodes) e.op_names.push_back(name(n->op));
  e.outputs = g.outputs.size();
  if (wanted.backend_function) {
    e.graph_text = print(g);
    ask_backend(t.L, wanted.backend_function, e);
  }
  const std::shared_ptr<SymEnv> env = g.env;
  CompileOptions options = compile_options(t.L, wanted, t.program.start);
  options.late_ms = t.options.late_ms;
  if (options.watch) e.guard_text = std::make_shared<std::string>();
  options.guards = e.guard_text;
  const GuardPlace end = t.place();
  std::vector<Tensor> constants = constants_of(g);
  e.plain_checkpoints = t.plain_checkpoints;
  sources.resize(g.inputs.size());
  std::move(leaves.begin(), leaves.end(), std::back_inserter(sources));
  e.segment = make_segment(std::move(t.graph), sources, differentiable, options);
  for (size_t i = 0; i < t.program.tensors.size(); i++) {
    t.program.tensors[i].hooks = i >= t.inputs.size() || !t.inputs[i].unhooked;
  }
  if (options.background) {
    e.compiling.reset(new Compiling{t.program, end, env, std::move(constants)});
    return finish_symbols(t.program, end, *env, nullptr);
  }
  e.segment->ready();
  note_compiled(e);
  finish_symbols(t.program, end, *env, &e);
}

// Verifies that all objects exist to which guards and effects refer.
void check_places(lua_State* L, const Entry& e, int constants) {
  const GuardProgram& p = e.guards;
  if (const std::string wrong = verify(p); !wrong.empty()) fail_internal("guards: ", wrong, "\n", print(p));
  const EffectPlaces places = {p.tensors.size(), e.outputs,       size_t(p.registers), lua_objlen(L, constants) + 1,
                               p.symbols.size(), e.resumes.size()};
  const std::string wrong = verify(e.effects, places);
  if (!wrong.empty()) fail_internal("effects: ", wrong, "\n", print(e.effects));
  if (!log_wanted("effects")) return;
  log_text("effects", str(p.start.file ? p.start.file : "?", ":", p.start.line, "\n", print(e.effects)));
}

// Stores the final guards. Runs on the thread of the Lua state.
void keep_guards(lua_State* L, Entry& e, GuardProgram program, int constants, int weak) {
  drop_implied(program);
  e.guards = std::move(program);
  const std::vector<const Source*>& sources = e.guards.tensor_sources;
  e.takes_constants = std::find(sources.begin(), sources.end(), nullptr) != sources.end();
  if (e.compiling) return;
  check_places(L, e, constants);
  if (e.guard_text) *e.guard_text = print(e.guards);
  e.native = make_guards(L, e.guards, constants, weak);
}

// Throws the error of fullgraph, at the break's place, not at the compiled call.
[[noreturn]] void fail_fullgraph(const BreakReason& why) {
  const std::string place = why.place.file ? str(place_of(why), ": ") : "";
  throw PlacedError(str(place, "compile: fullgraph=true, but the graph breaks: ", describe(why)));
}

struct SegmentCapture {
  lua_State* L;
  TraceState& state;
  const SegmentPlace& place;
  const CallValues& call;
  const CaptureOptions& wanted;
  const TraceOptions& options;
  TraceDecisions decisions;
  CapturedSegment made{};
  bool whole = false;      // its results are inspected
  BreakReason loop_why{};  // why the first loop was not unrolled

  // Handles a break within a branch or the body of a loop, or in stdlib/control between them: the control flow is
  // ordinary Lua when the trace is repeated.
  bool refused_region(const Trace& t, const std::string& why) {
    if (t.regions.empty() && !is_in_control(t)) return false;
    const ControlPlace place = t.regions.empty() ? control_place(t) : t.regions.back()->place;
    const std::string reason = t.regions.empty() ? why : t.regions.back()->reason(why);
    return decisions.plain_control.emplace(place, reason).second || !t.regions.empty();
  }

  // Returns the number of frames above in which the trace may continue. The last one must have exits.
  size_t callers() const {
    size_t n = std::min(decisions.callers, place.callers.size());
    while (n > 0 && !place.callers[n - 1].has_exits) n--;
    return n;
  }

  // Runs the trace and stores its end. Returns false if it must be repeated.
  bool trace(Trace& t, SegmentEnd& end) {
    if (!interpret(t, end)) return false;
    if (end.kind == SegmentEnd::kReturn || made.level == 0 || place.callers[made.level - 1].has_exits) return true;
    decisions.callers = made.level - 1;
    decisions.stop_step = 0;
    return false;
  }

  bool interpret(Trace& t, SegmentEnd& end) {
    made.level = 0;
    try {
      t.arguments = call.nargs;
      Frame& first = first_frame(t, place, call);
      while (!first.done) {
        if (t.graph->nodes.empty()) made.ops_at = first.pc;
        t.step(first);
      }
      if (t.graph->nodes.empty()) made.ops_at = 0;
      end.results = t.run(first);
      while (made.level < callers()) {
        Frame& f = enter_caller(t, place.callers[made.level], made.level + 1, end.results);
        made.level++;
        end.results = t.run(f);
      }
      for (size_t i = 0; whole && i < end.results.size(); i++) t.force(end.results[i]);
      end.kind = SegmentEnd::kReturn;
      return true;
    } catch (const GraphBreak& b) {
      if (refused_region(t, b.why.reason)) return false;
      if (b.dirty && t.frames.back()->step != decisions.stop_step) {
        decisions.stop_step = t.frames.back()->step;
        decisions.stop_reason = b.why;
        return false;
      }
      end.kind = SegmentEnd::kBreak;
      end.why = b.why;
    } catch (const LongLoop&) {
      if (refused_region(t, "a loop is too long to be unrolled")) return false;
      if (!keep_a_loop(t, decisions, true)) fail_internal("capture: a long loop is kept, but unrolled");
      decisions.stop_step = 0;
      return false;
    } catch (const LoopStop&) {
      if (refused_region(t, "a loop is not unrolled")) return false;
      end.kind = SegmentEnd::kLoop;
    } catch (const Restart&) {
      return false;
    }
    if (end.kind == SegmentEnd::kBreak && wanted.fullgraph && end.why.is_raised()) return true;
    if (keep_a_loop(t, decisions, false)) {
      if (!loop_why) loop_why = end.why;
      decisions.stop_step = 0;
      return false;
    }
    return true;
  }

  // Returns why the control flow that ends the segment is not part of the graph. The segment may end earlier, where
  // closures for the control flow are made.
  std::string control_hint(const Trace& t, const BreakReason& why) const {
    const auto refused = decisions.plain_control.find(control_place(t));
    if (refused != decisions.plain_control.end()) return str("it is no part of the graph: ", refused->second);
    if (std::string_view(why.kind()) != "closure" || decisions.plain_control.size() != 1) return "";
    return str("the control flow that it is made for is no part of the graph: ",
               decisions.plain_control.begin()->second);
  }

  // Adds the places where control goes after a loop: by its condition, which LuaJIT may let jump directly to an outer
  // loop's head, and by each break.
  void points_behind(const bc::Proto& proto, const bc::Loop& loop) {
    const auto inside = [&](bc::Pc pc) { return pc >= loop.head && pc <= loop.end; };
    for (bc::Pc pc = loop.head; pc <= loop.end; pc++) {
      for (const bc::Pc next : bc::successors(proto, pc)) {
        if (!inside(next)) made.next.push_back({next, false});
      }
    }
  }

  void next_points(Trace& t, const SegmentEnd& end) {
    if (end.kind == SegmentEnd::kReturn) return;
    made.lessons = lessons_of(t, end);
    if (made.finished.exit.resume.kind == Resume::Kind::kTailCall) return;  // the frame is gone
    Frame& f = *t.frames[0];
    if (const bc::Loop* loop = ending_loop(f, end)) {
      made.next.push_back({loop->first_body, false});
      if (loop->kind == bc::Loop::Kind::kLoop) {
        points_behind(f.code->proto(), *loop);
      } else {
        made.next.push_back({loop->end, true});
      }
    } else if (end.kind == SegmentEnd::kBreak || t.frames.size() > 1 || ends_at_comparison(f, end)) {
      made.next.push_back({f.pc, true});
    }
    // The body of a loop around a break is a segment of its own.
    for (const bc::Loop& l : f.code->loops()) {
      if (l.kind != bc::Loop::Kind::kLoop && f.pc >= l.head && f.pc <= l.end) made.next.push_back({l.end, true});
    }
  }

  // Makes traces until one ends well. `finish` accepts it, or throws Restart.
  template <class Finish>
  void attempt(const char* what, Finish finish) {
    const int top = lua_gettop(L);
    for (int i = 0; i < 200; i++) {
      lua_settop(L, top);
      if (auto* saves = dynamic_cast<FakeSaves*>(modes().watch.get())) saves->begin();
      Trace t(L, state, decisions, options);
      t.left_out = made.left_out;
      SegmentEnd end;
      if (!trace(t, end)) {
        if (t.budget.is_too_expensive()) throw TooExpensive{};
        continue;
      }
      t.ended = true;
      try {
        return finish(t, end);
      } catch (const Restart&) {
      }
    }
    fail_internal("capture: ", what, " finds no end");
  }

  enum class Verdict : uint8_t { kCompile, kDecline, kRaise };

  // Decides what to do with the segment. Also completes the reason for its end.
  Verdict judge(const Trace& t, SegmentEnd& end) const {
    // Without ops there is nothing to compile. But a callee that breaks is resumed, so that its rest is compiled. A
    // callee that Lua calls again and again must save more than its portal costs.
    constexpr size_t kPays = 3;
    const bool declines = t.graph->nodes.size() < (options.is_callee ? kPays : 1) &&
                          (!options.enters_callees || end.kind == SegmentEnd::kReturn || t.frames.size() == 1);
    // There is nothing to compile before a loop of a callee, which runs uncompiled. Report its reason here, since
    // nothing else does.
    if (end.kind == SegmentEnd::kLoop && declines && t.frames.size() > 1 && loop_why) {
      end.kind = SegmentEnd::kBreak;
      end.why = loop_why;
    }
    if (end.kind == SegmentEnd::kLoop && wanted.fullgraph && loop_why && !loop_why.is_raised())
      fail_fullgraph(loop_why);
    if (end.kind == SegmentEnd::kBreak) {
      if (std::string hint = control_hint(t, end.why); !hint.empty()) end.why.hint = hint;
      if (declines && t.frames.size() == 1 && !t.graph->nodes.empty())
        end.why.hint =
            str("fewer than ", kPays, " ops before it in a function that Lua calls: its portal would cost more");
      if (wanted.fullgraph && !end.why.is_raised()) fail_fullgraph(end.why);
      if (wanted.fullgraph) return Verdict::kRaise;
    }
    return declines ? Verdict::kDecline : Verdict::kCompile;
  }

  // Returns whether the segment ends before a loop that needs a number or a size that the segment has read from
  // elements. Then the loop's body reports no break, since it knows the value.
  bool needs_what_it_read(const Trace& t, const SegmentEnd& end) const {
    const Break why = loop_why.id;
    const bool has_read = !t.unbacked.empty() || !t.read_numbers.empty();
    return end.kind == SegmentEnd::kLoop && has_read &&
           (why == Break::needs_number || why == Break::needs_truth || why == Break::needs_size);
  }

  // Makes an entry that lets the original code run.
  void decline(Trace& t, const SegmentEnd& end, bool raises, Entry& entry) {
    entry.decline = true;
    made.finished = {};
    if (!raises) next_points(t, end);  // nothing after the error runs
    t.close();
    finish_symbols(t.program, t.place(), *t.graph->env, &entry);
  }

  // Starts the segment again, to end before the construct that the attempt could not handle.
  static void stop_before(bool& decision) {
    decision = true;
    throw Restart();
  }

  void compile(Trace& t, const SegmentEnd& end, Entry& entry) {
    TraceDecisions& d = decisions;
    const CallerPlace* caller = made.level ? &place.callers[made.level - 1] : nullptr;
    const Incoming incoming{caller ? caller->args : place.args, caller ? caller->first + 1 : 0};
    made.finished = finish_segment(t, incoming, end, entry);
    entry.level = int(made.level);
    if (!d.functions_outside && parts_functions(t)) stop_before(d.functions_outside);
    if (!d.sizes_outside && !t.unbacked.empty() && wanted.backend_function) stop_before(d.sizes_outside);
    // The history that a user's backend makes may not lead from one output to another.
    const bool hooks = !entry.effects.hooks.empty() || !entry.effects.retained.empty();
    if (!d.hooks_outside && hooks && wanted.backend_function) stop_before(d.hooks_outside);
    if (!d.leaves_outside && parts_leaves(t, input_edges(t), wanted.backend_function)) stop_before(d.leaves_outside);
    next_points(t, end);
    compile_entry(t, wanted, entry);
  }

  void make() {
    lua_newtable(L);
    made.left_out = lua_gettop(L);
    attempt("a segment", [this](Trace& t, SegmentEnd& end) {
      decide_open_sizes(t);
      auto entry = std::allocate_shared<Entry>(DenseAllocator<Entry>());
      const Verdict verdict = judge(t, end);
      if (end.kind == SegmentEnd::kBreak) entry->why = end.why;
      if (needs_what_it_read(t, end)) entry->why = loop_why;
      if (verdict == Verdict::kCompile)
        compile(t, end, *entry);
      else
        decline(t, end, verdict == Verdict::kRaise, *entry);
      keep(t, *entry);
      made.entry = std::move(entry);
    });
  }

  // Returns why a trace that did not return is not a graph.
  static std::string reason_of(const SegmentEnd& end) {
    if (end.kind != SegmentEnd::kBreak) return "a loop that is not unrolled";
    return str(end.why.reason, end.why.place.file ? " at " + place_of(end.why) : "");
  }

  void make_whole(WholeCall& whole) {
    attempt("a call", [&](Trace& t, const SegmentEnd& end) {
      if (end.kind != SegmentEnd::kReturn) {
        whole.raises = end.why.is_raised();
        return void(whole.why = reason_of(end));
      }
      auto entry = std::allocate_shared<Entry>(DenseAllocator<Entry>());
      finish_segment(t, {place.args, 0}, end, *entry);
      t.close();
      t.graph->renumber();
      entry->outputs = t.graph->outputs.size();
      if (writes_back(t)) entry->effects.table_writes.clear();
      for (TensorSpec& spec : t.program.tensors) spec.hooks = true;
      finish_symbols(t.program, t.place(), *t.graph->env, entry.get());
      drop_symbols_check(t.program);
      for (const auto& in : t.inputs) whole.inputs.push_back(in.real);
      whole.differentiates = t.backward_called;
      whole.graph = std::move(t.graph);
      keep(t, *entry);
      whole.entry = std::move(entry);
    });
  }

  void keep(Trace& t, Entry& e) {
    e.sources = std::make_unique<Sources>(std::move(t.sources));
    keep_guards(L, e, std::move(t.program), t.constants, t.weak);
    lua_pushvalue(L, t.constants);
    e.constants = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pushvalue(L, t.weak);
    e.weak = luaL_ref(L, LUA_REGISTRYINDEX);
    made.kept_loops = decisions.kept_loops;
    made.called_ops = std::move(t.called_ops);
    if (!e.compiling) return;
    e.compiling->work =
        std::make_unique<CompileLater>([segment = e.segment.get()] { segment->ready(); },
                                       options.has_to_pay ? CompileLater::kWhenTold : CompileLater::kAtOnce);
  }
};

}  // namespace

std::string place_of(const BreakReason& why) { return str(why.place.file ? why.place.file : "?", ":", why.place.line); }

std::string describe(const BreakReason& why) {
  std::string text = str(why.reason, " (", why.hint, ")");
  if (!why.chain.empty()) text += "; " + why.chain;
  const std::string line = source_line(why.place);
  if (!line.empty()) text += "; the line: " + line;
  return str(text, "; see ", anchor_of(why.id));
}

CapturedSegment capture_segment(lua_State* L, TraceState& state, const SegmentPlace& place, const CallValues& call,
                                const CaptureOptions& wanted, const TraceOptions& options,
                                const TraceDecisions& decisions) {
  SegmentCapture capture{L, state, place, call, wanted, options, decisions};
  capture.make();
  return std::move(capture.made);
}

WholeCall capture_whole(lua_State* L, TraceState& state, const SegmentPlace& place, const CallValues& call,
                        const std::map<int, std::set<int>>& dims, TraceOptions options) {
  CaptureOptions wanted;
  wanted.fullgraph = true;
  options.fullgraph = true;
  const std::vector<std::string> names = argument_names(place.code.proto(), place.pc, place.args);
  for (const auto& [argument, symbols] : dims) {
    const int rest = argument - int(place.code.proto().num_params);
    const auto slot = std::find(place.args.begin(), place.args.end(), unsigned(argument));
    if (rest >= 0) {
      options.dynamic_dims[str("select(", rest + 1, ", ...)")] = symbols;
    } else if (slot != place.args.end()) {
      options.dynamic_dims[names[size_t(slot - place.args.begin())]] = symbols;
    }
  }
  SegmentCapture capture{L, state, place, call, wanted, options, {}};
  capture.whole = true;
  WholeCall whole;
  capture.make_whole(whole);
  return whole;
}

void finish_compiling(lua_State* L, Entry& e) {
  const std::unique_ptr<Compiling> made = std::move(e.compiling);
  made->work->check();
  note_compiled(e);
  e.capture_ms += e.compile_ms;
  finish_symbols(made->guards, made->end, *made->env, &e);
  lua_rawgeti(L, LUA_REGISTRYINDEX, e.constants);
  lua_rawgeti(L, LUA_REGISTRYINDEX, e.weak);
  const int top = lua_gettop(L);
  keep_guards(L, e, std::move(made->guards), top - 1, top);
  lua_settop(L, top - 2);
}

void release_entry(lua_State* L, Entry& entry) {
  entry.compiling.reset();
  for (int* reference : {&entry.constants, &entry.weak, &entry.callable}) {
    if (*reference) luaL_unref(L, LUA_REGISTRYINDEX, *reference);
    *reference = 0;
  }
}

}  // namespace lutra
