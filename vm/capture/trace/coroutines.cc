// Models of coroutine.*: the trace interprets the bodies between their yields.
#include "vm/capture/trace/coroutines.h"

#include <algorithm>
#include <lua.hpp>
#include <utility>

#include "vm/capture/trace/builtin_arguments.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/errors.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/regions.h"

namespace lutra {
namespace {

using Status = Coroutine::Status;

constexpr size_t kMaxNested = 100;

// An exception that carries a yield to the call that resumed the coroutine.
struct Yielded {
  Vars values;
};

[[noreturn]] void leave(Trace& t, const Var* self) { t.stop(Break::coroutine, {self->builtin->name}); }

void stay_outside_of_regions(Trace& t, const Var* self) {
  if (!t.regions.empty()) t.regions.back()->refuse(str(self->builtin->name, " is called"));
}

Coroutine& make_coroutine(Trace& t, const Var* self, const Vars& args) {
  stay_outside_of_regions(t, self);
  Var* body = arg(t, args, 0);
  const bool callable = body->kind == VarKind::kFunction || body->kind == VarKind::kClosure;
  if (!callable && body->kind != VarKind::kBinding) t.stop(Break::raises, {self->builtin->name});
  if (!callable || body->builtin || body->binding) leave(t, self);  // a C function
  if (!t.coroutines) t.coroutines = std::make_unique<Coroutines>();
  t.coroutines->all.emplace_back();
  Coroutine& co = t.coroutines->all.back();
  co.body = body;
  co.step = t.frames.back()->step;
  co.why = BreakReason(Break::coroutine, {self->builtin->name}, {t.file(), t.line()}, t.call_chain());
  // A real thread, which is never resumed, stands for it, so that it has a type and can be a table key.
  t.vars.emplace_back();
  co.thread = &t.vars.back();
  co.thread->kind = VarKind::kObject;
  lua_newthread(t.L);
  co.thread->id = lua_topointer(t.L, -1);
  co.thread->pin = t.pin();
  t.coroutines->of_object[co.thread->id] = &co;
  t.effect = true;
  return co;
}

Coroutine* find(const Trace& t, const Var* v) {
  if (!t.coroutines || (v->kind != VarKind::kObject && v->kind != VarKind::kClosure)) return nullptr;
  const auto& all = t.coroutines->of_object;
  const auto found = all.find(v->kind == VarKind::kObject ? v->id : v->closure);
  return found == all.end() ? nullptr : found->second;
}

// Returns the coroutine of a thread argument.
Coroutine& thread_arg(Trace& t, const Var* self, const Vars& args) {
  const Var* v = arg(t, args, 0);
  if (v->kind != VarKind::kObject) t.stop(Break::raises, {self->builtin->name});
  Coroutine* co = find(t, v);
  if (!co) leave(t, self);
  return *co;
}

// Adds the true that pcall and xpcall return before their function's results.
void pass(Trace& t, const std::vector<ModeCall>& modes, Vars& results) {
  for (const ModeCall& mode : modes) {
    if (mode.via == Via::kProtected) results.insert(results.begin(), t.boolean(true));
  }
}

// Stores the results of the call in which the frame is suspended.
void deliver(Trace& t, Frame& f, const Vars& results) {
  const Op op = bc::op(f.code->proto().code[f.pc]);
  if (op == Op::CALLT || op == Op::CALLMT) {
    f.results = results;
    f.done = true;
    return;
  }
  place_results(t, f, results);
  f.pc++;
}

// Continues a coroutine from the yield in which it is suspended.
Vars go_on(Trace& t, Coroutine& co, Vars values) {
  t.frames.insert(t.frames.end(), co.frames.begin(), co.frames.end());
  co.came_back = co.frames.size();
  co.frames.clear();
  pass(t, std::exchange(co.protects, {}), values);
  while (t.frames.size() > co.first) {
    Frame& f = *t.frames.back();
    deliver(t, f, values);
    values = t.run(f);
    t.frames.pop_back();
    pass(t, f.modes, values);
  }
  return values;
}

bool catches(const ModeCall& mode) { return mode.catches != nullptr; }

// Resumes a coroutine. errors: the call is coroutine.resume, which catches errors.
Vars resume(Trace& t, Coroutine& co, Var* self, const Vars& args, bool errors) {
  stay_outside_of_regions(t, self);
  std::vector<Coroutine*>& running = t.coroutines->running;
  if (running.size() >= kMaxNested) t.stop(Break::depth);
  const std::vector<ModeCall> around = std::exchange(t.modes, {});  // modes of the call of the C function
  ModeCall mode{Via::kCoroutine};
  mode.catches = errors || std::any_of(around.begin(), around.end(), catches) ? self : nullptr;
  if (!running.empty()) running.back()->status = Status::kNormal;
  running.push_back(&co);
  co.status = Status::kRunning;
  co.first = t.frames.size();
  const int top = lua_gettop(t.L);
  Vars results;
  const auto stop_running = [&] {
    running.pop_back();
    if (!running.empty()) running.back()->status = Status::kRunning;
    t.effect = true;
  };
  if (!co.frames.empty()) co.frames[0]->modes.assign(1, mode);
  try {
    results = co.frames.empty() ? t.call(co.body, args, false, mode) : go_on(t, co, args);
    co.status = Status::kDead;
  } catch (const RaisedError&) {
    lua_settop(t.L, top);
    t.frames.resize(co.first);
    t.modes.clear();
    co.status = Status::kDead;
    stop_running();
    throw;
  } catch (Yielded& yield) {
    results = std::move(yield.values);
    lua_settop(t.L, top);
    co.frames.assign(t.frames.begin() + long(co.first), t.frames.end());
    t.frames.resize(co.first);
    co.status = Status::kSuspended;
  }
  stop_running();
  return results;
}

// Returns whether a yield can cross the calls between the frames and their callers.
bool lets_yield(const Trace& t, size_t i, size_t first) {
  const Frame &f = *t.frames[i], &caller = *t.frames[i - 1];
  const bool iterates = i > first && bc::op(caller.code->proto().code[caller.pc]) == Op::ITERC;
  const bool plain = std::all_of(f.modes.begin(), f.modes.end(), [&](const ModeCall& mode) {
    return mode.via == Via::kProtected || (i == first && mode.via == Via::kCoroutine);
  });
  return plain && !f.is_library() && (!f.expression || iterates);
}

// Returns the running coroutine if it may yield; null outside of the trace's coroutines.
Coroutine* yielding(Trace& t, const Var* self) {
  stay_outside_of_regions(t, self);
  if (!t.coroutines || t.coroutines->running.empty()) return nullptr;
  Coroutine* co = t.coroutines->running.back();
  for (const ModeCall& mode : t.modes) {
    if (mode.via != Via::kProtected) return nullptr;
  }
  for (size_t i = co->first; i < t.frames.size(); i++) {
    if (!lets_yield(t, i, co->first)) return nullptr;
  }
  return co;
}

const char* refusal(const Coroutine& co) {
  if (co.status == Status::kSuspended) return nullptr;
  return co.status == Status::kDead ? "cannot resume dead coroutine" : "cannot resume running coroutine";
}

// Models a call of the function that coroutine.wrap returns.
Vars run_wrapped(Trace& t, Var* self, const Vars& args) {
  Coroutine& co = *find(t, self);
  if (const char* why = refusal(co)) t.stop(Break::raises, {self->builtin->name, why});
  return resume(t, co, self, args, false);
}

const Builtin kWrapped{"coroutine.wrap", run_wrapped};

}  // namespace

const Coroutine* coroutine_of(const Trace& t, const Var* v) { return find(t, v); }

const Coroutine& first_to_leave(const Trace& t, const Coroutine& one) {
  for (const Coroutine& co : t.coroutines->all) {
    if (&co == &one || co.status != Status::kDead) return co;
  }
  return one;
}

Vars run_coroutine_create(Trace& t, Var* self, const Vars& args) { return {make_coroutine(t, self, args).thread}; }

Vars run_coroutine_wrap(Trace& t, Var* self, const Vars& args) {
  Coroutine& co = make_coroutine(t, self, args);
  t.vars.emplace_back();
  Var* f = &t.vars.back();
  f->kind = VarKind::kClosure;
  f->builtin = &kWrapped;
  t.closures.emplace_back();
  f->closure = &t.closures.back();
  f->closure->outer_step = t.frames[0]->step;
  t.coroutines->of_object[f->closure] = &co;
  return {f};
}

Vars run_coroutine_resume(Trace& t, Var* self, const Vars& args) {
  Coroutine& co = thread_arg(t, self, args);
  if (const char* why = refusal(co)) return {t.boolean(false), t.string(why)};
  try {
    Vars results = resume(t, co, self, Vars(args.begin() + 1, args.end()), true);
    results.insert(results.begin(), t.boolean(true));
    return results;
  } catch (const RaisedError& error) {
    return {t.boolean(false), error.value};
  }
}

Vars run_coroutine_yield(Trace& t, Var* self, const Vars& args) {
  Coroutine* co = yielding(t, self);
  if (!co) leave(t, self);
  co->protects = std::exchange(t.modes, {});
  throw Yielded{args};
}

Vars run_coroutine_status(Trace& t, Var* self, const Vars& args) {
  constexpr const char* kNames[] = {"suspended", "running", "normal", "dead"};
  return {t.string(kNames[int(thread_arg(t, self, args).status)])};
}

namespace {

// Returns the coroutine in which the segment runs; nil for the main one.
Var* running_outside(Trace& t) {
  if (lua_pushthread(t.L)) lua_pop(t.L, 1), lua_pushnil(t.L);
  return t.force(t.wrap(t.source(SourceKind::kThread, nullptr, nullptr, 0, "coroutine.running()")));
}

}  // namespace

// Models coroutine.running. In some builds LuaJIT also returns whether the coroutine is the main one.
Vars run_coroutine_running(Trace& t, Var* self, const Vars&) {
  const int top = lua_gettop(t.L);
  t.push_real(self);
  lua_call(t.L, 0, LUA_MULTRET);
  const bool both = lua_gettop(t.L) > top + 1;
  lua_settop(t.L, top);
  if (!t.coroutines || t.coroutines->running.empty()) {
    if (both) leave(t, self);
    return {running_outside(t)};
  }
  Var* thread = t.coroutines->running.back()->thread;
  return both ? Vars{thread, t.boolean(false)} : Vars{thread};
}

// The main coroutine never yields. Whether another one may depends on the C functions below the frame.
Vars run_coroutine_isyieldable(Trace& t, Var* self, const Vars&) {
  if (yielding(t, self)) return {t.boolean(true)};
  const bool made = t.coroutines && !t.coroutines->running.empty();
  if (made || running_outside(t)->kind != VarKind::kNil) leave(t, self);
  return {t.boolean(false)};
}

}  // namespace lutra
