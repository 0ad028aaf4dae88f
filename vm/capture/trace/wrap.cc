// Trackers of values: makes Vars with their sources and guards from real Lua values.
#include <cmath>
#include <lua.hpp>

#include "ops/grad/tape.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/trace/border.h"
#include "vm/capture/trace/cdata.h"
#include "vm/capture/trace/coroutines.h"
#include "vm/capture/trace/read_numbers.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/texts.h"
#include "vm/capture/trace/trace.h"
#include "vm/capture/trace/unbacked_sizes.h"
#include "vm/mirror/prototypes.h"

namespace lutra {

void push_number(lua_State* L, double d) {
  if (!std::isnan(d) || std::signbit(d)) return lua_pushnumber(L, d);
  lua_getfield(L, LUA_REGISTRYINDEX, "lutra.positive_nan");
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  if (luaL_dostring(L, "local zero = 0; return -(zero / zero)")) fail_internal("a NaN: ", lua_tostring(L, -1));
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, "lutra.positive_nan");
}

int Trace::pin() {
  lua_rawseti(L, pins, ++pin_count);
  return pin_count;
}

void Trace::push_pin(int p) { lua_rawgeti(L, pins, p); }

namespace {
constexpr size_t kBytesAStep = 64;

Var* make(Trace& t, VarKind kind) {
  t.vars.emplace_back();
  t.vars.back().kind = kind;
  return &t.vars.back();
}
}  // namespace

Var* Trace::nil() { return make(*this, VarKind::kNil); }

Var* Trace::boolean(bool b) {
  Var* v = make(*this, VarKind::kBool);
  v->b = b;
  return v;
}

Var* Trace::number(double d) { return scalar(Scalar(d)); }

Var* Trace::scalar(const Scalar& s) {
  if (s.kind == Scalar::kBool) return boolean(s.i != 0);
  Var* v = make(*this, VarKind::kNumber);
  v->num = s;
  if (s.expr == 0) v->num = Scalar(s.to_double());
  return v;
}

Var* Trace::string(const std::string& s) {
  // Strings live as long as the capture, so one that grows in a loop takes the square of its length in memory.
  if (s.size() >= kBytesAStep) charge(s.size() / kBytesAStep);
  Var* v = make(*this, VarKind::kString);
  v->s = s;
  return v;
}

Var* Trace::tensor(const Tensor& fake) {
  if (!fake) return nil();
  if (fake->sizes.size() > kMaxDims) fail_dims(fake->sizes.size());
  Var* v = make(*this, VarKind::kTensor);
  v->tensor = fake;
  auto it = input_of_fake.find(fake.get());
  if (it != input_of_fake.end()) v->source = inputs[it->second].source;
  return v;
}

Var* Trace::fresh_table(int array_size, int hash_size) {
  tables.emplace_back();
  Table* t = &tables.back();
  t->array_size = array_size;
  t->hash_size = hash_size;
  t->order = ++fresh_tables;
  Var* v = make(*this, VarKind::kTable);
  v->table = t;
  return v;
}

Var* Trace::value(const Value& v) {
  if (v.is_none()) return nil();
  if (v.is<Tensor>()) return tensor(v.as<Tensor>());
  if (v.is<Scalar>()) return scalar(v.as<Scalar>());
  if (v.is<bool>()) return boolean(v.as<bool>());
  if (v.is<DType>()) return string(name(v.as<DType>()));
  if (v.is<Device>()) return string(to_string(v.as<Device>()));
  if (v.is<std::string>()) return string(v.as<std::string>());
  Var* list = fresh_table();
  double n = 0;
  if (v.is<Sizes>()) {
    for (const SymInt& s : v.as<Sizes>()) raw_set(list->table, number(++n), scalar(Scalar::of_sym(s)));
  } else {
    for (const Tensor& t : v.as<std::vector<Tensor>>()) raw_set(list->table, number(++n), tensor(t));
  }
  return list;
}

Var* Trace::wrap(const Source* source) {
  need_room(1);
  Var* v = make(*this, VarKind::kLazy);
  v->pin = pin();
  v->source = source;
  v->guarded = false;
  return v;
}

Var* Trace::constant_from_stack() {
  switch (lua_type(L, -1)) {
    case LUA_TNIL: return lua_pop(L, 1), nil();
    case LUA_TBOOLEAN: {
      bool b = lua_toboolean(L, -1);
      return lua_pop(L, 1), boolean(b);
    }
    case LUA_TNUMBER: {
      double d = lua_tonumber(L, -1);
      return lua_pop(L, 1), number(d);
    }
    case LUA_TSTRING: {
      size_t n;
      const char* p = lua_tolstring(L, -1, &n);
      std::string s(p, n);
      return lua_pop(L, 1), string(s);
    }
    case LUA_TFUNCTION: {
      Var* v = make(*this, VarKind::kFunction);
      v->id = lua_topointer(L, -1);
      v->builtin = find_builtin(state, v->id);
      v->binding = to_binding(L, -1);
      v->pin = pin();
      return v;
    }
    default:
      if (is_number_cdata(*this)) {
        Var* v = make(*this, VarKind::kObject);
        v->id = lua_topointer(L, -1);
        v->pin = pin();
        return v;
      }
      stop(Break::argument, {str("a function that gives a ", luaL_typename(L, -1))});
  }
}

Var* Trace::force(Var* v) {
  if (v->kind != VarKind::kLazy) return v;
  push_pin(v->pin);
  const int type = lua_type(L, -1);
  v->id = lua_topointer(L, -1);
  switch (type) {
    case LUA_TNIL:
      v->kind = VarKind::kNil;
      check(GuardOp::kNilCheck, v->source, 0, "nil");
      break;
    case LUA_TBOOLEAN:
      v->kind = VarKind::kBool;
      v->b = lua_toboolean(L, -1);
      v->guarded = true;
      check(GuardOp::kValueCheck, v->source, constant_slot(v), v->b ? "true" : "false");
      break;
    case LUA_TNUMBER:
      v->kind = VarKind::kNumber;
      v->num = Scalar(lua_tonumber(L, -1));
      check(GuardOp::kTypeCheck, v->source, type, "a number");
      break;
    case LUA_TSTRING: {
      size_t n;
      const char* p = lua_tolstring(L, -1, &n);
      v->kind = VarKind::kString;
      v->s.assign(p, n);
      check(GuardOp::kTypeCheck, v->source, type, "a string");
      break;
    }
    case LUA_TTABLE: force_table(v); break;
    case LUA_TUSERDATA: force_userdata(v); break;
    case LUA_TFUNCTION:
      v->kind = VarKind::kFunction;
      v->builtin = find_builtin(state, v->id);
      v->binding = to_binding(L, -1);
      check(GuardOp::kTypeCheck, v->source, type, "a function");
      break;
    default: v->kind = VarKind::kObject; check(GuardOp::kTypeCheck, v->source, type, str("a ", lua_typename(L, type)));
  }
  lua_pop(L, 1);
  return v;
}

void Trace::force_table(Var* v) {
  v->kind = VarKind::kTable;
  Table*& t = table_of_real[v->id];
  if (t) {
    const bool meta = v->source->kind == SourceKind::kMetatable;
    v->table = t;
    check_pair(meta ? GuardOp::kMetatableCheck : GuardOp::kSameCheck, v->source, t->source);
    return;
  }
  check(GuardOp::kTypeCheck, v->source, LUA_TTABLE, "a table");
  tables.emplace_back();
  t = &tables.back();
  t->pin = v->pin;
  t->source = v->source;
  v->table = t;
}

void Trace::force_userdata(Var* v) {
  Tensor* real = to_tensor(L, -1);
  if (!real) {
    v->kind = VarKind::kObject;
    check(GuardOp::kTypeCheck, v->source, LUA_TUSERDATA, "a userdata");
    return;
  }
  // v stays lazy if this stops the trace.
  auto it = input_of_real.find(real->get());
  if (it != input_of_real.end()) {
    TensorInput& in = inputs[it->second];
    // A gradient is loaded natively, so its object cannot be compared with a Lua value: read it again as one.
    if (in.source->kind == SourceKind::kGrad) {
      stop(Break::shared_gradient);
    }
    v->kind = VarKind::kTensor, v->tensor = in.fake;
    check_pair(GuardOp::kSameCheck, v->source, in.source);
    return;
  }
  const int input = add_tensor_input(*real, v->source);
  v->kind = VarKind::kTensor, v->tensor = inputs[input].fake;
  check(GuardOp::kTensorCheck, v->source, input);
}

TensorSpec Trace::spec_of(const Tensor& real, const Tensor& fake) {
  TensorSpec spec;
  spec.dtype = real->dtype;
  spec.device = real->device();
  spec.requires_grad = real->requires_grad;
  spec.leaf = is_leaf(real);
  bool symbolic = false;
  for (size_t d = 0; d < real->sizes.size(); d++) {
    symbolic = symbolic || fake->sizes[d].expr != 0;
    const int32_t size = fake->sizes[d].expr;
    const bool open = size && graph->env->made_range(size).low < kSymbolicSizes.low;
    spec.sizes.push_back(!size ? real->sizes[d].hint : open ? kOpenSize : kSymbolicSize);
    spec.strides.push_back(fake->strides[d].expr ? -1 : real->strides[d].hint);
  }
  spec.contiguous = symbolic && fake->strides.size() && contiguous_strides(real->sizes).size() == fake->strides.size();
  if (spec.contiguous) {
    const Sizes want = contiguous_strides(real->sizes);
    for (size_t d = 0; d < want.size(); d++) spec.contiguous = spec.contiguous && want[d].hint == real->strides[d].hint;
  }
  return spec;
}

// Returns whether a symbolic size may also be 0 or 1: if calls have passed such sizes, or if each size would need
// several segments, because loops are kept. The tensor must be contiguous, since the strides of others do not follow
// from sizes.
bool Trace::is_open(const Tensor& real, const Source& source, size_t dim) const {
  if (!options.small_sizes && decisions.kept_loops.empty()) return false;
  if (!open_sizes(dim).contains(real->sizes[dim].hint)) return false;
  if (decisions.closed_sizes.count(size_name(source.text, int(dim)))) return false;
  const Sizes want = contiguous_strides(real->sizes);
  return std::equal(want.begin(), want.end(), real->strides.begin(), real->strides.end(),
                    [](SymInt a, SymInt b) { return a.hint == b.hint; });
}

Sizes Trace::symbolic_sizes(const Tensor& real, const Source* source, int input) {
  const int rank = int(real->sizes.size());
  const auto is_dynamic = [&](const Mark& mark, int d) {
    if (mark.said) return mark.said > 0;
    if (options.dynamic == 0) return false;
    if (options.dynamic == 1 && !real->requires_grad) return true;
    return is_learnt(*source, d) || is_learnt(*source, d - rank);
  };
  Sizes sizes = real->sizes;
  SymEnv& env = *graph->env;
  for (int d = 0; d < rank; d++) {
    const Mark mark = mark_of(state, L, real, d);
    if (!is_dynamic(mark, d)) continue;
    const SymRange may = is_open(real, *source, size_t(d)) ? open_sizes(size_t(d)) : kSymbolicSizes;
    if (!may.contains(sizes[d].hint)) continue;
    env.assume_sizes(may);
    const int32_t size = env.leaf(SymOp::kSize, input, d, sizes[d].hint);
    sizes[d] = SymInt::of_expr(env, size);
    const SizeBounds any;
    if (mark.bounds.min > any.min) env.ask(SymCmp::kLe, env.constant(mark.bounds.min), size);
    if (mark.bounds.max < any.max) env.ask(SymCmp::kLe, size, env.constant(mark.bounds.max));
  }
  return sizes;
}

// Adds inputs for the constants that the recorder has added to the graph's inputs.
void Trace::add_constant_inputs() {
  while (inputs.size() < graph->inputs.size()) {
    const GraphInput& c = graph->inputs[inputs.size()];
    input_of_storage[c.value->storage.get()] = int(inputs.size());
    inputs.push_back({c.value, c.constant, nullptr, true, Tensor(), false, true, {}});
    program.tensors.emplace_back();
    program.tensor_sources.push_back(nullptr);
  }
}

int Trace::add_tensor_input(const Tensor& real, const Source* source) {
  if (real->storage->freed) stop(Break::raises, {"a freed tensor"});
  refresh_view(real);
  if (lost_history(real)) stop(Break::raises, {"a view whose gradient goes through a complex tensor"});
  add_constant_inputs();
  const auto memory = decisions.memories.find(real->storage.get());
  if (memory != decisions.memories.end()) return add_view_input(real, source, memory->second);
  const int input = int(graph->inputs.size());
  const Sizes want = contiguous_strides(real->sizes);
  bool contiguous = true;
  for (size_t d = 0; d < want.size(); d++) contiguous = contiguous && want[d].hint == real->strides[d].hint;
  const Sizes sizes = symbolic_sizes(real, source, input);
  Sizes strides = real->strides;
  bool any = false;
  for (const SymInt& s : sizes) any = any || !s.is_constant();
  if (any && contiguous) {
    strides = contiguous_strides(sizes);
  } else if (any) {
    for (int d = 0; d < int(strides.size()); d++) {
      const int64_t n = strides[d].hint;
      if (n > 1) strides[d] = SymInt::of_expr(*graph->env, graph->env->leaf(SymOp::kStride, input, d, n));
    }
  }
  Tensor fake = graph->add_input(source->text, sizes, strides, real->dtype, real->device());
  inputs.push_back({fake, real, source, false, Tensor(), real->requires_grad, false, border(fake, real)});
  input_of_real[real.get()] = input;
  input_of_fake[fake.get()] = input;
  input_of_storage[fake->storage.get()] = input;
  program.tensors.push_back(spec_of(real, fake));
  program.tensor_sources.push_back(source);
  return input;
}

bool Trace::truthy(Var* v) {
  force(v);
  if (v->kind == VarKind::kBool && v->tensor) stop(Break::needs_truth, {.dirty = true});
  return v->kind != VarKind::kNil && (v->kind != VarKind::kBool || v->b);
}

Scalar Trace::symbolic(Var* v) {
  if (v->tensor) return graph_number(*this, v);
  if (v->guarded || v->num.expr != 0) return v->num;
  const int index = int(program.scalar_sources.size());
  v->num = graph->add_scalar(v->source->text, v->num.d);
  program.scalar_sources.push_back(v->source);
  check(GuardOp::kNumberCheck, v->source, index, "a number");
  const auto variable = options.loop_variables.find(v->source->text);
  if (is_dynamic_number(*v->source) && (variable == options.loop_variables.end() || variable->second)) {
    SymEnv& env = *graph->env;
    const int32_t integer = env.ask_integer(v->num.expr);
    if (!integer) env.let_vary(v->num.expr);
    if (integer) v->num = Scalar::of_sym(SymInt::of_expr(env, integer));
  }
  return v->num;
}

std::optional<double> Trace::steady_element(const Tensor& input, bool (*is_wanted)(double)) {
  const auto at = input_of_fake.find(input.get());
  if (at == input_of_fake.end()) return {};
  const TensorInput& in = inputs[size_t(at->second)];
  const std::optional<double> element = only_element(in.real);
  if (!element || !is_wanted(*element) || !in.source || in.source->kind == SourceKind::kGrad || input->storage->version)
    return {};
  const Source* s = source(SourceKind::kElement, in.source, nullptr, 0, in.source->text + ":item()");
  if (is_dynamic_number(*s)) return {};
  lua_pushnumber(L, *element);
  return constant(force(wrap(s)));
}

const std::string& Trace::text(Var* v) {
  if (!v->guarded && v->source) stop_if_unsteady(*v->source);
  return pinned_text(v);
}

const std::string& Trace::pinned_text(Var* v) {
  if (v->text) pin_text(*this, v);
  if (!v->guarded) {
    v->guarded = true;
    check(GuardOp::kValueCheck, v->source, constant_slot(v), "\"" + v->s + "\"");
  }
  return v->s;
}

void Trace::guard_identity(Var* v) {
  if (v->identity_guarded || !v->source) return;
  v->identity_guarded = true;
  push_pin(v->pin);
  const std::string same = str("the same ", luaL_typename(L, -1));
  lua_pop(L, 1);
  check(GuardOp::kIdentityCheck, v->source, weak_slot(v->pin), same);
}

void Trace::guard_callee(Var* f) {
  if (f->identity_guarded || f->callee_guarded || !f->source) return;
  push_pin(f->pin);
  const bool modelled = f->builtin || f->binding;  // the trace depends on this function's behaviour
  const int prototype = modelled ? 0 : prototype_number(L, -1);
  const bool is_child = !children.empty() && prototype > 0 && children.count(original_proto(L, lua_gettop(L)));
  lua_pop(L, 1);
  f->callee_guarded = true;
  if (is_child) remade.insert(f->source);
  if (prototype && is_loose(f->source)) {
    check(GuardOp::kPrototypeCheck, f->source, prototype, "a closure of the same function");
    return;
  }
  guard_identity(f);
  if (program.steps.back().op == GuardOp::kIdentityCheck) program.steps.back().prototype = prototype;
}

bool Trace::is_real(Var* v) {
  force(v);
  switch (v->kind) {
    case VarKind::kTensor: return input_of_fake.count(v->tensor.get()) > 0;
    case VarKind::kTable: return v->table->pin != 0;
    case VarKind::kClosure: return false;
    case VarKind::kBinding: return false;
    case VarKind::kObject: return !coroutine_of(*this, v);
    default: return true;
  }
}

void Trace::push_real(Var* v) {
  force(v);
  switch (v->kind) {
    case VarKind::kNil: return lua_pushnil(L);
    case VarKind::kBool: return lua_pushboolean(L, truthy(v));
    case VarKind::kNumber: return push_number(L, constant(v));
    case VarKind::kString: text(v); return lua_pushlstring(L, v->s.data(), v->s.size());
    case VarKind::kTensor: return push_tensor(L, inputs[input_of_fake.at(v->tensor.get())].real);
    case VarKind::kTable: return push_pin(v->table->pin);
    default: return push_pin(v->pin);
  }
}

Key Trace::key(Var* v) {
  force(v);
  Key k;
  switch (v->kind) {
    case VarKind::kNumber:
      k.n = constant(v) + 0.0;
      if (k.n == 0) k.n = 0;
      break;
    case VarKind::kString:
      k.kind = Key::kString;
      k.s = text(v);
      break;
    case VarKind::kBool:
      k.kind = Key::kBool;
      k.n = truthy(v);
      break;
    default:
      k.kind = Key::kObject;
      k.p = v->kind == VarKind::kTensor    ? static_cast<const void*>(v->tensor.get())
            : v->kind == VarKind::kTable   ? static_cast<const void*>(v->table)
            : v->kind == VarKind::kClosure ? static_cast<const void*>(v->closure)
            : v->kind == VarKind::kBinding ? static_cast<const void*>(v->binding)
                                           : v->id;
      if (v->kind == VarKind::kFunction || v->kind == VarKind::kObject) guard_identity(v);
  }
  return k;
}

bool Trace::same(Var* a, Var* b) {
  force(a), force(b);
  if (a->kind != b->kind) return false;
  switch (a->kind) {
    case VarKind::kNil: return true;
    case VarKind::kBool: return truthy(a) == truthy(b);
    case VarKind::kString: {
      if (a->text && a->text == b->text) return true;
      for (Var* v : {a, b}) {
        if (v->text) pinned_text(v);
      }
      // A string that is not constant may have any other value.
      if (a->guarded == b->guarded || a->s == b->s) return pinned_text(a) == pinned_text(b);
      Var *known = a->guarded ? a : b, *other = a->guarded ? b : a;
      check(GuardOp::kNotValueCheck, other->source, constant_slot(known), "not \"" + known->s + "\"");
      return false;
    }
    case VarKind::kNumber: {
      if (a->guarded && b->guarded && !a->num.expr && !b->num.expr) return a->num.to_double() == b->num.to_double();
      SymEnv& env = *graph->env;
      const Scalar m = symbolic(a), n = symbolic(b);
      if (is_unbacked(*this, m.expr) || is_unbacked(*this, n.expr)) return unbacked_equal(*this, m, n);
      const int32_t x = number_expr(env, m), y = number_expr(env, n);
      return env.ask(SymCmp::kEq, x, y);
    }
    case VarKind::kTensor:
    case VarKind::kTable: {
      const bool equal = a->kind == VarKind::kTensor ? a->tensor.same(b->tensor) : a->table == b->table;
      if (equal) return true;
      const Source* x = a->kind == VarKind::kTensor ? a->source : a->table->source;
      const Source* y = b->kind == VarKind::kTensor ? b->source : b->table->source;
      if (!x || !y) return false;
      if (x->kind == SourceKind::kGrad || y->kind == SourceKind::kGrad) {  // not Lua values when guards run
        const GuardGroup both{1, {{input_of_fake.at(a->tensor.get()), 0}, {input_of_fake.at(b->tensor.get()), 0}}};
        check_group(GuardOp::kDistinctTensorsCheck, x, both, "not " + y->text);
      } else {
        check_pair(GuardOp::kNotSameCheck, x, y);
      }
      return false;
    }
    case VarKind::kClosure: return a->closure == b->closure;
    default:
      guard_identity(a), guard_identity(b);
      return a->kind == VarKind::kBinding ? a->binding == b->binding : a->id == b->id;
  }
}

}  // namespace lutra
