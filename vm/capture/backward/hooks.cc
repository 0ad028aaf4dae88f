// Captures of hooks: their calls on a tensor that stands for the gradient.
#include "vm/capture/backward/hooks.h"

#include <algorithm>
#include <lua.hpp>

#include "jit/graph/replay.h"
#include "ops/core/error.h"
#include "ops/decompose/emit.h"
#include "vm/bind/anchor.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/segment/capture.h"
#include "vm/host/runtime.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

// f in a frame of C of its own, whose stack is empty: guards and captures find their values from 1 on.
void in_own_frame(lua_State* L, const std::function<void(lua_State*)>& f) {
  struct Call {
    const std::function<void(lua_State*)>& f;
    std::exception_ptr error;
  } call{f, nullptr};
  luaL_checkstack(L, 4, "a hook");
  lua_pushcfunction(L, [](lua_State* inner) {
    auto* call = static_cast<Call*>(lua_touserdata(inner, 1));
    lua_settop(inner, 0);
    try {
      call->f(inner);
    } catch (const std::exception&) {
      call->error = std::current_exception();
    }
    return 0;
  });
  lua_pushlightuserdata(L, &call);
  lua_call(L, 1, 0);
  if (call.error) std::rethrow_exception(call.error);
}

bool push_hook(lua_State* L, const GradHook& hook) {
  const auto* keeper = dynamic_cast<const UserdataKeeper*>(hook.keeper.get());
  return keeper && keeper->push_function(L);
}

// Arguments, then the function. Gives the place of the call on the stack.
bool push_call(lua_State* L, const GradHook& hook, const HookCall& call, const Tensor& gradient, SegmentCall& at) {
  luaL_checkstack(L, int(call.slots.size()) + 8, "a hook");
  for (unsigned slot : call.slots) slot == 0 ? push_tensor(L, gradient) : lua_pushnil(L);
  if (call.vararg) push_tensor(L, gradient);
  const int nslots = int(call.slots.size()), nargs = lua_gettop(L);
  at = {nslots, nargs, nargs + 1};
  return push_hook(L, hook);
}

// As the gradient will be, on the device where it will be. Only a single element has memory: capture may look at it.
Tensor stand_in_for(const Tensor& fake) {
  const ModeScope real(nullptr);
  Sizes sizes, strides;
  int64_t elements = 1;
  for (const SymInt& n : fake->sizes) sizes.push_back(n.hint), elements *= n.hint;
  for (const SymInt& n : fake->strides) strides.push_back(n.hint);
  if (elements == 1) return alias(full(sizes, 1.0, fake->dtype, fake->device()), sizes, strides, SymInt(0));
  Tensor t = alias(fake, sizes, strides, SymInt(0));
  t->storage = make_ref<Storage>();
  t->storage->device = fake->device();
  return t;
}

std::set<int> symbolic_dims(const Tensor& t) {
  std::set<int> dims;
  for (size_t d = 0; d < t->sizes.size(); d++) {
    if (!t->sizes[d].is_constant()) dims.insert(int(d));
  }
  return dims;
}

using Op = GuardOp;

// What a graph within another one must not ask or do; null: nothing.
const char* refusal(const WholeCall& whole, int gradient) {
  const Effects& e = whole.entry->effects;
  const GuardProgram& p = whole.entry->guards;
  const bool writes = !e.table_writes.empty() || !e.metatable_writes.empty() || !e.upvalue_writes.empty();
  if (writes) return "it writes tables or variables";
  if (!e.grad_writes.empty() || !e.output_grads.empty() || !e.requires_grad_writes.empty() || !e.retained.empty() ||
      !e.hooks.empty() || !e.history_writes.empty() || !e.refused_outputs.empty() || whole.differentiates ||
      e.sets_grad_mode)
    return "it changes what gradients are";
  if (!e.written.empty()) return "it writes a tensor";
  if (e.draws.count || whole.graph->rng_calls) return "it draws random numbers";
  if (!constants_of(*whole.graph).empty()) return "it makes a tensor of Lua values";
  const auto& scalars = p.scalar_sources;
  if (std::find(scalars.begin(), scalars.end(), nullptr) != scalars.end()) return "elements decide a size";
  for (size_t i = 0; i < p.tensors.size(); i++) {
    const auto varies = [](const std::vector<int64_t>& all) {
      return std::find(all.begin(), all.end(), -1) != all.end();
    };
    if (int(i) != gradient && (varies(p.tensors[i].sizes) || varies(p.tensors[i].strides)))
      return "it reads a tensor that mark_dynamic is about";
  }
  return nullptr;
}

bool is_of_gradients(Op op) { return op == Op::kGradLoad || op == Op::kGradNilCheck || op == Op::kGradTensorCheck; }

// Whether guards read .grad, or ask more of the gradient than what it is like.
const char* asks_too_much(const GuardProgram& p, int gradient) {
  int registers = 0, of_gradient = -1;
  for (const GuardStep& s : p.steps) {
    if (is_of_gradients(s.op)) return "it reads .grad";
    const bool looks = of_gradient >= 0 && (s.a == of_gradient || s.b == of_gradient);
    if (s.op == Op::kTensorCheck && s.index == gradient) {
      of_gradient = s.a;
    } else if (looks && s.op != Op::kTypeCheck) {
      return "it asks which tensor the gradient is, or for its element";
    } else if (s.op == Op::kDistinctTensorsCheck || s.op == Op::kOverlapCheck) {
      return "it writes a tensor";
    }
    registers += is_load(s.op);
  }
  return nullptr;
}

const char* bad_result(const WholeCall& whole) {
  const std::vector<Recipe>& results = whole.entry->effects.results;
  if (results.empty() || results[0].kind == Recipe::kNil) return nullptr;
  if (results[0].kind != Recipe::kTensorOut && results[0].kind != Recipe::kTensorIn) return "it gives no tensor";
  const size_t i = size_t(results[0].index);
  const bool out = results[0].kind == Recipe::kTensorOut;
  const bool tracked =
      out ? whole.graph->outputs[i].tensor()->requires_grad : whole.graph->inputs[i].value->requires_grad;
  return tracked ? "what it gives requires grad" : nullptr;
}

}  // namespace

CapturedHook::~CapturedHook() {
  const auto live = alive.lock();
  if (entry && live && *live) release_entry(L, *entry);
}

const void* HookCaptures::prototype(const GradHook& hook) {
  lua_State* L = current_lua();
  if (!L || !lua_checkstack(L, 8)) return nullptr;
  const int top = lua_gettop(L);
  const void* identity = nullptr;
  if (push_hook(L, hook) && !lua_iscfunction(L, -1)) identity = prototype_identity(L, lua_gettop(L));
  lua_settop(L, top);
  return identity;
}

const std::string* HookCaptures::refused(const void* prototype) const {
  const auto it = refused_.find(prototype);
  return it == refused_.end() ? nullptr : &it->second;
}

TraceOptions HookCaptures::options_for(const void* prototype) const {
  TraceOptions options;
  const auto known = lessons_.find(prototype);
  if (known == lessons_.end()) return options;
  options.loose_functions = known->second.loose_functions;
  for (const auto& [source, values] : known->second.values) options.changing_values[source] = int(values.size());
  return options;
}

std::shared_ptr<CapturedHook> HookCaptures::capture(const PartHook& hook, const Tensor& gradient) const {
  auto made = std::make_shared<CapturedHook>();
  made->stand_in = stand_in_for(gradient);
  std::string why;
  const auto refuse = [&](const char* reason) {
    if (reason && why.empty()) why = reason;
  };
  const auto work = [&](lua_State* L) {
    const ModeScope real(nullptr);
    if (!push_hook(L, hook.hook)) return refuse("it is gone");
    LuaCode* code = code_of(state_, L, 1);
    if (!code) return refuse("it is no Lua function");
    if (const std::string* reason = disabled_because(state_, lua_topointer(L, 1))) return void(why = *reason);
    lua_settop(L, 0);
    const bc::Proto& proto = code->proto();
    made->call = {code->liveness().passable(1), proto.vararg() && proto.num_params == 0};
    made->place = str(code->file, ":", int(proto.first_line));
    SegmentCall at{};
    push_call(L, hook.hook, made->call, made->stand_in, at);
    WholeCall whole = capture_whole(L, state_, {*code, 1, made->call.slots, proto.vararg()}, at,
                                    symbolic_dims(gradient), options_for(hook.prototype));
    made->entry = whole.entry, made->L = runtime(L).L, made->alive = runtime_alive(L);
    if (!whole.why.empty()) return void(why = whole.why);
    for (size_t i = 0; i < whole.inputs.size(); i++) {
      if (whole.inputs[i].same(made->stand_in)) made->gradient = int(i);
    }
    refuse(refusal(whole, made->gradient));
    refuse(asks_too_much(whole.entry->guards, made->gradient));
    refuse(bad_result(whole));
    made->graph = std::move(whole.graph);
  };
  try {
    in_own_frame(current_lua(), work);
  } catch (const Error& e) {
    if (e.kind != ErrorKind::kUser) throw;
    why = e.what();
  }
  if (!why.empty()) throw HookRefused{hook.prototype, why};
  return made;
}

namespace {

// f sees what the steps before the one that failed have loaded.
template <class F>
void with_values(lua_State* L, const GuardProgram& p, int failed, const SegmentCall& at, int tables, F f) {
  GuardProgram until = p;
  until.steps.resize(size_t(failed));
  GuardValues values;
  if (run_guards(L, until, at.nslots, at.nargs, at.self, tables, tables + 1, &values) < 0) f(values);
}

// Another closure of a prototype, another number or string: the next capture takes any. tables: of the entry, on the
// stack.
void learn(lua_State* L, const Entry& e, int failed, const SegmentCall& at, int tables, HookLessons& lessons) {
  constexpr size_t kKnown = 8;
  const GuardStep& s = e.guards.steps[size_t(failed)];
  const bool compares =
      s.op == Op::kValueCheck || s.op == Op::kFieldCheck || s.op == Op::kGlobalCheck || s.op == Op::kUpvalueCheck;
  const bool closure = s.op == Op::kIdentityCheck && s.prototype;
  if (!s.source || (!compares && !closure)) return;
  with_values(L, e.guards, failed, at, tables, [&](const GuardValues& values) {
    const int now = values.base + s.a;
    if (closure && lua_isfunction(L, now) && prototype_number(L, now) == s.prototype)
      lessons.loose_functions.insert(s.source->text);
    if (!compares || (lua_type(L, now) != LUA_TNUMBER && lua_type(L, now) != LUA_TSTRING)) return;
    lua_pushvalue(L, now);
    auto& known = lessons.values[s.source->text];
    if (known.size() < kKnown) known.insert(lua_tostring(L, -1));
    lua_pop(L, 1);
  });
}

}  // namespace

bool HookCaptures::holds(const CapturedHook& captured, const PartHook& hook, std::vector<Tensor>& tensors,
                         std::vector<double>& numbers) {
  bool hold = false;
  in_own_frame(current_lua(), [&](lua_State* L) {
    SegmentCall at{};
    if (!push_call(L, hook.hook, captured.call, captured.stand_in, at)) return;
    const Entry& e = *captured.entry;
    GuardValues values;
    const int base = lua_gettop(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, e.constants);
    lua_rawgeti(L, LUA_REGISTRYINDEX, e.weak);
    int miss = NativeGuards::kUnsure;
    if (e.native) miss = e.native->run(L, at.nslots, at.nargs, at.self, &values);
    if (miss == NativeGuards::kUnsure)
      miss = run_guards(L, e.guards, at.nslots, at.nargs, at.self, base + 1, base + 2, &values);
    hold = miss == -1;
    if (miss >= 0) learn(L, e, miss, at, base + 1, lessons_[hook.prototype]);
    for (size_t i = 0; hold && i < values.tensors.size(); i++) {
      if (int(i) != captured.gradient) tensors.push_back(values.tensors[i]);
    }
    if (hold) numbers.insert(numbers.end(), values.scalars.begin(), values.scalars.end());
  });
  return hold;
}

namespace {

// Values of the hook's graph as those of the graph that is recorded.
struct Replay {
  const Graph& graph;
  SymEnv& env;
  const std::vector<Tensor>& inputs;
  const std::vector<Scalar>& numbers;
  std::vector<int32_t> exprs{};
  std::unordered_map<const TensorImpl*, Tensor> values{};

  int32_t expr_of(const SymExpr& e) {
    switch (e.op) {
      case SymOp::kConstInt: return env.constant(e.i);
      case SymOp::kConstNum: return env.number(e.d);
      case SymOp::kSize: return inputs[size_t(e.a)]->sizes[size_t(e.b)].to_expr();
      case SymOp::kStride: return inputs[size_t(e.a)]->strides[size_t(e.b)].to_expr();
      case SymOp::kScalarInput: return number_expr(env, numbers[size_t(e.a)]);
      default: break;
    }
    const int32_t b = arity(e.op) > 1 ? exprs[size_t(e.b)] : 0;
    return env.make(e.op, exprs[size_t(e.a)], b);
  }
  // What the trace asked is asked again, as sizes may be others here.
  void begin() {
    bool hold = true;
    for (const SymExpr& e : graph.env->exprs()) {
      exprs.push_back(expr_of(e));
      if (e.op == SymOp::kSize) hold = hold && env.ask(SymCmp::kLe, exprs.back(), env.constant(kSymbolicSizes.high));
    }
    for (const SymGuard& g : graph.env->guards()) {
      hold = hold && env.ask(g.cmp, exprs[size_t(g.a)], arity(g.cmp) > 1 ? exprs[size_t(g.b)] : 0) == g.outcome;
    }
    for (size_t i = 0; i < inputs.size(); i++) {
      const Tensor& then = graph.inputs[i].value;
      values[then.get()] = inputs[i];
      for (size_t d = 0; d < then->sizes.size(); d++) {
        hold = hold && size(then->sizes[d]) == inputs[i]->sizes[d] && size(then->strides[d]) == inputs[i]->strides[d];
      }
    }
    LUTRA_CHECK(hold, "a hook's graph is replayed on other sizes than it was captured for");
  }

  SymInt size(SymInt s) const { return s.expr ? SymInt::of_expr(env, exprs[size_t(s.expr)]) : s; }
  Scalar scalar(Scalar s) const {
    if (!s.expr) return s;
    const int32_t e = exprs[size_t(s.expr)];
    if (s.kind != Scalar::kNumber) return Scalar::of_sym(SymInt::of_expr(env, e));
    const bool constant = env[e].op == SymOp::kConstNum;
    s.d = env[e].d, s.expr = constant ? 0 : e;
    return s;
  }
  Tensor tensor(const Tensor& t) const {
    if (!t) return t;
    const auto it = values.find(t.get());
    LUTRA_CHECK(it != values.end(), "a value of a hook's graph without its node");
    return it->second;
  }
  void run(const Node& n) {
    Args args;
    for (const Value& v : n.args) args.push_back(mapped(v, *this));
    if (n.inplace) return void(call_inplace(n.op, std::move(args)));
    const Results results = call_op(n.op, std::move(args));
    for (size_t i = 0; i < n.results.size(); i++) values[n.results[i].get()] = results[i];
  }
};

}  // namespace

Tensor replay_hook(const CapturedHook& hook, const std::vector<Tensor>& inputs, const std::vector<Scalar>& numbers) {
  Replay replay{*hook.graph, *SymEnv::current(), inputs, numbers};
  replay.begin();
  for (const auto& n : hook.graph->nodes) replay.run(*n);
  const std::vector<Recipe>& results = hook.entry->effects.results;
  if (results.empty() || results[0].kind == Recipe::kNil) return Tensor();
  const size_t i = size_t(results[0].index);
  return results[0].kind == Recipe::kTensorIn ? inputs[i] : replay.tensor(hook.graph->outputs[i].tensor());
}

}  // namespace lutra
