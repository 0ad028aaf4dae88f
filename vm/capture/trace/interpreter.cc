// The main loop of the symbolic interpreter: instructions, budgets, entering and leaving loops, breaks.
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/coroutines.h"
#include "vm/capture/trace/regions.h"

#include <algorithm>
#include <lua.hpp>

#include "ops/core/interrupt.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/unbacked_sizes.h"
#include "vm/host/runtime.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

constexpr uint64_t kMaxSteps = 400000;
// The limits of an automatic trace: a step costs some microseconds, an op saves about one in each call.
constexpr uint64_t kAutomaticSteps = 2000, kAutomaticStepsAnOp = 200;
// Each value may be a register of the guard program, a stack slot of the C function that runs it. That function has
// 8,000 slots, including its arguments.
constexpr uint64_t kMaxValues = 7000;

Handlers make_handlers() {
  Handlers h;
  install_moves(h);
  install_arithmetic(h);
  install_compares(h);
  install_tables(h);
  install_calls(h);
  install_loops(h);
  return h;
}

const Handlers& handlers() {
  static const Handlers table = make_handlers();
  return table;
}

}  // namespace

Trace::Trace(lua_State* state_L, TraceState& s, TraceDecisions& d, const TraceOptions& o)
    : L(state_L),
      state(s),
      decisions(d),
      options(o),
      budget(runtime(state_L).config.capture_budget_ms, o.until_ms),
      initial_grad_mode(grad_enabled()) {
  luaL_checkstack(L, 64, "capture");
  lua_newtable(L);
  pins = lua_gettop(L);
  lua_newtable(L);
  constants = lua_gettop(L);
  push_weak_table(L, "v");
  weak = lua_gettop(L);
  graph->env->assume_sizes(kSymbolicSizes);
  graph->env->on_pin = [this](int32_t expr) { stop_at_pin(expr); };
  sym_scope_ = std::make_unique<SymScope>(graph->env.get());
  no_finalizers_.emplace(L);
  mode_scope_ = std::make_unique<ModeScope>(&recorder);
  sizes_scope_ = std::make_unique<TraceSizes>(*this);
}

void Trace::close() {
  while (!regions.empty()) regions.pop_back();
  sizes_scope_.reset(), mode_scope_.reset(), sym_scope_.reset();
  no_finalizers_.reset();
  if (graph) graph->env->on_pin = nullptr;
}

Trace::~Trace() {
  close();
  set_grad_enabled(initial_grad_mode);
}

void Trace::writes_outside() {
  if (!regions.empty()) regions.back()->refuse("it changes what is older than it");
}

void Trace::writes_outside(const Cell& cell) {
  if (!regions.empty() && (cell.function_pin || cell.number < regions.back()->first_cell())) writes_outside();
}

void Trace::writes_outside(const Table& table) {
  if (!regions.empty() && !regions.back()->owns(table)) writes_outside();
}

// Throws a graph break. Its place is the user's line; its call chain includes the library's lines.
void Trace::stop(Break why, const BreakAbout& about) {
  const auto users = std::find_if(frames.rbegin(), frames.rend(), [](const Frame* f) { return !f->is_library(); });
  const char* const at = users == frames.rend() ? file() : (*users)->code->file;
  const int line_at = users == frames.rend() ? line() : (*users)->line();
  BreakReason reason(why, about, {at, line_at}, call_chain());
  const auto catches = [](const ModeCall& mode) { return mode.catches != nullptr; };
  reason.caught = std::any_of(modes.begin(), modes.end(), catches);
  for (const Frame* f : frames) reason.caught |= std::any_of(f->modes.begin(), f->modes.end(), catches);
  throw GraphBreak{std::move(reason), about.dirty || effect};
}

std::string Trace::call_chain() const {
  std::string text;
  for (size_t i = frames.size(); i-- > 0 && frames.size() > 1;) {
    const Frame& f = *frames[i];
    const std::string name = i ? bc::callee_name(frames[i - 1]->code->proto(), frames[i - 1]->pc) : "";
    text += str(text.empty() ? "in " : ", called from ", name, name.empty() ? "" : " at ", f.code->file, ":", f.line());
  }
  return text;
}

void Trace::need_room(uint64_t more) {
  if (uint64_t(pin_count) + more + uint64_t(arguments) <= kMaxValues) return;
  for (const Frame* f : frames) {
    if (!f->active.empty()) throw LongLoop{};
  }
  stop(Break::many_reads, {.dirty = true});
}

void Trace::charge(uint64_t moves) {
  check_stop();
  if (budget.spend(moves)) stop_at_budget(true);
}

Var* Trace::slot(Frame& f, unsigned i) {
  Var* v = i < f.cells.size() && f.cells[i] ? f.cells[i]->value : f.slots[i];
  if (!v) fail_internal("capture: slot ", i, " is read, which the segment does not know");
  return v;
}

void Trace::set(Frame& f, unsigned i, Var* v) {
  if (i < f.cells.size() && f.cells[i]) f.cells[i]->value = v;
  f.slots[i] = v;
}

void Trace::note_relations(const SymEnv& env) { program.relation_places.resize(env.guards().size(), here_); }

void Trace::stop_at_budget(bool dirty) {
  if (budget.is_too_expensive()) throw TooExpensive{};
  if (!frames.back()->active.empty()) throw LongLoop{};
  stop(Break::long_segment, {.dirty = dirty});
}

void Trace::step(Frame& f) {
  check_stop();
  note_relations(*graph->env);
  here_ = {f.code->file, f.line()};
  const bc::Proto& proto = f.code->proto();
  f.step = ++steps;
  effect = false;
  const bool poor = options.has_to_pay && steps > kAutomaticSteps + kAutomaticStepsAnOp * graph->nodes.size();
  const bool spent = budget.spend(1) || steps > kMaxSteps;
  if (poor || spent || graph->nodes.size() > budget.most_nodes()) stop_at_budget(false);
  while (!f.active.empty() && (f.pc < f.active.back()->head || f.pc > f.active.back()->end)) f.active.pop_back();
  if (frames.size() == 2 && f.pc == 1 && !f.expression && options.parted_calls.count(frames[0]->pc)) {
    stop(Break::parted_call);
  }
  if (steps == decisions.stop_step) throw GraphBreak{decisions.stop_reason, false};
  if (state.stress_breaks && !graph->nodes.empty() && bc::insertable(proto, f.pc) && !is_for_eager(*this)) {
    stop(Break::stress);
  }
  if (!decisions.kept_loops.empty() && decisions.kept_loops.count({&proto, f.pc})) throw LoopStop{};
  if (const bc::Loop* loop = f.code->loop_at(f.pc)) {
    if (f.active.empty()) f.rounds = 0, f.nodes_before = graph->nodes.size();
    f.active.push_back(loop);
  }
  const bc::Ins ins = proto.code[f.pc];
  const Handler h = handlers().of[ins & 0xff];
  if (!h) fail_internal("capture: bytecode ", bc::info(ins).name);
  f.next = f.pc + 1;
  h(*this, f, ins);
  f.pc = f.next;
}

Vars Trace::run(Frame& f) {
  while (!f.done) step(f);
  for (auto mode = f.modes.rbegin(); mode != f.modes.rend(); ++mode) mode->restore();
  return f.results;
}

void jump(Frame& f, bc::Pc target) { f.next = target; }

Var* string_constant(Trace& t, Frame& f, unsigned index) {
  return t.string(std::get<std::string>(f.code->proto().kgc[index]));
}

Var* number_constant(Trace& t, Frame& f, unsigned index) {
  const bc::KNum& k = f.code->proto().knum[index];
  return t.number(std::holds_alternative<double>(k) ? std::get<double>(k) : double(std::get<int32_t>(k)));
}

}  // namespace lutra
