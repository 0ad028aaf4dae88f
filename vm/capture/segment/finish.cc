// Makes an entry from a traced segment. Invariants:
// 1. Finishing specialises no values. It adds loads, and guards of symbols, of objects, variables and tensors that must
//    stay different, of memory (shared, overlapping), and of modes: grad mode, autocast, the current GPU and the
//    default device.
// 2. A frame that cannot be rebuilt (or a closure that cannot be made outside the trace) ends the segment earlier: at
//    the step of the call (or of the FNEW), in the outermost frame that can be rebuilt.
#include "vm/capture/segment/finish.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <lua.hpp>
#include <set>

#include "ops/grad/tape.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/segment/apart.h"
#include "vm/capture/segment/call_ops.h"
#include "vm/capture/segment/lessons.h"
#include "vm/capture/segment/links.h"
#include "vm/capture/segment/modes.h"
#include "vm/capture/segment/outputs.h"
#include "vm/capture/segment/run.h"
#include "vm/capture/segment/shared.h"
#include "vm/capture/trace/border.h"
#include "vm/capture/trace/child_path.h"
#include "vm/capture/trace/coroutines.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/unbacked_sizes.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

struct Finisher {
  Trace& t;
  const Incoming& incoming;
  const SegmentEnd& end;
  Entry& entry;
  Effects& left = entry.effects;
  Finished made{};
  Exit& exit = made.exit;
  std::map<const Table*, int> fresh;
  std::map<const Closure*, int> closures;
  std::vector<FrameShares> made_shares;            // by closure index: the shares with frames
  size_t known_closures = 0;                       // number of closures known when frames were made
  std::map<const Cell*, FreshVariable> variables;  // variables of closures, by the first closure that has them
  std::map<const MadeText*, int> made_texts;
  std::map<const Var*, int> numbers;           // indices among the texts
  std::deque<std::function<void()>> unfilled;  // deferred, since lists of tables may be arbitrarily long
  bool filling = false;
  bool leaves = false;  // leaves_real_frame
  std::map<const TensorImpl*, int> outputs;

  [[noreturn]] void stop_at(uint64_t step, const BreakReason& why) {
    if (t.decisions.stop_step == step)
      fail_internal("capture: a segment cannot end where it was told to: ", why.reason);
    t.decisions.stop_step = step;
    t.decisions.stop_reason = why;
    throw Restart();
  }

  // -- values

  Recipe tensor(const Tensor& fake) {
    auto in = t.input_of_fake.find(fake.get());
    if (in != t.input_of_fake.end()) return {Recipe::kTensorIn, in->second};
    auto [it, added] = outputs.emplace(fake.get(), int(t.graph->outputs.size()));
    if (added) t.graph->outputs.push_back(fake);
    return {Recipe::kTensorOut, it->second};
  }

  Recipe number(Var* v) {
    if (v->tensor) return {Recipe::kItem, tensor(v->tensor).index};
    if (v->source && !v->guarded) return {Recipe::kRegister, t.reg(v->source)};
    if (v->num.expr == 0) return {Recipe::kConstant, t.constant_slot(v)};
    if (is_unbacked(t, v->num.expr)) return {Recipe::kItem, tensor(unbacked_element(t, v->num)).index};
    return {Recipe::kSymbol, v->num.expr};  // its index is requested later
  }

  Recipe table(Table* table) {
    if (table->pin != 0) return {Recipe::kRegister, t.reg(table->source)};
    auto [it, added] = fresh.emplace(table, int(left.tables.size()));
    const int index = it->second;
    if (!added) return {Recipe::kTable, index};
    left.tables.emplace_back();
    fill_later([=, this] { fill(*table, index); });
    return {Recipe::kTable, index};
  }

  void fill_later(std::function<void()> f) {
    unfilled.push_back(std::move(f));
    if (filling) return;
    filling = true;
    for (; !unfilled.empty(); unfilled.pop_front()) unfilled.front()();
    filling = false;
  }

  // Returns the writes that determine the table's memory layout, in order, so that its order and length are the same as
  // in Lua.
  std::vector<std::pair<Recipe, Recipe>> writes(Table& table) {
    std::vector<std::pair<Recipe, Recipe>> out;
    for (size_t i = 0; i < table.writes.size(); i++) {
      const auto& [id, written] = table.writes[i];
      if (id.is_room()) {
        out.emplace_back(Recipe{}, value(t.number(id.n)));
        continue;
      }
      TableEntry& e = table.entries.at(id);
      if (table.maker && i < table.template_keys && e.value == written) continue;  // the same as in the template
      const Recipe k = value(e.key);
      const auto unknown = [](const Var* v) { return v->kind == VarKind::kNil || v->kind == VarKind::kLazy; };
      const bool passes = !unknown(written) && unknown(e.value);  // any non-nil value, until a later write
      out.emplace_back(k, passes ? Recipe{Recipe::kTrue} : value(unknown(written) ? written : e.value));
    }
    return out;
  }

  void fill(Table& table, int index) {
    FreshTable made{table.array_size, table.hash_size, {}, writes(table), {}};
    if (table.maker) {
      t.push_pin(table.maker);
      made.maker = {Recipe::kConstant, t.constant_slot_from_stack()};
    }
    if (table.metatable) made.metatable = value(table.metatable);
    left.tables[size_t(index)] = std::move(made);
  }

  bool returns() const { return end.kind == SegmentEnd::kReturn; }

  void share(size_t index, int result) {
    for (const Share& s : shares_with(made_shares[index], *t.frames[0], result)) exit.shares.push_back(s);
  }

  // Lets closures share variables of the frame once the frame has their values.
  void share_variables() {
    for (size_t i = 0; i < made_shares.size(); i++) {
      const size_t outside = leaves ? 0 : made_shares[i].count(t.frames[0]);
      LUTRA_CHECK(i < known_closures || made_shares[i].size() == outside, "a closure that a frame should have had");
      if (outside) share(i, result({Recipe::kClosure, int(i)}));
    }
    for (int at : exit.resume.args) {
      const Recipe r = left.results[size_t(at)];
      if (r.kind != Recipe::kResume || leaves) continue;
      const Recipe function = entry.resumes[size_t(r.index)].function;
      if (function.kind == Recipe::kClosure) share(size_t(function.index), at);
    }
  }

  // Returns the recipe of a closure that the trace has made.
  Recipe closure(Var* v) {
    Closure* c = v->closure;
    if (!v->builtin && c->env->kind == VarKind::kClosure) closure(c->env);  // is filled first
    auto [it, added] = closures.emplace(c, int(left.closures.size()));
    if (!added) return {Recipe::kClosure, it->second};
    if (v->builtin || !mirror::available(t.L)) stop_at(c->outer_step, reason(Break::kept_closure));
    if (const auto level = left_frame_of(t, *c)) {  // the trace must not leave its frame
      t.decisions.callers = *level;
      t.decisions.stop_step = 0;
      throw Restart();
    }
    if (has_closed_variable(t, *c)) stop_at(c->outer_step, reason(Break::closed_variables));
    auto shares = variables_of_frames(t, returns(), *c);
    if (!shares) stop_at(c->outer_step, reason(Break::kept_closure));
    if (!can_make_closures(c->code->proto())) stop_at(c->outer_step, reason(Break::kept_closure));
    const int index = it->second;
    left.closures.emplace_back();
    made_shares.push_back(std::move(*shares));
    fill_later([=, this] { fill(v, index); });
    return {Recipe::kClosure, index};
  }

  void fill(Var* v, int index) {
    FreshClosure made{value(around(v)), path_to(v), {}};
    const std::vector<bc::Upvalue>& shared = v->closure->code->proto().upvalues;
    for (size_t i = 0; i < shared.size(); i++) {
      if (!shared[i].local()) {
        made.variables.push_back({value(v->closure->env), int(shared[i].index()), {}});
        continue;
      }
      Cell* cell = v->closure->cells[i];
      if (is_shared(t, returns(), cell)) {
        made.variables.emplace_back();
        continue;
      }
      const auto [it, first] = variables.emplace(cell, FreshVariable{{Recipe::kClosure, index}, int(i), {}});
      made.variables.push_back(first ? FreshVariable{{}, 0, value(cell->value)} : it->second);
    }
    left.closures[size_t(index)] = std::move(made);
  }

  Recipe text(const MadeText* made) {
    const auto found = made_texts.find(made);
    if (found != made_texts.end()) return {Recipe::kText, found->second};
    FreshText text;
    if (made->function) text.function = value(made->function);
    for (Var* v : made->args) text.args.push_back(value(v));
    const int index = made_texts[made] = int(left.texts.size());
    left.texts.push_back(std::move(text));
    return {Recipe::kText, index};
  }

  // Returns the recipe of a 64-bit integer that the trace has computed. It is a new object in each run: v + 0, or 0 +
  // its symbol.
  Recipe computed(Var* v) {
    const auto [it, added] = numbers.emplace(v, int(left.texts.size()));
    if (!added) return {Recipe::kText, it->second};
    t.push_pin(v->pin);
    if (!luaL_getmetafield(t.L, -1, "__add")) fail_internal("capture: an integer that cannot be added to");
    FreshText made{constant_on_stack(), {}};
    if (v->num.expr) {  // 0 + the symbol
      luaL_getmetafield(t.L, -1, "__sub");
      lua_pushvalue(t.L, -2), lua_pushvalue(t.L, -3);
      lua_call(t.L, 2, 1);
      made.args = {constant_on_stack(), value(t.scalar(v->num))};
    } else {
      made.args = {{Recipe::kConstant, t.constant_slot(v)}, value(t.number(0))};
    }
    lua_pop(t.L, 1);
    left.texts.push_back(std::move(made));
    return {Recipe::kText, it->second};
  }

  [[noreturn]] void stop_before_coroutine(const Coroutine& kept) {
    const Coroutine& first = first_to_leave(t, kept);
    BreakReason why = first.why;
    if (end.why) why.hint = str("it is alive where the graph would end: ", end.why.reason);
    t.leave_out(first.body);
    stop_at(first.step, why);
  }

  Recipe value(Var* v) {
    if (const Coroutine* co = coroutine_of(t, v)) stop_before_coroutine(*co);
    switch (v->kind) {
      case VarKind::kLazy: return {Recipe::kRegister, t.reg(v->source)};
      case VarKind::kNil: return {};
      case VarKind::kBool:
        if (v->tensor) return {Recipe::kItem, tensor(v->tensor).index};
        return {v->b ? Recipe::kTrue : Recipe::kFalse};
      case VarKind::kNumber: return number(v);
      case VarKind::kString:
        if (v->text) return text(v->text);
        if (v->source && !v->guarded) return {Recipe::kRegister, t.reg(v->source)};
        return {Recipe::kConstant, t.constant_slot(v)};
      case VarKind::kTensor: return tensor(v->tensor);
      case VarKind::kTable: return table(v->table);
      case VarKind::kClosure: return closure(v);
      case VarKind::kBinding:
        push_method(t.L, v->binding->name);
        return {Recipe::kConstant, t.constant_slot_from_stack()};
      default:
        if (v->source) return {Recipe::kRegister, t.reg(v->source)};
        if (v->kind == VarKind::kObject && !v->fixed) return computed(v);
        return {Recipe::kConstant, t.constant_slot(v)};
    }
  }

  int result(const Recipe& r) {
    left.results.push_back(r);
    return int(left.results.size()) - 1;
  }

  // -- frames

  void write_slots(const bc::Slots& live) {
    Frame& f = *t.frames[0];
    for (unsigned s = 0; s < f.slots.size() && s < live.size(); s++) {
      if (!live[s]) continue;
      Var* v = s < f.cells.size() && f.cells[s] ? f.cells[s]->value : f.slots[s];
      if (!v || unchanged(v, s)) continue;
      left.results.push_back(value(v));
      exit.outs.push_back({s, int(left.results.size()) - 1});
    }
  }

  bool unchanged(Var* v, unsigned slot) const {
    if (!v->source || v->source->kind != SourceKind::kArg) return false;
    const auto at = size_t(v->source->index - incoming.first);
    return at < incoming.args.size() && incoming.args[at] == slot;
  }

  void append_arguments(const std::vector<Link>& links, size_t i, Var* handler, std::vector<Recipe>& args) {
    const Link& l = links[i];
    Frame& f = *l.frame;
    const bool last = i + 1 == links.size();
    const bool operands = last && takes_multres(bc::op(f.code->proto().code[f.pc]));
    const ResumeMode mode = last && !operands ? ResumeMode::kAt : ResumeMode::kAfterCall;
    std::vector<Recipe> rest;
    if (operands) {
      for (Var* v : call_operands(t, f)) rest.push_back(value(v));
    } else if (!last) {
      append_call(links, i + 1, rest);
    }
    const int num_args = rest.empty() ? 0 : int(rest.size()) - 1;
    push_function(f.function);
    const void* prototype = prototype_identity(t.L, lua_gettop(t.L));
    const LuaCode* code = i == 0 ? f.code : code_of(t.state, t.L, lua_gettop(t.L));
    lua_pop(t.L, 1);
    const std::vector<unsigned> slots = resume_slots(f.code->proto(), f.pc, mode);
    std::vector<Recipe> closures;
    ResumeSpec spec{f.pc, mode, num_args};
    spec.shares = shares_inside(f, slots.size(), rest, entry.resumes, made_shares, closures);
    spec.closures = int(closures.size());
    if (!has_room(f.code->proto(), spec)) stop_halfway(links);
    made.resumes.push_back({code, std::move(spec), prototype, last, i == 0});
    append_function({Recipe::kResume, int(entry.resumes.size())}, handler, args);
    entry.resumes.push_back({nullptr, value(f.function)});
    for (unsigned s : slots) {
      Var* v = s < f.cells.size() && f.cells[s] ? f.cells[s]->value : s < f.slots.size() ? f.slots[s] : nullptr;
      args.push_back(v ? value(v) : Recipe{});
    }
    args.insert(args.end(), rest.begin(), rest.end());
    args.insert(args.end(), closures.begin(), closures.end());
    for (Var* v : f.varargs) args.push_back(value(v));
  }

  // Finds all closures that outlive the trace. They must be known before frames are rebuilt, since these are passed the
  // closures that share their variables.
  void find_closures(const std::vector<Link>& links) {
    const size_t first = leaves ? 0 : 1;
    if (std::none_of(links.begin() + long(first), links.end(), [](const Link& l) { return may_share(*l.frame); }))
      return;
    std::vector<Recipe> args;
    append_call(links, first, args);
    made.resumes.clear(), entry.resumes.clear();
    const size_t results = left.results.size();
    if (!leaves) write_slots(live_behind(*t.frames[0]));
    exit.outs.clear(), left.results.resize(results);
    for (Table* table : t.written_tables) {
      if (table->metatable_written) value(table->metatable);
      writes(*table);
    }
    for (const Cell* cell : t.written_cells) value(cell->value);
    for (const Trace::Hooked& h : t.hooked) {
      if (h.function && !h.hook.expired()) value(h.function);
    }
  }

  // Pushes a function. For a closure that the trace has made, pushes another closure of its prototype.
  void push_function(Var* f) {
    if (f->kind != VarKind::kClosure) return t.push_pin(f->pin);
    if (!push_closure_like(t, f)) stop_at(f->closure->outer_step, reason(Break::kept_closure));
  }

  Recipe constant_on_stack() { return {Recipe::kConstant, t.constant_slot_from_stack()}; }

  // Appends a called function. handler: the handler of an xpcall, which follows the function, or null.
  void append_function(const Recipe& function, Var* handler, std::vector<Recipe>& args) {
    args.push_back(function);
    if (handler) args.push_back(value(handler));
  }

  // Appends the C function that calls the next function, and its arguments before that function. handler follows this C
  // function. Returns the handler that must follow the next function, or null.
  Var* append_mode(const ModeCall& mode, Var* handler, std::vector<Recipe>& args) {
    if (mode.via == Via::kProtected) {
      append_function(value(mode.catches), handler, args);
      return mode.handler;
    }
    static constexpr const char* kNames[] = {"", "no_grad", "enable_grad", "autocast_region"};
    lua_getfield(t.L, LUA_REGISTRYINDEX, "lutra.module");
    if (mode.via == Via::kAutocast) {
      lua_getfield(t.L, -1, "_native");
      lua_replace(t.L, -2);
    }
    lua_getfield(t.L, -1, kNames[int(mode.via)]);
    lua_remove(t.L, -2);
    append_function(constant_on_stack(), handler, args);
    if (mode.via != Via::kAutocast) return nullptr;
    const size_t device = mode.device == DeviceType::kCUDA;
    lua_pushstring(t.L, device ? "cuda" : "cpu");
    args.push_back(constant_on_stack());
    lua_pushstring(t.L, name(mode.inner.dtype[device]));
    args.push_back(constant_on_stack());
    args.push_back({mode.inner.enabled[device] ? Recipe::kTrue : Recipe::kFalse});
    args.push_back({mode.inner.cache ? Recipe::kTrue : Recipe::kFalse});
    return nullptr;
  }

  // Appends the function that runs frame i, then its arguments.
  void append_call(const std::vector<Link>& links, size_t i, std::vector<Recipe>& args) {
    Var* handler = nullptr;
    for (const ModeCall* mode : links[i].modes) handler = append_mode(*mode, handler, args);
    append_arguments(links, i, handler, args);
  }

  void stop_at_obstacles(const std::vector<Link>& links) {
    for (size_t i = 1; i < links.size(); i++) {
      const bool last = i + 1 == links.size();
      const Frame& caller = *links[i - 1].frame;
      std::string why =
          t.options.leaves_calls ? "rebuilding it costs more than graphs save" : obstacle(t, links[i], last);
      if (why.empty() && !calls(bc::op(caller.code->proto().code[caller.pc]))) why = "a call that is made by C";
      if (why.empty()) continue;
      BreakReason because = end.why ? end.why : reason(Break::called_loop);
      const LuaCode& code = *links[i].frame->code;
      because.eager = str("the function at ", code.file, ":", code.proto().first_line, " runs as it is: ", why);
      t.leave_out(caller);
      stop_at(caller.step, because);
    }
  }

  // Closes variables that went out of scope before their slots are written again.
  void close_variables() {
    const std::map<unsigned, Cell*> closed = closed_variables(t);
    if (closed.empty()) return;
    exit.closes_from = int(closed.begin()->first);
    for (const auto& [slot, cell] : closed) {
      if (!unchanged(cell->value, slot)) exit.last.push_back({slot, result(value(cell->value))});
    }
  }

  void frames() {
    close_variables();
    if (end.kind == SegmentEnd::kReturn) {
      if (too_many(end.results.size())) stop_before_producer(*t.frames[0], reason(Break::many_values));
      exit.resume.kind = Resume::Kind::kReturn;
      for (Var* v : end.results) exit.resume.args.push_back(result(value(v)));
      bc::Slots open;
      for (unsigned s : t.open_slots) open.set(s);
      write_slots(open);  // closures from before the segment still share these variables
      return;
    }
    const std::vector<Link> links = chain(t);
    stop_at_obstacles(links);
    for (size_t i = links.size(); i-- > 1;) {
      for (size_t k = links[i].modes.size(); k-- > 0;) links[i].modes[k]->restore();
    }
    leaves = leaves_real_frame(t, links);
    if (leaves) return leave_frame(links);
    Frame& f = *t.frames[0];
    const bc::Proto& proto = f.code->proto();
    const bc::Op op = bc::op(proto.code[f.pc]);
    if (links.size() > 1 || takes_multres(op) || keeps_multres(proto, f.pc)) {
      if (!calls(op)) stop_before_producer(f, end.why);
      exit.resume.kind = Resume::Kind::kCall;
      exit.resume.pc = f.pc;
      std::vector<Recipe> args;
      if (links.size() > 1) {
        find_closures(links);
        append_call(links, 1, args);
        known_closures = made_shares.size();
      } else {
        for (Var* v : call_operands(t, f)) args.push_back(value(v));
      }
      const bc::Slots live = live_behind(f);
      if (too_many(args.size() + live.count())) {
        if (links.size() > 1) stop_halfway(links);
        stop_before_producer(f, reason(Break::many_values));
      }
      write_slots(live);
      for (const Recipe& r : args) exit.resume.args.push_back(result(r));
      return;
    }
    exit.resume.kind = Resume::Kind::kPc;
    exit.resume.pc = t.last_close ? t.last_close : f.pc;  // the original code must close variables before it returns
    exit.resume.past_portal = end.kind == SegmentEnd::kBreak || ends_at_comparison(f, end);
    write_slots(f.code->liveness().before[f.pc]);
  }

  // Replaces the real frame by a tail call of its rest.
  void leave_frame(const std::vector<Link>& links) {
    exit.resume.kind = Resume::Kind::kTailCall;
    std::vector<Recipe> args;
    find_closures(links);
    append_call(links, 0, args);
    known_closures = made_shares.size();
    if (too_many(args.size())) stop_halfway(links);
    for (const Recipe& r : args) exit.resume.args.push_back(result(r));
  }

  BreakReason reason(Break why) const { return {why, {}, {t.file(), t.line()}, t.call_chain()}; }

  // Ends the segment before the producer of a list of results (MULTRES), which cannot be passed to the original code.
  [[noreturn]] void stop_before_producer(Frame& f, const BreakReason& why) {
    stop_at(f.multres_step ? f.multres_step : f.step, why);
  }

  // Ends the segment with half as many frames, which pass fewer values.
  [[noreturn]] void stop_halfway(const std::vector<Link>& links) {
    stop_at(links[links.size() / 2 - 1].frame->step, reason(Break::many_values));
  }

  // Returns whether there are too many results. They are slots of the frame, which has 250.
  bool too_many(size_t results) const { return t.frames[0]->code->proto().framesize + results > 240; }

  // -- effects

  // Records hooks to register after the run, for backwards outside, if the tensor's edge is still the same as when the
  // hook was registered.
  void hooks() {
    for (const Trace::Hooked& h : t.hooked) {
      if (h.hook.expired()) continue;
      const Edge now = gradient_edge(h.tensor);
      const bool same = now.node == h.edge.node && now.result == h.edge.result;
      const bool input = t.input_of_fake.count(h.tensor.get()) > 0;
      if (!same || (is_leaf(h.tensor) && !input)) stop_at(h.step, h.why);
      const Recipe of = tensor(h.tensor);
      h.function ? left.hooks.push_back({of, value(h.function)}) : left.retained.push_back(of);
    }
  }

  void effects() {
    hooks();
    if (t.random) left.draws = {{Recipe::kRegister, t.reg(t.random->source)}, t.draws, {}};
    if (t.random_seed) left.draws.seed = {Recipe::kRegister, t.reg(t.random_seed)};
    if (t.seed) left.seed = value(t.seed);
    keep_objects_apart(t);
    for (Table* table : t.written_tables) {
      const Recipe target{Recipe::kRegister, t.reg(table->source)};
      if (table->metatable_written) left.metatable_writes.push_back({target, value(table->metatable)});
      for (const auto& [k, v] : writes(*table)) left.table_writes.push_back({target, k, v});
    }
    for (Cell* cell : t.written_cells) {
      left.upvalue_writes.push_back({{Recipe::kRegister, t.reg(cell->function)}, cell->index, value(cell->value)});
    }
    for (const auto& [place, now] : left_variables(t)) left.slot_writes.push_back({place, value(now)});
    for (size_t i = 0; i < t.inputs.size(); i++) {
      const auto& in = t.inputs[i];
      if (has_new_history(in)) {
        left.history_writes.push_back({int(i), int(t.graph->outputs.size())});
        t.graph->outputs.push_back(in.fake);
      }
      if (!in.grad_loaded) continue;
      const Tensor now = in.fake->autograd ? in.fake->autograd->grad : Tensor();
      // A gradient that was overwritten without being read is always written.
      if (now.same(in.initial_grad) && (now || in.grad_known)) continue;
      left.grad_writes.push_back({int(i), now ? tensor(now) : Recipe{}});
    }
    left.grad_mode = grad_enabled();
    left.sets_grad_mode = left.grad_mode != t.initial_grad_mode;
    if (!(autocast_mode() == t.autocast.initial)) left.autocast = pack(autocast_mode());
  }

  bool retains(const Tensor& y) const {
    return std::any_of(t.retained.begin(), t.retained.end(), [&](const Tensor& r) { return r.same(y); });
  }

  // Adds outputs for the gradients of leaves made in the segment, and for retained gradients.
  void output_grads() {
    for (size_t i = 0; i < t.graph->outputs.size(); i++) {
      const Tensor y = t.graph->outputs[i].tensor();
      const bool retained = retains(y);
      if (retained) left.retained.push_back({Recipe::kTensorOut, int(i)});
      if (!(is_leaf(y) || retained) || !y->autograd || !y->autograd->grad) continue;
      left.output_grads.push_back({int(i), tensor(y->autograd->grad)});
    }
  }

  // Removes hooks and retained gradients from the histories. From here on these describe how gradients outside are
  // computed; there the outputs themselves retain gradients and have hooks.
  void forget_retained() {
    for (const Trace::Hooked& h : t.hooked) h.remove();
    for (const auto& remove : t.loaded_hooks) remove();
    for (const Tensor& y : t.retained) {
      const Edge edge = gradient_edge(y);
      if (edge.node) edge.node->retained.clear();
    }
  }

  void written_inputs() {
    left.written = inputs_written(t);
    std::erase_if(left.written, [this](int i) { return t.program.tensors[size_t(i)].in_shared_memory; });
    guard_memories(t);
    part_written(t, left.written, [&] { stop_at(t.first_step(), reason(Break::shared_memory)); });
    t.program.written = left.written;
    if (left.written.empty() || t.inputs.size() < 2) return;
    t.check(GuardOp::kOverlapCheck, nullptr, 0, "memory of its own");
    t.program.steps.back().source = t.inputs[size_t(left.written[0])].source;  // for reports
  }

  void run() {
    frames();
    effects();
    share_variables();
    output_grads();
    forget_retained();
    output_bases(t);
    for (const Value& v : t.graph->outputs) refresh_view(v.tensor());
    find_requires_grad_writes(t, left);
    written_inputs();
    keep_tensors_apart(t, left);
    guard_modes(t);
  }
};

}  // namespace

Finished finish_segment(Trace& t, const Incoming& incoming, const SegmentEnd& end, Entry& entry) {
  Finisher finisher{t, incoming, end, entry};
  finisher.run();
  return std::move(finisher.made);
}

}  // namespace lutra
