// Runs an entry: runs the compiled segment on the loaded values and applies its effects.
#include "vm/capture/segment/run.h"

#include <algorithm>
#include <lua.hpp>
#include <new>
#include <utility>

#include "jit/runtime/lines.h"
#include "ops/core/late_error.h"
#include "ops/core/overlap.h"
#include "ops/defs/autocast.h"
#include "ops/defs/call.h"
#include "ops/defs/element.h"
#include "ops/grad/saved_tensor.h"
#include "ops/grad/tape.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/trace/border.h"
#include "vm/capture/trace/state.h"
#include "vm/guard/random.h"
#include "vm/mirror/mirror.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

// The history of a result whose backward raises an error.
struct RefusedNode : GradNode {
  std::string why, op;
  Tensor read;  // null, or the tensor that was saved at version `expected` and written since
  uint32_t expected = 0;
  RefusedNode(const RefusedOutput& r, const std::vector<Tensor>& reached, const Tensor& t) : why(r.why), op(r.op) {
    link(*this, reached);
    if (!t) return;
    read = alias(t, t->sizes, t->strides, t->offset);  // an alias, since the history of t may lead here
    expected = t->storage->version - uint32_t(r.writes);
  }
  const char* name() const override { return "CompiledBackward"; }
  std::vector<Tensor> apply(const std::vector<Tensor>&, bool) override {
    if (read) fail_modified(read, op.c_str(), read->storage->version, expected);
    fail(why);
  }
  void release() override {}
};

struct EntryRunner {
  lua_State* L;
  Entry& e;
  GuardValues& values;
  const Effects& left = e.effects;
  std::vector<Value>& outputs = values.outputs;
  int constants = 0;  // stack index
  // Fresh tables, closures, texts, then operands of effects. They are on the stack, or in a table if there are many.
  // Their number, stack index before the first one, stack index of the table or 0.
  int kept = 0, kept_before = 0, kept_table = 0;

  Tensor tensor(const Recipe& r) const {
    return r.kind == Recipe::kTensorOut ? outputs[size_t(r.index)].tensor() : values.tensors[size_t(r.index)];
  }

  void compute() {
    if (!e.segment) return;
    const AutocastOff off;  // the graph contains the casts
    const auto& sources = e.guards.tensor_sources;
    std::vector<Tensor> fewer;
    for (size_t i = 0; e.takes_constants && i < values.tensors.size(); i++) {
      if (sources[i]) fewer.push_back(values.tensors[i]);
    }
    const std::vector<Tensor>& all = values.tensors;
    const std::vector<Tensor>& inputs = e.takes_constants ? fewer : all;
    if (e.callable) {
      call_backend(inputs);
    } else {
      outputs = e.segment->run(inputs, values.scalars, donors());
    }
  }

  // Sets the histories of the run's results.
  void leave_history() {
    for (int i : left.leaf_outputs) outputs[size_t(i)].tensor()->requires_grad = true;
    for (const RefusedOutput& r : left.refused_outputs) {
      std::vector<Tensor> reached;
      for (const Recipe& recipe : r.reached) reached.push_back(tensor(recipe));
      const Tensor read = r.read.kind == Recipe::kNil ? Tensor() : tensor(r.read);
      set_history(outputs[size_t(r.output)].tensor(), Ref<GradNode>(new RefusedNode(r, reached, read)), 0);
    }
    for (const HistoryWrite& w : left.history_writes) {
      if (!e.callable) take_history(values.tensors[size_t(w.input)], outputs[size_t(w.output)].tensor());
    }
    link_views();
  }

  // Returns whether inputs that get a history are no views. Guards do not distinguish views from other tensors.
  bool writable() const {
    return std::none_of(left.history_writes.begin(), left.history_writes.end(),
                        [&](const HistoryWrite& w) { return bool(values.tensors[size_t(w.input)]->base); });
  }

  // Returns the gradients that the segment replaces without reading them, and to which nothing else refers.
  std::vector<Donor> donors() const {
    std::vector<Donor> all;
    for (const GradWrite& w : left.grad_writes) {
      const Tensor& t = values.tensors[size_t(w.input)];
      if (w.value.kind != Recipe::kTensorOut || !t->autograd || !t->autograd->grad) continue;
      const TensorImpl& g = *t->autograd->grad.get();
      if (g.refs.load(std::memory_order_acquire) == 1 && g.storage) all.push_back({w.value.index, g.storage.get()});
    }
    return all;
  }

  static Tensor replay(const std::vector<ViewCall>& calls, const Tensor& base) {
    Tensor t = base;
    for (const ViewCall& c : calls) {
      Args args = c.args;
      args[0] = t;
      t = op1(c.op, std::move(args));
    }
    return t;
  }

  Tensor base_of(const ViewOutput& v) const {
    if (v.base.kind == Recipe::kTensorIn) return values.tensors[size_t(v.base.index)];
    if (v.base.kind == Recipe::kTensorOut) return outputs[size_t(v.base.index)].tensor();
    const Tensor y = outputs[size_t(v.output)].tensor();
    return alias(y, y->sizes, y->strides, y->offset);
  }

  // Makes output views real views of their bases. A view keeps its history as a result, since other results of the
  // segment may depend on it.
  void link_views() {
    for (int i : left.hidden_bases) outputs[size_t(i)].tensor()->hidden_base = true;
    for (const ViewOutput& v : left.view_outputs) {
      const Tensor y = outputs[size_t(v.output)].tensor();
      const GradModeScope mode(v.recorded);
      Tensor base = base_of(v);
      if (v.complex) base = complex_view(base);
      if (v.base.kind == Recipe::kNil || !v.recorded) {
        y->base = base->base && !v.complex ? base->base : base;
        continue;
      }
      if (v.symbolic && overlaps_itself(y)) continue;  // it cannot be written to
      const Tensor view = v.symbolic || v.complex ? view_by_places(base, y) : replay(v.calls, base);
      view->autograd = nullptr;
      view->requires_grad = y->requires_grad;
      if (y->requires_grad && !is_leaf(y)) set_history(view, gradient_edge(y).node, gradient_edge(y).result);
      outputs[size_t(v.output)] = view;
    }
  }

  // Calls a user's backend with the inputs, then the numbers. It returns the outputs in order.
  void call_backend(const std::vector<Tensor>& inputs) {
    const int top = lua_gettop(L), n = int(inputs.size() + values.scalars.size());
    luaL_checkstack(L, n + int(e.outputs) + 8, "a backend");
    lua_rawgeti(L, LUA_REGISTRYINDEX, e.callable);
    for (const Tensor& t : inputs) push_tensor(L, t);
    for (double d : values.scalars) lua_pushnumber(L, d);
    lua_call(L, n, int(e.outputs));
    for (size_t i = 0; i < e.outputs; i++) {
      Tensor* t = to_tensor(L, top + 1 + int(i));
      if (!t) fail("compile: the backend's function gave no tensor as result ", i + 1);
      outputs.push_back(*t);
    }
    lua_settop(L, top);
  }

  void push(const Recipe& r) {
    switch (r.kind) {
      case Recipe::kNil: return lua_pushnil(L);
      case Recipe::kFalse: return lua_pushboolean(L, 0);
      case Recipe::kTrue: return lua_pushboolean(L, 1);
      case Recipe::kConstant: return lua_rawgeti(L, constants, r.index);
      case Recipe::kTensorOut: {
        const Value& v = outputs[size_t(r.index)];
        return v.is_none() ? lua_pushnil(L) : push_tensor(L, v.as<Tensor>());
      }
      case Recipe::kItem: return push_value(L, Elements(outputs[size_t(r.index)].tensor()).at(0));
      case Recipe::kTensorIn: return push_tensor(L, values.tensors[size_t(r.index)]);
      case Recipe::kRegister: return lua_pushvalue(L, values.base + r.index);
      case Recipe::kSymbol: {
        const SymbolValue& v = values.symbols[size_t(r.index)];
        return push_number(L, e.guards.symbols.is_number(r.index) ? v.d : double(v.i));
      }
      case Recipe::kTable: return push_kept(r.index);
      case Recipe::kClosure: return push_kept(int(left.tables.size()) + r.index);
      case Recipe::kText: return push_kept(int(fresh()) + r.index);
      case Recipe::kResume: {
        const ResumeFrame& resume = e.resumes[size_t(r.index)];
        push(resume.function);
        resume.body->push_closure(L, lua_gettop(L));
        lua_remove(L, -2);
        return;
      }
    }
  }

  static constexpr size_t kOnStack = 1000;

  size_t fresh() const { return left.tables.size() + left.closures.size(); }
  size_t operands() const {
    return left.texts.size() + 3 * left.table_writes.size() +
           2 * (left.metatable_writes.size() + left.upvalue_writes.size()) + left.slot_writes.size();
  }
  bool keeps_in_table() const { return fresh() + operands() > kOnStack; }

  void keep() {  // pops
    ++kept;
    if (kept_table) lua_rawseti(L, kept_table, kept);
  }
  void push_kept(int i) { kept_table ? lua_rawgeti(L, kept_table, i + 1) : lua_pushvalue(L, kept_before + 1 + i); }
  // Returns the stack index of object i. It is valid until the stack is cut to its current top.
  int place_of(int i) {
    if (!kept_table) return kept_before + 1 + i;
    push_kept(i);
    return lua_gettop(L);
  }

  void make_texts() {
    for (const FreshText& text : left.texts) {
      const bool joins = text.function.kind == Recipe::kNil;
      if (!joins) push(text.function);
      for (const Recipe& r : text.args) push(r);
      const int n = int(text.args.size());
      joins ? lua_concat(L, n) : lua_call(L, n, 1);
      lua_tostring(L, -1);  // converts a single number, which lua_concat does not change
      keep();
    }
  }

  void make_objects() {
    if (keeps_in_table()) {
      lua_createtable(L, int(fresh() + operands()), 0);
      kept_table = lua_gettop(L);
    }
    kept_before = lua_gettop(L);
    for (const FreshTable& t : left.tables) {
      const bool by = t.maker.kind != Recipe::kNil;
      by ? push(t.maker), lua_call(L, 0, 1) : lua_createtable(L, t.array_size, t.hash_size);
      keep();
    }
    for (const FreshClosure& c : left.closures) {
      push(c.around);
      push_child_closure(L, lua_gettop(L), c.path);
      lua_remove(L, -2);
      keep();
    }
    make_texts();
    fill_tables();
    for (size_t i = 0; i < left.closures.size(); i++) fill_closure(left.closures[i], int(left.tables.size() + i));
  }

  // Sets t[key] = value for the key and value at the top of the stack, and pops them.
  void set_item(int table) {
    if (!lua_isnil(L, -2)) return lua_rawset(L, table);
    make_room(L, table, int(lua_tointeger(L, -1)));
    lua_pop(L, 2);
  }

  void fill_tables() {
    for (size_t i = 0; i < left.tables.size(); i++) {
      const int top = lua_gettop(L), table = place_of(int(i));
      for (const auto& [k, v] : left.tables[i].items) {
        push(k);
        push(v);
        set_item(table);
      }
      if (left.tables[i].metatable.kind != Recipe::kNil) {
        push(left.tables[i].metatable);
        lua_setmetatable(L, table);
      }
      lua_settop(L, top);
    }
  }

  void fill_closure(const FreshClosure& c, int place) {
    const int top = lua_gettop(L), closure = place_of(place);
    push(c.around);
    lua_getfenv(L, -1);
    lua_setfenv(L, closure);
    for (size_t i = 0; i < c.variables.size(); i++) {
      const FreshVariable& v = c.variables[i];
      if (v.function.kind == Recipe::kNil) {
        push(v.value);
        lua_setupvalue(L, closure, int(i) + 1);
      } else {
        push(v.function);
        lua_upvaluejoin(L, closure, int(i) + 1, lua_gettop(L), v.index + 1);
      }
    }
    lua_settop(L, top);
  }

  // Pushes all operands before the first write, since a write may drop the last reference to a later operand.
  void push_operands() {
    for (const TableWrite& w : left.table_writes) push(w.table), keep(), push(w.key), keep(), push(w.value), keep();
    for (const MetatableWrite& w : left.metatable_writes) push(w.table), keep(), push(w.metatable), keep();
    for (const UpvalueWrite& w : left.upvalue_writes) push(w.function), keep(), push(w.value), keep();
    for (const SlotWrite& w : left.slot_writes) push(w.value), keep();
  }

  // Applies effects on gradients: stored ones, those that backwards outside retain, and their hooks.
  void gradients() {
    for (const GradWrite& w : left.grad_writes) {
      const Tensor& t = values.tensors[size_t(w.input)];
      Tensor g;
      if (w.value.kind == Recipe::kTensorOut) g = outputs[size_t(w.value.index)].tensor();
      if (w.value.kind == Recipe::kTensorIn) g = values.tensors[size_t(w.value.index)];
      if (g || t->autograd) autograd_meta(t).grad = g;
    }
    for (const OutputGrad& w : left.output_grads) {
      autograd_meta(outputs[size_t(w.output)].tensor()).grad = tensor(w.value);
    }
    for (const Recipe& r : left.retained) retain_grad(tensor(r));
    for (const LeftHook& h : left.hooks) {
      push_method(L, "register_hook");
      push(h.tensor);
      push(h.function);
      lua_call(L, 2, 0);
    }
  }

  // Applies the writes; `at` is the first operand. Each place is written only once, so the order does not matter.
  void effects(int at) {
    for (size_t i = 0; i < left.table_writes.size(); i++, at += 3) {
      const int top = lua_gettop(L), table = place_of(at);
      push_kept(at + 1);
      push_kept(at + 2);
      set_item(table);
      lua_settop(L, top);
    }
    for (size_t i = 0; i < left.metatable_writes.size(); i++, at += 2) {
      const int top = lua_gettop(L), table = place_of(at);
      push_kept(at + 1);
      lua_setmetatable(L, table);
      lua_settop(L, top);
    }
    for (const UpvalueWrite& w : left.upvalue_writes) {
      const int top = lua_gettop(L), function = place_of(at);
      push_kept(at + 1);
      if (!lua_setupvalue(L, function, w.index + 1)) lua_pop(L, 1);
      lua_settop(L, top);
      at += 2;
    }
    for (const SlotWrite& w : left.slot_writes) {
      push_kept(at++);
      mirror::first_slot(L)[w.place] = mirror::top(L)[-1];
      lua_pop(L, 1);
    }
    gradients();
    if (left.draws.function.kind != Recipe::kNil) {
      push(left.draws.function);
      LuaRandom* state = random_of(L, lua_gettop(L));
      if (left.draws.seed.kind != Recipe::kNil) {
        push(left.draws.seed);
        seed_random(*state, lua_tonumber(L, -1));
        lua_pop(L, 1);
      }
      for (int i = 0; i < left.draws.count; i++) draw(*state);
      lua_pop(L, 1);
    }
    if (left.sets_grad_mode) set_grad_enabled(left.grad_mode);
    if (left.autocast != Effects::kNoAutocast) set_autocast_mode(unpack(left.autocast));
  }

  // Sets requires_grad of inputs as the run's tape needs it. Returns the old values.
  std::vector<char> set_requires_grad() {
    std::vector<char> before;
    for (const RequiresGradWrite& w : left.requires_grad_writes) {
      WatchedFlag& now = values.tensors[size_t(w.input)]->requires_grad;
      before.push_back(now);
      now = w.recorded;
    }
    return before;
  }

  // Sets requires_grad of inputs after a run. before: the old values if the run has failed, else null.
  void leave_requires_grad(const std::vector<char>* before) {
    for (size_t i = 0; i < left.requires_grad_writes.size(); i++) {
      const RequiresGradWrite& w = left.requires_grad_writes[i];
      values.tensors[size_t(w.input)]->requires_grad = before ? bool((*before)[i]) : w.value;
    }
  }

  // Sets the seed, before the run draws random numbers.
  void set_seed() {
    if (left.seed.kind == Recipe::kNil) return;
    const int top = lua_gettop(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, e.constants);
    constants = top + 1;
    push(left.seed);
    default_generator() = {uint64_t(int64_t(lua_tonumber(L, -1))), 0};
    lua_settop(L, top);
  }

  // Runs the code after the run. The run's writes are done, so it must not be repeated: errors of memory become
  // LateErrors.
  template <class F>
  static int behind_run(const F& rest) {
    try {
      return rest();
    } catch (const std::bad_alloc&) {
      throw LateError(Error(ErrorKind::kMemory, "no memory for what the segment leaves"));
    } catch (const Error& error) {
      if (error.kind == ErrorKind::kMemory) throw LateError(error);
      throw;
    }
  }

  // Runs a segment whose only effects are results.
  int run_plain() {
    if (!lua_checkstack(L, int(e.results.size()) + 24)) return 0;
    const AutocastOff off;  // the graph contains the casts
    const bool seen = values.views.size() == values.tensors.size();
    const InputView* const views = seen ? values.views.data() : nullptr;
    if (!e.plain || !e.plain->run(values.tensors, views, values.scalars.data(), outputs))
      outputs = e.segment->run(values.tensors, values.scalars, {}, seen ? &values.views : nullptr);
    return behind_run([&] {
      lua_pushinteger(L, e.exit + 1);
      for (const Recipe& r : e.results) {
        const bool last = e.results_differ && r.kind == Recipe::kTensorOut && !outputs[size_t(r.index)].is_none();
        last ? push_tensor(L, std::move(outputs[size_t(r.index)].as<Tensor>())) : push(r);
      }
      return int(e.results.size()) + 1;
    });
  }

  int run() {
    size_t parts = 0;
    for (const FreshText& text : left.texts) parts = std::max(parts, text.args.size());
    const size_t room = (keeps_in_table() ? 0 : fresh() + operands()) + std::max(parts, left.results.size());
    if (!lua_checkstack(L, int(room) + 24)) return 0;
    set_seed();
    const std::vector<char> before = set_requires_grad();
    try {
      compute();
      if (e.segment) behind_run([&] { return leave_history(), 0; });
    } catch (const std::exception&) {
      leave_requires_grad(&before);
      throw;
    }
    leave_requires_grad(nullptr);
    return behind_run([&] {
      lua_rawgeti(L, LUA_REGISTRYINDEX, e.constants);
      constants = lua_gettop(L);
      make_objects();
      const int at = kept;
      push_operands();
      lua_pushinteger(L, e.exit + 1);
      for (const Recipe& r : left.results) push(r);
      effects(at);
      return int(left.results.size()) + 1;
    });
  }
};

bool is_constant(const Recipe& r) {
  return r.kind == Recipe::kConstant || r.kind == Recipe::kTable || r.kind == Recipe::kClosure ||
         r.kind == Recipe::kText || r.kind == Recipe::kResume;
}

bool results_differ(const Entry& e) {
  std::vector<int> outputs;
  for (const Recipe& r : e.effects.results) {
    if (r.kind == Recipe::kItem) return false;
    if (r.kind == Recipe::kTensorOut) outputs.push_back(r.index);
  }
  std::sort(outputs.begin(), outputs.end());
  return std::adjacent_find(outputs.begin(), outputs.end()) == outputs.end();
}

bool leaves_results_only(const Entry& e) {
  const Effects& left = e.effects;
  const auto empty = [](const auto&... lists) { return (lists.empty() && ...); };
  return e.segment && e.resumes.empty() && !e.callable && !e.takes_constants &&
         left.draws.function.kind == Recipe::kNil && left.seed.kind == Recipe::kNil && !left.sets_grad_mode &&
         left.autocast == Effects::kNoAutocast &&
         empty(left.tables, left.closures, left.texts, left.table_writes, left.metatable_writes, left.upvalue_writes,
               left.slot_writes, left.grad_writes, left.requires_grad_writes, left.leaf_outputs, left.view_outputs,
               left.hidden_bases, left.output_grads, left.retained, left.hooks, left.history_writes,
               left.refused_outputs) &&
         std::none_of(left.results.begin(), left.results.end(), is_constant);
}

}  // namespace

void push_method(lua_State* L, const std::string& name) {
  lua_getfield(L, LUA_REGISTRYINDEX, "lutra.methods");
  lua_getfield(L, -1, name.c_str());
  if (!lua_isfunction(L, -1)) fail_internal("capture: method ", name, " is not found");
  lua_remove(L, -2);
}

int run_segment(lua_State* L, Entry& entry, GuardValues& values) {
  using Leaves = Entry::Leaves;
  EntryRunner runner{L, entry, values};
  if (entry.leaves == Leaves::kUnknown) {
    entry.leaves = leaves_results_only(entry) ? Leaves::kResults : Leaves::kMore;
    entry.results_differ = results_differ(entry);
    entry.results.assign(entry.effects.results.begin(), entry.effects.results.end());
    if (entry.leaves == Leaves::kResults) entry.plain = entry.segment->plain();
  }
  values.outputs.clear();  // of a run that failed
  const int n = entry.leaves == Leaves::kResults ? runner.run_plain() : runner.writable() ? runner.run() : 0;
  values.outputs.clear();
  return n;
}

}  // namespace lutra
