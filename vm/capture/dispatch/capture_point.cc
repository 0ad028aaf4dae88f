// A capture at a point. It adds the segment's entry, exit, compiled prototypes of resumes and next points to the
// compiled prototype.
#include "vm/capture/dispatch/capture_point.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "jit/runtime/profile.h"
#include "ops/core/clock.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/dispatch/auto_budget.h"
#include "vm/capture/dispatch/callees.h"
#include "vm/capture/dispatch/entries.h"
#include "vm/capture/dispatch/profit.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/segment/begin.h"
#include "vm/capture/segment/capture.h"
#include "vm/host/runtime.h"
#include "vm/portal/editor.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

int exit_index(CompiledProto& compiled, ProtoPoint& point, const Exit& exit) {
  for (size_t i = 0; i < point.exits.size(); i++) {
    if (point.exits[i] == exit) return int(i);
  }
  point.exits.push_back(exit);
  compiled.changed = true;
  return int(point.exits.size()) - 1;
}

// Returns the options of a capture. If only lt.auto asked for the code, calls do not wait for the compiler, unless a
// setting says otherwise.
CaptureOptions options_of(lua_State* L, const CompiledProto& compiled) {
  CaptureOptions options = compiled.options;
  if (options.wait < 0 && compiled.automatic && !runtime(L).config.async) options.wait = 0;
  return options;
}

// Makes the values that are symbols at the end of the segment symbols at the point behind it.
void teach_symbols(const bc::Proto& proto, ProtoPoint& point, const SegmentLessons& lessons) {
  constexpr int kUnknown = 4;  // lengths of a list that grows by one in each round
  const std::vector<std::string> names = argument_names(proto, point.pc, point.args);
  for (size_t i = 0; i < names.size(); i++) {
    if (lessons.numbers.count(point.args[i])) point.changing_values[names[i]].insert("another number");
    for (int k = 0; k < kUnknown && lessons.lists.count(point.args[i]); k++) {
      point.changing_values["#" + names[i]].insert(str("another length ", k));
    }
    const auto sizes = lessons.sizes.find(point.args[i]);
    if (sizes == lessons.sizes.end()) continue;
    point.dynamic_dims[names[i]].insert(sizes->second.begin(), sizes->second.end());
  }
}

void teach_loops(const LuaCode& code, ProtoPoint& point, const ProtoPoint& from, const SegmentLessons& lessons) {
  for (const bc::Loop& l : code.loops()) {
    const auto variable = point.loop_variables.find(bc::expression_text(code.proto(), point.pc, l.base + 3));
    if (!l.contains(point.pc) || variable == point.loop_variables.end()) continue;
    const auto before = from.loop_variables.find(variable->first);
    const bool known = l.contains(from.pc) && before != from.loop_variables.end();
    variable->second = known ? before->second : !lessons.fractions.count(l.head);
  }
}

// Passes on what misses at this point have taught about the function's variables, so that its later points need no
// misses of their own. Points that lt.reset() has emptied are treated as new.
void teach_new_points(CompiledProto& compiled, const std::set<bc::Pc>& known, const ProtoPoint& from,
                      const SegmentLessons& lessons) {
  for (auto& [pc, point] : compiled.points) {
    if (&point == &from || (known.count(pc) && !point.entries.empty())) continue;
    const KeptLoops& kept = from.decisions.kept_loops;
    point.decisions.kept_loops.insert(kept.begin(), kept.end());
    note_variables(point, *compiled.code, &kept);
    point.dynamic_dims.insert(from.dynamic_dims.begin(), from.dynamic_dims.end());
    point.changing_values.insert(from.changing_values.begin(), from.changing_values.end());
    point.small_sizes = point.small_sizes || from.small_sizes;
    teach_symbols(compiled.code->proto(), point, lessons);
    teach_loops(*compiled.code, point, from, lessons);
  }
}

// Throws if the option 'dynamic' names dimensions that an argument does not have.
void check_dynamic_dims(lua_State* L, const CompiledProto& compiled, const ProtoPoint& point, const CallValues& call) {
  if (compiled.options.dynamic_dims.empty() || point.pc != 1) return;
  const std::vector<std::string> names = argument_names(compiled.code->proto(), point.pc, point.args);
  for (int i = 0; i < call.nargs; i++) {
    const std::string name = i < int(names.size()) ? names[size_t(i)] : vararg_name(i - call.nslots);
    const auto dims = compiled.options.dynamic_dims.find(name);
    const Tensor* t = dims == compiled.options.dynamic_dims.end() ? nullptr : to_tensor(L, i + 1);
    if (!t) continue;
    const int rank = int((*t)->dim());
    for (const int dim : dims->second) {
      if (dim >= -rank && dim < rank) continue;
      fail("compile: option 'dynamic': dim ", dim, " of ", name, " is out of range for ", rank, " dims");
    }
  }
}

// Keeps a callee that is parted from its caller from continuing in that caller. Otherwise the numbers of their paths
// would be multiplied again.
void stay_in_callee(CaptureState& state, lua_State* L, CompiledProto& compiled,
                    const std::vector<ResumeRequest>& resumes, const KeptLoops& kept) {
  if (resumes.size() != 1 || resumes[0].spec.pc != 1) return;
  for (auto& [pc, point] : resume_proto(state, L, compiled, resumes[0], kept)->points) point.stays = true;
}

std::shared_ptr<Entry> make_entry(CaptureState& state, lua_State* L, CompiledProto& compiled, ProtoPoint& point,
                                  const CallValues& call, const std::vector<Caller>& callers) {
  TraceOptions options{compiled.options.dynamic, point.dynamic_dims};
  check_dynamic_dims(L, compiled, point, call);
  for (const auto& [source, dims] : compiled.options.dynamic_dims) {
    options.dynamic_dims[source].insert(dims.begin(), dims.end());
  }
  for (const auto& [source, values] : point.changing_values) options.changing_values[source] = int(values.size());
  options.small_sizes = point.small_sizes;
  options.loose_functions = point.loose_functions;
  options.parted_calls = compiled.parted_calls;
  options.loop_variables = point.loop_variables;
  options.fullgraph = compiled.options.fullgraph;
  options.automatic = compiled.automatic;
  options.is_callee = compiled.callee;
  options.has_to_pay = has_to_pay(L, compiled);
  if (options.has_to_pay) {
    options.until_ms = thread_cpu_ms() + most_capture_ms(state, point);
    options.late_ms = state.automatic.late_ms;
  }
  options.leaves_calls = compiled.root ? compiled.root->leaves_calls : compiled.leaves_calls;
  options.enters_callees = point.enters_callees && !options.has_to_pay;
  const int varargs = callers.empty() ? 0 : callers[0].first - int(point.args.size());
  const bool asks = point.varargs && callers.empty();
  const SegmentPlace place{*compiled.code, point.pc, point.args, asks, varargs, places_of(callers)};
  CapturedSegment s = capture_segment(L, state.trace, place, call, options_of(L, compiled), options, point.decisions);
  CompiledProto& left = s.level ? *callers[s.level - 1].compiled : compiled;
  point.decisions.kept_loops = std::move(s.kept_loops);
  const KeptLoops& kept = point.decisions.kept_loops;
  for (const auto& [pc, ops] : s.called_ops) compiled.called_ops[pc] = std::max(compiled.called_ops[pc], ops);
  std::set<bc::Pc> known;
  for (const auto& [pc, p] : left.points) known.insert(pc);
  for (const auto& [pc, after] : s.next) {
    after ? add_points_after(left, pc, kept, point.entered_loop) : add_point(left, pc, kept, point.entered_loop);
  }
  if (&left == &compiled) teach_new_points(compiled, known, point, s.lessons);
  compile_callees(state, L, compiled, s.left_out);
  if (s.entry->decline) return s.entry;
  point.ops_at.insert(s.ops_at);
  for (size_t i = 0; i < s.finished.resumes.size(); i++) {
    s.entry->resumes[i].body =
        std::make_shared<ProtoBody>(resume_proto(state, L, compiled, s.finished.resumes[i], kept));
  }
  if (!options.parted_calls.empty()) stay_in_callee(state, L, compiled, s.finished.resumes, kept);
  const bc::Pc leaves = s.level ? callers[s.level - 1].point : point.pc;
  s.entry->exit = exit_index(left, left.points.at(leaves), s.finished.exit);
  if (s.level) s.entry->landing = leaves;
  return s.entry;
}

// Runs f, which captures or compiles. Returns false if the compiled prototype runs its original code from now on.
template <class F>
bool survives(lua_State* L, CompiledProto& compiled, const F& f) {
  try {
    f();
    return true;
  } catch (const NeedsData& e) {
    // The parts of an op cannot be one graph: lerp of GPU tensors by a number that lies on the CPU.
    keep_original(L, compiled, e.what());
  } catch (const JumpTooFar&) {
    keep_original(L, compiled, kTooLong);  // the resume prototype of a frame is too long
  } catch (const Error& e) {
    if (e.kind != ErrorKind::kInternal) throw;
    report_internal(L, compiled, e.what(), "");
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    report_internal(L, compiled, e.what(), "");
  }
  return false;
}

// Finishes entry i, whose compilation has ended with code or with an error. Rethrows the error.
void finish_entry(lua_State* L, ProtoPoint& point, size_t i) {
  Counters& c = runtime(L).counters;
  const std::shared_ptr<Entry> e = point.entries[i];
  forget_tree(point);
  point.compiling--;
  const double start = e->compiling->start_ms;
  const int64_t eager_calls = e->compiling->eager_calls;
  try {
    finish_compiling(L, *e);
  } catch (const std::exception&) {
    c.background_failed++;
    release_entry(L, *e);
    point.entries.erase(point.entries.begin() + long(i));
    throw;
  }
  c.background_ready++;
  c.kernels += int64_t(e->kernels);
  if (!log_wanted("async")) return;
  log_text("async", str(e->ops, " ops are compiled: ", e->compile_ms, " ms of work, taken over after ",
                        wall_ms() - start, " ms and ", eager_calls, " eager calls"));
}

void count(lua_State* L, CompiledProto& compiled, const std::shared_ptr<Entry>& e) {
  Counters& c = counters_of(L, compiled);
  if (e->why) count_break(L, compiled, e->why);
  if (e->decline || !e->segment) return;
  c.unique_graphs++;
  c.calls_captured += int64_t(e->ops);
  c.kernels += int64_t(e->kernels);
  compiled.log->push_back(e);
  if (e->compiling) {
    runtime(L).counters.background_started++;
    if (log_wanted("async")) log_text("async", str(compiled.name, ": compiling in the background, ", e->ops, " ops"));
  }
  if (log_wanted("guards")) log_text("guards", compiled.name + "\n" + print(e->guards));
}

}  // namespace

void ProtoBody::push_closure(lua_State* L, int index) {
  const std::shared_ptr<CompiledProto> body = compiled.lock();
  LUTRA_CHECK(body, "an entry of code that is gone");
  refresh(capture_state(L), L, body);
  make_rest(L, index, *body->patched);
}

void keep_original(lua_State* L, CompiledProto& compiled, const std::string& why) {
  if (compiled.options.fullgraph) fail("compile: fullgraph=true, but the graph breaks: ", why);
  compiled.failed = true;
  const LuaCode& code = *compiled.code;
  count_break(L, compiled, BreakReason(Break::no_graph, {why}, {code.file, int(code.proto().first_line)}));
}

void report_internal(lua_State* L, CompiledProto& compiled, const std::string& what, const std::string& graph) {
  runtime(L).counters.internal_errors++;
  compiled.failed = true;
  fprintf(stderr, "lutra: internal error in %s, which runs its original code from now on: %s\n%s%s",
          compiled.name.c_str(), what.c_str(), graph.c_str(), graph.empty() || graph.back() == '\n' ? "" : "\n");
}

Counters& counters_of(lua_State* L, const CompiledProto& compiled) {
  Runtime& rt = runtime(L);
  return compiled.for_library ? rt.library_counters : rt.counters;
}

void count_break(lua_State* L, CompiledProto& compiled, const BreakReason& why) {
  counters_of(L, compiled).graph_break[why.reason]++;
  compiled.breaks->push_back(why);
  if (compiled.for_library || !log_wanted("graph_breaks")) return;
  log_text("graph_breaks", str(place_of(why), ": ", describe(why)));
}

bool finish_entries(lua_State* L, CompiledProto& compiled, ProtoPoint& point) {
  if (point.compiling == 0) return true;
  return survives(L, compiled, [&] {
    for (size_t i = point.entries.size(); i-- > 0;) {
      const std::shared_ptr<Entry> e = point.entries[i];
      if (!e->compiling || !begins_compiling(L, capture_state(L), *e) || !e->compiling->work->done()) continue;
      const double ms = e->compiling->work->cpu_ms(), expected_ms = e->compiling->expected_ms;
      if (compiled.automatic) capture_state(L).automatic.compiled(e->ops, ms, expected_ms);
      finish_entry(L, point, i);
    }
  });
}

std::shared_ptr<Entry> capture_point(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled,
                                     ProtoPoint& point, const CallValues& call, const std::vector<Caller>& callers) {
  const CompileScope scope;
  const double start = wall_ms();
  const double cpu_start = thread_cpu_ms();
  Counters& counters = counters_of(L, *compiled);
  counters.frames_total++;
  std::shared_ptr<Entry> entry;
  try {
    if (!survives(L, *compiled, [&] { entry = make_entry(state, L, *compiled, point, call, callers); })) return nullptr;
  } catch (const TooExpensive&) {
    constexpr double kMore = 4;  // so all abandoned attempts together take a third of the time of the last one
    point.needs_ms = kMore * most_capture_ms(state, point);
    return nullptr;
  }
  entry->capture_ms = wall_ms() - start;
  point.spent_ms += thread_cpu_ms() - cpu_start;
  counters.frames_ok++;
  count(L, *compiled, entry);
  if (entry->decline) {
    // There is nothing to run here for any call, or captures found so a few times: the portal is removed.
    const auto& all = point.entries;
    const bool idle = std::all_of(all.begin(), all.end(), [](auto& e) { return e->decline; });
    const bool raised = compiled->options.fullgraph && entry->why.is_raised();
    if (entry->guards.steps.empty() || (!raised && ++point.idle_captures >= 3 && idle)) {
      point.dead = compiled->changed = true;
      if (!entry->guards.steps.empty()) leave_loop(*compiled, point);
      point.given_up = compiled->callee && !entry->guards.steps.empty();
      release_entry(L, *entry);
      return nullptr;
    }
  } else {
    point.idle_captures = 0;
  }
  point.entries.insert(point.entries.begin(), entry);
  point.compiling += entry->compiling != nullptr;
  if (entry->compiling && has_to_pay(L, *compiled)) state.automatic.pending = entry, state.automatic.refused = 0;
  return entry;
}

}  // namespace lutra
