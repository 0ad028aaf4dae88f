// Calls: inlining of Lua functions, bindings of ops, attributes of tensors, gradients around backward().
#include <algorithm>
#include <lua.hpp>

#include "ops/grad/tape.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/trace/border.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/cdata.h"
#include "vm/capture/trace/gradient_hooks.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/read_numbers.h"
#include "vm/capture/trace/reader.h"
#include "vm/capture/trace/regions.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/unbacked_sizes.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

constexpr size_t kMaxDepth = 220;

// Returns the name of a C function by the loaded module that it is in, as "ffi.istype"; the least of several names.
std::string name_in_modules(Trace& t, Var* f) {
  std::string least;
  const int top = lua_gettop(t.L);
  lua_getfield(t.L, LUA_REGISTRYINDEX, "_LOADED");
  t.push_pin(f->pin);
  const auto is_named = [&] { return lua_type(t.L, -2) == LUA_TSTRING; };
  for (lua_pushnil(t.L); lua_next(t.L, top + 1); lua_pop(t.L, 1)) {
    if (!is_named() || !lua_istable(t.L, -1)) continue;
    const int module = lua_gettop(t.L);
    for (lua_pushnil(t.L); lua_next(t.L, module); lua_pop(t.L, 1)) {
      if (!is_named() || !lua_rawequal(t.L, -1, top + 2)) continue;
      const std::string name = str(lua_tostring(t.L, module - 1), ".", lua_tostring(t.L, -2));
      if (least.empty() || name < least) least = name;
    }
  }
  lua_settop(t.L, top);
  return least.empty() ? "a C function" : least;
}

// Returns whether coroutine.wrap made the function. LuaJIT marks its own functions by their kind.
bool is_wrapped(Trace& t, Var* f) {
  if (!mirror::available(t.L)) return false;
  const int top = lua_gettop(t.L);
  const auto kind_at = [&](int i) { return static_cast<const mirror::Func*>(mirror::object(t.L, i))->ffid; };
  if (!push_library(t.L, "coroutine")) return false;
  lua_getfield(t.L, -1, "wrap");
  bool is = lua_iscfunction(t.L, -1) && luaL_loadstring(t.L, "") == 0;
  is = is && lua_pcall(t.L, 1, 1, 0) == 0 && lua_iscfunction(t.L, -1);
  if (is) {
    t.push_pin(f->pin);
    const int own = lua_gettop(t.L);
    is = kind_at(own) > 1 && kind_at(own) == kind_at(own - 1);
  }
  lua_settop(t.L, top);
  return is;
}

// Stops at the call of a function that has no model and no bytecode.
[[noreturn]] void stop_at_c_function(Trace& t, Var* f) {
  const std::string name = name_of_function(t.state, f->id);
  if (!name.empty()) t.stop(break_of_call(name), {name});
  if (is_wrapped(t, f)) t.stop(Break::coroutine, {"a function of coroutine.wrap"});
  t.stop(Break::c_function, {name_in_modules(t, f)});
}

size_t hash_of(size_t calls, const Frame& f) {
  const size_t here = std::hash<const void*>()(&f.code->proto()) + f.pc;
  return calls * 31 + here * 1000003;
}

}  // namespace

Vars Trace::call(Var* f, Vars args, bool expression, const ModeCall& mode) {
  if (!mode) return call(f, std::move(args), expression);
  modes.push_back(mode);
  Vars results = call(f, std::move(args), expression);
  if (!modes.empty()) modes.pop_back();  // no frame has taken the mode
  return results;
}

namespace {

// Returns the code of a Lua function whose call is inlined. Any other call is made at once: then returns null and sets
// `results`. Stops the trace if the call cannot be recorded.
LuaCode* code_of_callee(Trace& t, Var* f, const Vars& args, Vars* results) {
  const auto made = [&](Vars vars) -> LuaCode* { return *results = std::move(vars), nullptr; };
  if (f->kind == VarKind::kBinding) return made(t.call_binding(*f->binding, args));
  if (f->kind == VarKind::kClosure && f->builtin) return made(f->builtin->run(t, f, args));
  if (f->kind == VarKind::kClosure) return f->closure->code;
  if (f->kind != VarKind::kFunction) {
    const bool object = f->kind == VarKind::kObject;
    if (Var* cdata = object ? made_cdata(t, f, args) : nullptr) return made({cdata});
    if (object) t.stop(Break::c_function, {"an object"});
    t.stop(Break::raises, {"calling a value that is not a function"});
  }
  t.guard_callee(f);
  if (f->builtin) return made(f->builtin->run(t, f, args));
  if (f->binding) return made(t.call_binding(*f->binding, args));
  t.push_pin(f->pin);
  const bool resumed = !lua_iscfunction(t.L, -1) && is_resumed(t.L, -1);
  LuaCode* const code = resumed ? nullptr : code_of(t.state, t.L, -1);
  lua_pop(t.L, 1);
  if (resumed) t.stop(Break::resumed);
  if (!code) {
    if (Var* cdata = made_cdata(t, f, args)) return made({cdata});
    if (Var* answer = is_of_type(t, f, args)) return made({answer});
    for (Var* a : args) t.leave_out(a);
    stop_at_c_function(t, f);
  }
  if (const std::string* why = disabled_because(t.state, f->id)) t.stop(Break::disabled, {"", *why});
  return code;
}

}  // namespace

Vars Trace::call(Var* f, Vars args, bool expression) {
  for (int depth = 0; force(f)->kind == VarKind::kTable; depth++) {
    Var* h = metamethod(f, "__call");
    if (h->kind == VarKind::kNil || depth > 8) stop(Break::raises, {"calling a table"});
    args.insert(args.begin(), f);
    f = h;
  }
  Vars made;
  LuaCode* const code = code_of_callee(*this, f, args, &made);
  if (!code) return made;
  if (frames.size() >= kMaxDepth) stop(Break::depth);
  frame_store.emplace_back();
  Frame& frame = frame_store.back();
  frame.code = code;
  frame.function = f;
  frame.expression = expression;
  frame.modes.swap(modes);
  const bc::Proto& proto = code->proto();
  frame.slots.assign(proto.framesize + 1, nullptr);
  for (unsigned i = 0; i < proto.num_params; i++) frame.slots[i] = i < args.size() ? args[i] : nil();
  if (proto.vararg() && args.size() > proto.num_params) {
    frame.varargs.assign(args.begin() + proto.num_params, args.end());
  }
  note_call(proto);
  frames.push_back(&frame);
  const size_t nodes = graph->nodes.size();
  Vars results = run(frame);
  frames.pop_back();
  if (frames.size() == 1 && !expression) {
    size_t& most = called_ops[frames[0]->pc];  // a loop executes it several times
    most = std::max(most, graph->nodes.size() - nodes);
  }
  return results;
}

void Trace::note_call(const bc::Proto& callee) {
  for (size_t k = 0; k < frames.size(); k++) {
    const Frame& loop = *frames[k];
    if (loop.active.empty()) continue;
    size_t calls = 0;
    for (size_t i = k; i < frames.size(); i++) calls = hash_of(calls, *frames[i]);
    called_in_rounds_[{&loop, calls}].emplace(&callee, loop.rounds);
  }
}

bool Trace::differs_in_rounds(const Frame& f) const {
  const auto at = std::find(frames.begin(), frames.end(), &f);
  if (at == frames.end() || f.active.size() != 1) return false;
  // The position of a loop over pairs is internal to LuaJIT, and stays as it was before the segment.
  if (f.active[0]->kind == bc::Loop::Kind::kIterN) return false;
  size_t calls = 0;
  for (auto i = at; i + 1 < frames.end(); ++i) {
    calls = hash_of(calls, **i);
    const auto called = called_in_rounds_.find({&f, calls});
    if (called == called_in_rounds_.end()) return false;
    const auto here = called->second.find(&(*(i + 1))->code->proto());
    if (here == called->second.end()) return false;
    for (const auto& [proto, round] : called->second) {
      if (round < f.rounds && here->second == f.rounds) return true;
    }
  }
  return false;
}

void Trace::stop_at_leaf() { stop(Break::new_leaf, {.dirty = true}); }

bool Trace::is_new_leaf(const Tensor& fake) const {
  return fake->is_fake() && fake->requires_grad && is_leaf(fake) && input_of_fake.count(fake.get()) == 0;
}

Vars Trace::call_binding(const Binding& b, Vars args) {
  if (const Builtin* builtin = find_binding_builtin(b.name)) return builtin->run(*this, nullptr, args);
  if (b.flags & kNeedsData) stop(Break::reads_elements, {b.name});
  if (b.raw || (b.flags & kHostEffect)) stop(break_of_effect(b.name), {b.name});
  if (b.name == "as_strided") guard_offset(args);
  pass_read_numbers(*this, b, args);
  recorder.set_location(file(), line());
  const bool backward = b.name == "backward" || b.name == "grad";
  if (backward && !regions.empty()) regions.back()->refuse("it computes gradients");
  TrackerReader reader(*this, args);
  Vars results;
  const size_t nodes = graph->nodes.size(), guards = graph->env->guards().size();
  BorderScope border(*this);
  try {
    if (backward) prepare_backward(), backward_called = true;
    if (b.name == "backward") keep_gradients_of_inputs(*this, args);
    for (const Value& v : b.fn(b, reader)) results.push_back(value(v));
    if (backward) finish_backward();
    see_writes(*this, nodes);
  } catch (const OtherSizes& e) {
    stop(Break::resized_out, {b.name, e.what(), true});
  } catch (const NeedsData& e) {
    stop(Break::reads_elements, {b.name, e.what(), true});
  } catch (const Error& e) {
    if (!is_users(e)) throw;
    if (border.goes_beyond) stop(Break::older_history, {.dirty = true});
    stop_at_error(*this, guards, {b.name, e.what(), true});
  }
  if (graph->nodes.size() > nodes || backward) effect = true;
  if (graph->nodes.size() > budget.most_nodes()) stop_at_budget(true);
  if (decisions.leaves_outside && !backward) {
    for (Var* v : results) {
      if (v->kind == VarKind::kTensor && is_new_leaf(v->tensor)) stop_at_leaf();
    }
  }
  return results;
}

// Returns a tensor's storage offset. Fakes of inputs have offset 0, whatever the real offset.
Var* Trace::storage_offset(Var* v) {
  Var* own = scalar(Scalar::of_sym(v->tensor->offset));
  const auto input = input_of_storage.find(v->tensor->storage.get());
  if (input == input_of_storage.end()) return own;
  const TensorInput& in = inputs[size_t(input->second)];
  if (in.source && in.source->kind == SourceKind::kGrad) stop(Break::offset, {"the storage offset of a gradient,"});
  lua_pushnumber(L, double(in.real->offset.hint));
  if (!in.source || in.memory) return arithmetic(*this, bc::Op::ADDVV, constant_from_stack(), own);
  Var* begin = force(wrap(source(SourceKind::kOffset, in.source, nullptr, 0, in.source->text + ":storage_offset()")));
  return own->num.expr == 0 && own->num.to_double() == 0 ? begin : arithmetic(*this, bc::Op::ADDVV, begin, own);
}

void Trace::guard_offset(const Vars& args) {
  constexpr size_t kPositional = 3;
  if (args.empty() || force(args[0])->kind != VarKind::kTensor) return;
  bool given = args.size() > kPositional && force(args[kPositional])->kind != VarKind::kNil;
  for (Var* v : args) {
    Table* options = table_of(v);
    given = given || (options && force(raw_get(options, string("storage_offset")))->kind != VarKind::kNil);
  }
  if (!given) return;
  Var whole = *args[0];
  const auto input = input_of_storage.find(whole.tensor->storage.get());
  if (input != input_of_storage.end()) whole.tensor = inputs[size_t(input->second)].fake;
  if (input_of_fake.count(whole.tensor.get()) && constant(storage_offset(&whole)) != 0) {
    stop(Break::offset, {"as_strided by an offset,"});
  }
}

Vars Trace::call_pure(Var* f, const Vars& args, const std::string& name) {
  const int top = lua_gettop(L);
  luaL_checkstack(L, int(args.size()) + 16, "capture");
  push_real(f);
  for (Var* a : args) {
    force(a);
    const bool plain = a->kind == VarKind::kNil || a->kind == VarKind::kBool || a->kind == VarKind::kNumber ||
                       a->kind == VarKind::kString || is_constant_cdata(*this, a);
    if (!plain) {
      lua_settop(L, top);
      stop(Break::not_constant, {name});
    }
    push_real(a);
  }
  if (lua_pcall(L, int(args.size()), LUA_MULTRET, 0) != 0) {
    const char* text = lua_tostring(L, -1);
    const std::string message = text ? text : "";
    lua_settop(L, top);
    stop(Break::raises, {name, message});
  }
  Vars results;
  for (int i = top + 1, n = lua_gettop(L); i <= n; i++) {
    lua_pushvalue(L, i);
    results.push_back(constant_from_stack());
  }
  lua_settop(L, top);
  return results;
}

// -- attributes

Var* Trace::tensor_attribute(Var* object, Var* k) {
  recorder.set_location(file(), line());
  if (force(k)->kind == VarKind::kString) {
    const std::string name = text(k);
    if (const Attribute* a = find_attribute(name)) {
      auto it = input_of_fake.find(object->tensor.get());
      if (name == "grad" && it != input_of_fake.end()) load_grad(object->tensor, inputs[it->second].source);
      if (name == "is_leaf" && it != input_of_fake.end()) return boolean(program.tensors[it->second].leaf);
      if (name == "grad_fn" || name == "_version") stop(Break::history_read, {name});
      LuaResults r = a->get(object->tensor);
      return r.empty() ? nil() : value(r[0]);
    }
    if (const Binding* b = find_method(name)) {
      vars.emplace_back();
      vars.back().kind = VarKind::kBinding;
      vars.back().binding = b;
      return &vars.back();
    }
  }
  Vars args{k};
  TrackerReader reader(*this, args);
  const size_t guards = graph->env->guards().size();
  try {
    Tensor r = index_get(object->tensor, reader, 0);
    effect = true;
    return tensor(r);
  } catch (const NeedsData& e) {
    stop(Break::mask_read, {"", e.what(), true});
  } catch (const Error& e) {
    if (!is_users(e)) throw;
    stop_at_error(*this, guards, {"an index", e.what(), true});
  }
}

namespace {

// Checks that the real input has no gradient if a backward of the trace gave its fake the first one; else starts again
// with that gradient loaded first.
void need_first_grad(Trace& t, const Trace::TensorInput& in) {
  const auto has = [](const Tensor& x) { return x->autograd && x->autograd->grad; };
  if (in.grad_loaded || !in.source || !has(in.fake) || !has(in.real)) return;
  if (!t.decisions.preload_grads.insert(in.source->text).second) t.stop(Break::shared_gradient);
  throw Restart{};
}

}  // namespace

void Trace::set_tensor_attribute(Var* object, Var* k, Var* v) {
  writes_outside();
  recorder.set_location(file(), line());
  Vars args{k, force(v)};
  TrackerReader reader(*this, args);
  const size_t nodes = graph->nodes.size(), guards = graph->env->guards().size();
  const Attribute* a = force(k)->kind == VarKind::kString ? find_attribute(text(k)) : nullptr;
  try {
    if (a && a->set) {
      auto it = input_of_fake.find(object->tensor.get());
      if (it != input_of_fake.end() && text(k) == "grad") {
        need_first_grad(*this, inputs[it->second]);
        inputs[it->second].grad_loaded = true;
      }
      a->set(object->tensor, reader, 1);
    } else {
      index_set(object->tensor, reader, 0, 1);
    }
    see_writes(*this, nodes);
  } catch (const NeedsData& e) {
    if (a && a->set) stop(Break::data_replaced, {"", e.what(), true});
    stop(Break::mask_write, {"", e.what(), true});
  } catch (const Error& e) {
    if (!is_users(e)) throw;
    stop_at_error(*this, guards, {"an assignment", e.what(), true});
  }
  if (decisions.leaves_outside && is_new_leaf(object->tensor)) stop_at_leaf();
  effect = true;
}

// -- gradients

// fake is passed by value, since it may be an element of `inputs`, which grows.
void Trace::load_grad(Tensor fake, const Source* src) {
  const int input = input_of_fake.at(fake.get());
  if (inputs[input].grad_loaded) return;
  need_first_grad(*this, inputs[input]);
  inputs[input].grad_loaded = inputs[input].grad_known = true;
  const Tensor real = inputs[input].real;
  const std::string name = src->text + ".grad";
  GuardStep step;
  step.source = source(SourceKind::kGrad, src, nullptr, 0, name);
  step.a = input;
  if (!real->autograd || !real->autograd->grad) {
    step.op = GuardOp::kGradNilCheck;
    program.steps.push_back(step);
    program.expected.push_back("nil");
    return;
  }
  const Tensor grad = real->autograd->grad;
  auto it = input_of_real.find(grad.get());
  if (it != input_of_real.end()) stop(Break::shared_gradient);
  const Source* grad_source = step.source;
  vars.emplace_back();
  const int g = int(graph->inputs.size());
  step.op = GuardOp::kGradLoad;
  step.index = g;
  program.steps.push_back(step);
  program.expected.push_back("");
  add_tensor_input(grad, grad_source);
  step.op = GuardOp::kGradTensorCheck;
  program.steps.push_back(step);
  program.expected.push_back("");
  inputs[input].initial_grad = inputs[g].fake;
  autograd_meta(fake).grad = inputs[g].fake;
}

void Trace::prepare_backward() {
  for (size_t i = 0; i < inputs.size(); i++) {
    const Source* s = inputs[i].source;
    load_hooks(*this, i);
    const Tensor fake = inputs[i].fake;  // load_grad adds inputs
    if (s && decisions.preload_grads.count(s->text)) load_grad(fake, s);
  }
}

// Checks leaves that got their first gradient in the trace. That is correct only if the real leaf had none.
void Trace::finish_backward() {
  bool again = false;
  for (size_t i = 0, n = inputs.size(); i < n; i++) {
    if (inputs[i].grad_loaded || !inputs[i].fake->autograd || !inputs[i].fake->autograd->grad) continue;
    if (!program.tensors[i].leaf) stop(Break::older_history, {.dirty = true});
    const Tensor& real = inputs[i].real;
    if (real->autograd && real->autograd->grad) {
      decisions.preload_grads.insert(inputs[i].source->text);
      again = true;
    } else {
      inputs[i].grad_loaded = inputs[i].grad_known = true;
      GuardStep step;
      step.op = GuardOp::kGradNilCheck;
      step.a = int(i);
      step.source = source(SourceKind::kGrad, inputs[i].source, nullptr, 0, inputs[i].source->text + ".grad");
      program.steps.push_back(step);
      program.expected.push_back("nil");
    }
  }
  if (again) throw Restart();
}

// -- upvalues

bool Trace::is_loose(const Source* function) const {
  return function->kind == SourceKind::kSelf || remade.count(function) > 0 ||
         options.loose_functions.count(function->text) > 0;
}

Cell* Trace::new_cell() {
  cells.emplace_back();
  cells.back().number = cells.size() - 1;
  return &cells.back();
}

std::pair<OpenFrame*, unsigned> Trace::open_slot(const void* variable) {
  if (!regions.empty() || !mirror::available(L)) return {};
  const std::optional<int> place = mirror::place_of(L, static_cast<const mirror::Upval*>(variable));
  if (!place) return {};
  for (OpenFrame& o : open_frames) {
    const int slot = *place - o.base;
    if (slot < 0 || std::find(o.slots.begin(), o.slots.end(), unsigned(slot)) == o.slots.end()) continue;
    return {&o, unsigned(slot)};
  }
  return {};
}

bool Trace::has_open_slots() const {
  return std::any_of(open_frames.begin(), open_frames.end(), [](const OpenFrame& o) { return !o.slots.empty(); });
}

// Returns whether an upvalue of a function is not a variable of the open frames: it is never assigned, or already
// closed (and the function stays the same), or guarded.
bool Trace::is_apart(const Frame& f, unsigned i, const void* id) {
  if (f.code->proto().upvalues[i].immutable()) return true;
  if (!mirror::available(L)) return false;
  const auto* variable = static_cast<const mirror::Upval*>(id);
  const Source* function = f.function->source;
  if (variable->immutable || (!is_loose(function) && variable->closed)) return true;
  const int lowest = open_frames.back().base;
  if (mirror::place_of(L, variable).value_or(lowest - 1) >= lowest) return false;
  check(GuardOp::kNotOwnVariableCheck, function, int(i) | int(unsigned(lowest) << 8), "no variable of the frame");
  return true;
}

void Trace::check_place(const Source* function, unsigned i, const OpenFrame& frame, unsigned slot, const Cell* cell) {
  if (!own_variables.emplace(cell, function).second) return;
  const int place = frame.base + int(slot);
  check(GuardOp::kOwnVariableCheck, function, int(i) | int(unsigned(place) << 8), "a variable of the frame");
}

Cell* Trace::slot_cell(Frame& f, unsigned slot) {
  if (f.cells.size() <= slot) f.cells.resize(slot + 1, nullptr);
  if (!f.cells[slot]) {
    f.cells[slot] = new_cell();
    f.cells[slot]->value = f.slots[slot] ? f.slots[slot] : nil();
  }
  return f.cells[slot];
}

// Models UCLO. If the first frame returns, its open upvalues are closed after the segment. So are those that go out of
// scope, since functions from before the segment still refer to them.
void Trace::close_slots(Frame& f, unsigned from) {
  const bc::Proto& proto = f.code->proto();
  const bc::Op next = bc::op(proto.code[bc::jump_target(f.pc, proto.code[f.pc])]);
  const bool returns = next == bc::Op::RET || next == bc::Op::RET0 || next == bc::Op::RET1 || next == bc::Op::RETM;
  if (&f == frames[0] && returns) {
    last_close = f.pc;
    return;
  }
  if (&f == frames[0]) {
    const auto open = std::find_if(open_frames.begin(), open_frames.end(), [&](auto& o) { return o.frame == &f; });
    for (const unsigned s : open_slots) {
      if (s >= from) open->met[s] = slot_cell(f, s);
    }
    std::erase_if(open_slots, [&](unsigned s) { return s >= from; });
  }
  for (unsigned i = from; i < f.cells.size(); i++) {
    if (f.cells[i]) f.slots[i] = f.cells[i]->value;
    f.cells[i] = nullptr;
  }
}

void Trace::push_prototype(Var* function) {
  if (function->kind == VarKind::kClosure) {
    push_prototype(function->closure->env);
    push_child_prototype(L, lua_gettop(L), function->closure->constant);
  } else {
    push_pin(function->pin);
    lutra::push_prototype(L, lua_gettop(L));
  }
  lua_remove(L, -2);
}

Cell* Trace::upvalue(Frame& f, unsigned i) {
  if (f.function->kind == VarKind::kClosure) return f.function->closure->cells[i];
  push_pin(f.function->pin);
  const void* id = lua_upvalueid(L, -1, int(i) + 1);
  const Source* here = f.function->source;
  const bool assigned = !f.code->proto().upvalues[i].immutable();
  const bool may_be_own = frames.size() > 1 || open_frames.size() > 1;
  const auto [open, open_at] = may_be_own && assigned ? open_slot(id) : std::pair<OpenFrame*, unsigned>();
  if (open && open->frame) {
    lua_pop(L, 1);
    const auto met = open->met.find(open_at);  // it may be out of scope
    Cell* own = met != open->met.end() ? met->second : slot_cell(*open->frame, open_at);
    own->assigned = true;
    check_place(here, i, *open, open_at, own);
    return own;
  }
  Cell*& cell = cell_of_real[id];
  if (cell && cell->function != here && (is_loose(here) || is_loose(cell->function)) &&
      same_variables.emplace(cell, here).second) {
    check_group(GuardOp::kSameVariableCheck, here, {1, {{reg(cell->function), cell->index}, {reg(here), int(i)}}},
                "a variable of both");
  }
  if (!cell) {
    if (may_be_own && !open && has_open_slots() && !is_apart(f, i, id)) {
      lua_pop(L, 1);
      stop(Break::kept_closure);
    }
    const bc::Proto& proto = f.code->proto();
    std::string name = bc::upvalue_name(proto, i);
    const Source* s =
        source(SourceKind::kUpvalue, f.function->source, nullptr, int(i), name.empty() ? str("upvalue ", i) : name);
    lua_getupvalue(L, -1, int(i) + 1);
    cell = new_cell();
    cell->value = wrap(s);
    cell->value->fixed = !assigned || (mirror::available(L) && static_cast<const mirror::Upval*>(id)->immutable);
    cell->function_pin = f.function->pin;
    cell->function = f.function->source;
    cell->index = int(i);
  }
  lua_pop(L, 1);
  if (open) check_place(here, i, *open, open_at, cell), open->met[open_at] = cell;
  return cell;
}

}  // namespace lutra
