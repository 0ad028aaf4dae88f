// Captures calls, with stand-in tensors for gradients.
#include "vm/capture/backward/calls.h"

#include <algorithm>
#include <lua.hpp>
#include <unordered_set>

#include "ops/core/error.h"
#include "ops/decompose/emit.h"
#include "ops/defs/autocast.h"
#include "vm/bind/anchor.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/segment/capture.h"
#include "vm/host/runtime.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

// Runs f in a C frame of its own with an empty stack, since guards and captures expect their values from index 1 on.
void in_own_frame(lua_State* L, const std::function<void(lua_State*)>& f) {
  struct Call {
    const std::function<void(lua_State*)>& f;
    std::exception_ptr error;
  } call{f, nullptr};
  luaL_checkstack(L, 4, "a backward");
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

// Pushes slots, then varargs, then the function. Returns false if the function no longer exists.
bool push_call(lua_State* L, const CapturedCall& captured, const LuaCallee& callee, const std::vector<Tensor>& tensors,
               CallValues& at) {
  const int arguments = callee.push_arguments(L, tensors);
  luaL_checkstack(L, arguments + int(captured.slots.size()) + 8, "a backward");
  for (unsigned slot : captured.slots) int(slot) < arguments ? lua_pushvalue(L, int(slot) + 1) : lua_pushnil(L);
  for (int i = int(captured.parameters); captured.varargs && i < arguments; i++) lua_pushvalue(L, i + 1);
  for (int i = 0; i < arguments; i++) lua_remove(L, 1);
  const int nslots = int(captured.slots.size()), nargs = lua_gettop(L);
  at = {nslots, nargs, nargs + 1};
  if (callee.push_functions(L) == 0) return false;
  lua_settop(L, nargs + 1);
  return true;
}

// Makes a stand-in with the properties and the device of the future gradient. Only a one-element tensor has memory,
// since capture may read its element.
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

// Returns what a graph within another one must not check or do; null if there is nothing. repeats: it is the call of a
// checkpoint.
const char* refusal(const WholeCall& whole, const std::vector<int>& given, bool repeats) {
  const Effects& e = whole.entry->effects;
  const GuardProgram& p = whole.entry->guards;
  const bool writes = !e.table_writes.empty() || !e.metatable_writes.empty() || !e.upvalue_writes.empty();
  if (writes) return "it writes tables or variables";
  if (!e.grad_writes.empty() || !e.output_grads.empty() || !e.requires_grad_writes.empty() || !e.retained.empty() ||
      !e.hooks.empty() || !e.history_writes.empty() || !e.refused_outputs.empty() || whole.differentiates ||
      e.sets_grad_mode)
    return "it changes what gradients are";
  if (!e.written.empty()) return "it writes a tensor";
  if (e.draws.count || (whole.graph->rng_calls && !repeats)) return "it draws random numbers";
  if (e.seed.kind != Recipe::kNil) return "it sets the random state";
  if (!constants_of(*whole.graph).empty()) return "it makes a tensor of Lua values";
  const auto& scalars = p.scalar_sources;
  if (std::find(scalars.begin(), scalars.end(), nullptr) != scalars.end()) return "elements decide a size";
  for (size_t i = 0; i < p.tensors.size(); i++) {
    const auto varies = [](const std::vector<int64_t>& all) {
      return std::find(all.begin(), all.end(), -1) != all.end();
    };
    if (given[i] < 0 && (varies(p.tensors[i].sizes) || varies(p.tensors[i].strides)))
      return "it reads a tensor that mark_dynamic is about";
  }
  return nullptr;
}

bool is_of_gradients(Op op) { return op == Op::kGradLoad || op == Op::kGradNilCheck || op == Op::kGradTensorCheck; }

// Returns an error if guards read .grad, or check more than the properties of a tensor that does not exist yet. later:
// by input, whether it does not exist yet.
const char* asks_too_much(const GuardProgram& p, const std::vector<bool>& later) {
  std::set<int> registers;  // registers that hold such tensors
  const auto is_later = [&](const auto& member) { return bool(later[size_t(member.first)]); };
  const auto compares_later = [&](const GuardStep& s) {
    if (s.op != Op::kDistinctTensorsCheck) return registers.count(s.a) + registers.count(s.b) > 0;
    const auto& members = p.groups[size_t(s.index)].members;
    return std::any_of(members.begin(), members.end(), is_later);
  };
  for (const GuardStep& s : p.steps) {
    if (is_of_gradients(s.op)) return "it reads .grad";
    if (s.op == Op::kTensorCheck && later[size_t(s.index)]) {
      registers.insert(s.a);
    } else if (s.op != Op::kTypeCheck && compares_later(s)) {
      return "it asks which tensor the gradient is, or for its element";
    } else if (s.op == Op::kOverlapCheck) {
      return "it writes a tensor";
    }
  }
  return nullptr;
}

const char* bad_results(const WholeCall& whole) {
  for (const Recipe& r : whole.entry->effects.results) {
    if (r.kind == Recipe::kNil) continue;
    if (r.kind != Recipe::kTensorOut && r.kind != Recipe::kTensorIn) return "it gives no tensor";
    const size_t i = size_t(r.index);
    const bool out = r.kind == Recipe::kTensorOut;
    if (out ? whole.graph->outputs[i].tensor()->requires_grad : whole.graph->inputs[i].value->requires_grad)
      return "what it gives requires grad";
  }
  return nullptr;
}

// Returns the argument index of an input, counted from 0; -1 if it is not an argument.
int argument_of(const Source* source, const CapturedCall& call) {
  if (!source) return -1;
  if (source->kind == SourceKind::kArg) return int(call.slots[size_t(source->index)]);
  return source->kind == SourceKind::kVararg ? int(call.parameters) + source->index : -1;
}

// Returns CapturedCall::given. places: argument indices of the tensors.
std::vector<int> given_inputs(const WholeCall& whole, const CapturedCall& call, const std::vector<Tensor>& tensors,
                              const std::vector<int>& places) {
  std::vector<int> given(whole.inputs.size(), -1);
  for (size_t i = 0; i < whole.inputs.size(); i++) {
    const int argument = argument_of(whole.entry->guards.tensor_sources[i], call);
    for (size_t k = 0; k < tensors.size() && argument >= 0; k++) {
      if (places[k] == argument && whole.inputs[i].same(tensors[k])) given[i] = int(k);
    }
  }
  return given;
}

}  // namespace

CapturedCall::~CapturedCall() {
  const auto live = alive.lock();
  if (entry && live && *live) release_entry(L, *entry);
}

namespace {

uint64_t mixed(uint64_t key, uint64_t word) { return (key ^ word) * 0x9e3779b97f4a7c15ull + 1; }

// Returns the identity of the prototype of a method of the object's class or of one that it extends; 0 if it is not a
// Lua function.
uint64_t method_of(lua_State* L, int object, const char* name) {
  const int top = lua_gettop(L);
  uint64_t found = 0;
  bool more = lua_getmetatable(L, object);
  for (int depth = 0; more && depth < 16; depth++) {
    const int at = lua_gettop(L);
    lua_pushstring(L, name);
    lua_rawget(L, at);
    if (lua_isfunction(L, -1) && !lua_iscfunction(L, -1)) found = uint64_t(uintptr_t(prototype_identity(L, at + 1)));
    if (!lua_isnil(L, -1) || !lua_getmetatable(L, at)) break;
    lua_pushliteral(L, "__index");
    lua_rawget(L, -2);
    more = lua_istable(L, -1);
  }
  lua_settop(L, top);
  return found;
}

// Returns a key for the kind of a called object, such as a module, and of its parts, independent of its identity. It
// descends a few levels, over at most `parts` parts.
uint64_t kind_of(lua_State* L, int object, int levels, int& parts) {
  const int top = lua_gettop(L);
  luaL_checkstack(L, 8, "a backward");
  uint64_t key = mixed(method_of(L, object, "__call"), method_of(L, object, "forward"));
  for (const char* field : {"training", "_hooks"}) {
    lua_pushstring(L, field);
    lua_rawget(L, object);
    key = mixed(key, uint64_t(lua_toboolean(L, -1)));
  }
  lua_pushliteral(L, "_order");
  lua_rawget(L, object);
  const int order = lua_gettop(L), count = lua_istable(L, order) && levels > 0 ? int(lua_objlen(L, order)) : 0;
  for (int i = 1; i <= count && parts > 0; i++) {
    lua_rawgeti(L, order, i);
    lua_rawget(L, object);
    if (lua_istable(L, -1)) parts--, key = mixed(key, kind_of(L, lua_gettop(L), levels - 1, parts));
    lua_settop(L, order);
  }
  lua_settop(L, top);
  return key;
}

}  // namespace

uint64_t CallCaptures::key(const LuaCallee& callee) {
  lua_State* L = current_lua();
  if (!L || !lua_checkstack(L, 8)) return 0;
  const int top = lua_gettop(L);
  callee.push_functions(L);
  uint64_t key = 0;
  for (int i = top + 1; i <= lua_gettop(L); i++) {
    const bool known = lua_isfunction(L, i) && !lua_iscfunction(L, i);
    if (!known && i == top + 1) break;
    int parts = 64;
    if (lua_istable(L, i)) key = mixed(key, kind_of(L, i, 4, parts));
    if (known) key = mixed(key, uint64_t(uintptr_t(prototype_identity(L, i))));
  }
  lua_settop(L, top);
  return key;
}

std::vector<std::pair<int, Tensor>> CallCaptures::tensors(const LuaCallee& callee) {
  std::vector<std::pair<int, Tensor>> found;
  in_own_frame(current_lua(), [&](lua_State* L) {
    const int count = callee.push_arguments(L, {});
    for (int i = 0; i < count; i++) {
      if (const Tensor* t = to_tensor(L, i + 1)) found.emplace_back(i, *t);
    }
  });
  return found;
}

const std::string* CallCaptures::refused(uint64_t key) const {
  const auto it = refused_.find(key);
  return it == refused_.end() || !it->second.now ? nullptr : &it->second.why;
}

void CallCaptures::refuse(const CallRefused& refused) {
  constexpr int kMaxOdd = 3;
  Refusal& known = refused_[refused.key];
  known.why = refused.why, known.now = true;
  known.for_good = ++known.times >= kMaxOdd || !refused.odd;
}

void CallCaptures::begin_backward() {
  for (auto& [key, known] : refused_) known.now = known.for_good;
}

TraceOptions CallCaptures::options_for(uint64_t key) const {
  TraceOptions options;
  const auto known = lessons_.find(key);
  if (known == lessons_.end()) return options;
  options.loose_functions = known->second.loose_functions;
  for (const auto& [source, values] : known->second.values) options.changing_values[source] = int(values.size());
  return options;
}

namespace {

// Records the tensors that nodes of a trace save, with their versions at that time.
struct SeenSaves final : FakeSaves {
  struct Kept {
    Tensor tensor;
    uint32_t version, saver;
  };
  std::vector<Kept> kept;
  void takes(const Tensor&) override {}
  void made(const Tensor&) override {}
  void writes(const Tensor&) override {}
  void begin() override { kept.clear(); }
  void keeps(const Tensor& fake, uint32_t saver) override { kept.push_back({fake, fake->storage->version, saver}); }
};

// Sets the modes in which a checkpoint's call is repeated, for a scope. With null keeps the current modes.
class AsThen {
 public:
  explicit AsThen(const Checkpoint* checkpoint, Ref<CallWatch> watch = nullptr) : checkpoint_(checkpoint) {
    if (!checkpoint_) return;
    set_grad_enabled(true);
    set_autocast_mode(checkpoint_->autocast());
    modes().watch = std::move(watch);
  }
  ~AsThen() {
    if (!checkpoint_) return;
    modes().watch = watch_;
    set_autocast_mode(autocast_);
    set_grad_enabled(grad_);
  }
  AsThen(const AsThen&) = delete;

 private:
  const Checkpoint* const checkpoint_;
  const bool grad_ = grad_enabled();
  const AutocastMode autocast_ = autocast_mode();
  const Ref<CallWatch> watch_ = modes().watch;
};

// Returns whether the nodes save other tensors than those of the first call did.
bool saves_otherwise(const Checkpoint& checkpoint, const SeenSaves& saves) {
  const auto same = [](const auto& now, const auto& then) { return now.saver == then.saver; };
  const auto& then = checkpoint.kept();
  return !std::equal(saves.kept.begin(), saves.kept.end(), then.begin(), then.end(), same);
}

// Returns why the saved tensors cannot be given to the nodes of the first call; null if they can.
const char* saves_badly(const Graph& graph, const SeenSaves& saves) {
  std::unordered_set<const TensorImpl*> values;
  for (const auto& in : graph.inputs) values.insert(in.value.get());
  for (const auto& n : graph.nodes) {
    for (const Tensor& t : n->results) values.insert(t.get());
  }
  for (const auto& [t, version, saver] : saves.kept) {
    if (t->storage->version != version) return "it writes what its nodes save";
    if (!values.count(t.get())) return "it saves what is no value of its graph";
  }
  return nullptr;
}

// One attempt to capture a call.
struct CallCapture {
  TraceState& state;
  const PartCall& call;
  const std::vector<GivenTensor>& given;
  const TraceOptions& options;
  std::shared_ptr<CapturedCall> made = std::make_shared<CapturedCall>();
  std::string why{};
  bool odd = false;

  void refuse(const char* reason) {
    if (reason && why.empty()) why = reason;
  }

  void run(lua_State* L) {
    const ModeScope real(nullptr);
    if (call.callee->push_functions(L) == 0) return refuse("it is gone");
    LuaCode* code = code_of(state, L, 1);
    if (!code) return refuse("it is no Lua function");
    if (const std::string* reason = disabled_because(state, lua_topointer(L, 1))) return void(why = *reason);
    lua_settop(L, 0);
    const bc::Proto& proto = code->proto();
    made->slots = code->liveness().passable(1);
    made->parameters = proto.num_params, made->varargs = proto.vararg();
    made->place = str(code->file, ":", int(proto.first_line));
    std::vector<Tensor> tensors;
    std::map<int, std::set<int>> dims;
    for (size_t k = 0; k < given.size(); k++) {
      const bool later = given[k].fake && !given[k].real;
      made->stand_ins.push_back(later ? stand_in_for(given[k].fake) : Tensor());
      if (later) made->stand_ins.back()->requires_grad = given[k].requires_grad;
      tensors.push_back(later ? made->stand_ins.back() : given[k].real);
      if (given[k].fake) dims[call.places[k]] = symbolic_dims(given[k].fake);
    }
    CallValues at{};
    if (!push_call(L, *made, *call.callee, tensors, at)) return refuse("it is gone");
    const auto saves = make_ref<SeenSaves>();
    const AsThen then(call.repeats.get(), Ref<CallWatch>(saves.get()));
    WholeCall whole = capture_whole(L, state, {*code, 1, made->slots, proto.vararg()}, at, dims, options);
    made->entry = whole.entry, made->L = runtime(L).L, made->alive = runtime_alive(L);
    if (!whole.why.empty()) return why = whole.why, void(odd = whole.raises);
    made->given = given_inputs(whole, *made, tensors, call.places);
    std::vector<bool> later;
    for (int k : made->given) later.push_back(k >= 0 && made->stand_ins[size_t(k)]);
    refuse(refusal(whole, made->given, bool(call.repeats)));
    refuse(asks_too_much(whole.entry->guards, later));
    odd = why.empty() && call.repeats && saves_otherwise(*call.repeats, *saves);
    if (odd) refuse("its graph saves other tensors than its first call did");
    refuse(call.repeats ? saves_badly(*whole.graph, *saves) : bad_results(whole));
    made->graph = std::move(whole.graph);
    for (const auto& kept : saves->kept) made->kept.push_back(kept.tensor);
  }
};

}  // namespace

std::shared_ptr<CapturedCall> CallCaptures::capture(const PartCall& call, const std::vector<GivenTensor>& given) const {
  const TraceOptions options = options_for(call.key);
  CallCapture capture{state_, call, given, options};
  try {
    in_own_frame(current_lua(), [&](lua_State* L) { capture.run(L); });
  } catch (const Error& e) {
    if (e.kind != ErrorKind::kUser) throw;
    capture.why = e.what(), capture.odd = true;
  }
  if (!capture.why.empty()) throw CallRefused{call.key, capture.why, capture.odd};
  return capture.made;
}

namespace {

// Calls f with the values that the guard steps before the failed one have loaded.
template <class F>
void with_values(lua_State* L, const GuardProgram& p, int failed, const CallValues& at, int tables, F f) {
  GuardProgram until = p;
  until.steps.resize(size_t(failed));
  GuardValues values;
  if (run_guards(L, until, at, tables, &values) < 0) f(values);
}

// Records a miss because of another closure of a prototype, or of another number or string: the next capture accepts
// any. tables: stack index of the entry's tables.
void learn(lua_State* L, const Entry& e, int failed, const CallValues& at, int tables,
           const std::function<CallLessons&()>& lessons) {
  constexpr size_t kKnown = 8;
  const GuardStep& s = e.guards.steps[size_t(failed)];
  const bool compares =
      s.op == Op::kValueCheck || s.op == Op::kFieldCheck || s.op == Op::kGlobalCheck || s.op == Op::kUpvalueCheck;
  const bool closure = s.op == Op::kIdentityCheck && s.prototype;
  if (!s.source || (!compares && !closure)) return;
  with_values(L, e.guards, failed, at, tables, [&](const GuardValues& values) {
    const int now = values.base + s.a;
    if (closure && lua_isfunction(L, now) && prototype_number(L, now) == s.prototype)
      lessons().loose_functions.insert(s.source->text);
    if (!compares || (lua_type(L, now) != LUA_TNUMBER && lua_type(L, now) != LUA_TSTRING)) return;
    lua_pushvalue(L, now);
    const std::string value = lua_tostring(L, -1);
    auto& known = lessons().values[s.source->text];
    if (known.size() < kKnown) known.insert(value);
    lua_pop(L, 1);
  });
}

}  // namespace

bool CallCaptures::holds(const CapturedCall& captured, const PartCall& call, BackwardPart& part) {
  bool hold = false;
  std::vector<Tensor> tensors = captured.stand_ins;
  for (size_t k = 0; k < tensors.size(); k++) {
    if (call.tensors[k] >= 0 && !tensors[k]) tensors[k] = part.tensors[size_t(call.tensors[k])];
  }
  const AsThen then(call.repeats.get());
  in_own_frame(current_lua(), [&](lua_State* L) {
    CallValues at{};
    if (!push_call(L, captured, *call.callee, tensors, at)) return;
    const Entry& e = *captured.entry;
    GuardValues values;
    const int base = lua_gettop(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, e.constants);
    lua_rawgeti(L, LUA_REGISTRYINDEX, e.weak);
    int miss = NativeGuards::kUnsure;
    if (e.native) miss = e.native->run(L, at, &values);
    if (miss == NativeGuards::kUnsure) miss = run_guards(L, e.guards, at, base + 1, &values);
    hold = miss == -1;
    if (miss >= 0) learn(L, e, miss, at, base + 1, [&]() -> CallLessons& { return lessons_[call.key]; });
    for (size_t i = 0; hold && i < values.tensors.size(); i++) {
      if (captured.given[i] < 0) part.tensors.push_back(values.tensors[i]);
    }
    if (hold) part.numbers.insert(part.numbers.end(), values.scalars.begin(), values.scalars.end());
  });
  return hold;
}

}  // namespace lutra
