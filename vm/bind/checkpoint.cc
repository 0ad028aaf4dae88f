// The native part of lt.checkpoint: calls a function under a watch, and repeats the call for the backward.
#include <lua.hpp>

#include "ops/grad/checkpoint.h"
#include "ops/grad/tape.h"
#include "vm/bind/anchor.h"
#include "vm/bind/functions.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// A function and its arguments, in a Lua table. The userdata of the call's results keep the table alive, so that a
// function that captures its own result can be collected with it. Once something is computed from a result, or the last
// such userdata is collected, the state keeps the table alive: then a graph that LuaJIT cannot see may refer to the
// call.
class AnchoredCall final : public UserdataKeeper, public LuaCallee, public std::enable_shared_from_this<AnchoredCall> {
 public:
  // Makes a call of the values on the stack. object: a function of ours calls its first argument.
  static std::shared_ptr<AnchoredCall> of(lua_State* L, bool object) {
    const int count = lua_gettop(L);
    lua_createtable(L, count, 0);
    for (int i = 1; i <= count; i++) lua_pushvalue(L, i), lua_rawseti(L, -2, i);
    auto call = std::make_shared<AnchoredCall>(L, count, object);
    lua_pop(L, 1);
    return call;
  }
  AnchoredCall(lua_State* L, int count, bool object) : table_(L), count_(count), object_(object) {}

  void call() const {
    lua_State* now = current_lua();
    if (!now) fail("checkpoint: its function cannot be run again outside Lua");
    const int top = lua_gettop(now);
    luaL_checkstack(now, count_ + 2, "checkpoint");
    table_.push(now);
    for (int i = 1; i <= count_; i++) lua_rawgeti(now, top + 1, i);
    lua_call(now, count_ - 1, 0);
    lua_settop(now, top);
  }

  // Pushes our function and also the module that it calls.
  int push_functions(lua_State* L) const override {
    if (!table_.usable() || !table_.is_of(L)) return 0;
    luaL_checkstack(L, 3, "checkpoint");
    const int top = lua_gettop(L);
    table_.push(L);
    lua_rawgeti(L, -1, 1);
    if (object_) lua_rawgeti(L, -2, 2);
    lua_remove(L, top + 1);
    return lua_gettop(L) - top;
  }
  int push_arguments(lua_State* L, const std::vector<Tensor>&) const override {
    luaL_checkstack(L, count_ + 1, "checkpoint");
    const int top = lua_gettop(L);
    table_.push(L);
    for (int i = 2; i <= count_; i++) lua_rawgeti(L, top + 1, i);
    lua_remove(L, top + 1);
    return count_ - 1;
  }

  // Makes the userdata of the results, which are all values on the stack, keep the table alive.
  void keep_by_results(lua_State* L) {
    luaL_checkstack(L, 8, "checkpoint");
    const int top = lua_gettop(L);
    for (int i = 1; i <= top; i++) {
      Tensor* t = to_tensor(L, i);
      if (!t || !(*t)->autograd || !(*t)->autograd->grad_fn || is_argument(L, i)) continue;
      // Adds it to the hooks of the tensor itself, which do not run for non-leaves.
      (*t)->autograd->hooks.push_back({[](const Tensor&) { return Tensor(); }, shared_from_this()});
      lua_pushvalue(L, i);
      gain_userdata(L);
      lua_settop(L, top);
    }
  }

  void gain_userdata(lua_State* L) override {
    if (!table_.is_of(L)) return;
    table_.put_into_environment(L);
    holders_++;
    hold();
  }
  void lose_userdata() override {
    holders_--;
    hold();
  }
  void graph_leads_here(bool) override {
    graph_ = true;
    hold();
  }

  // Called when the call will not be repeated any more. Empties the table, since environments may still refer to it.
  void drop() {
    if (!table_.usable()) return;
    lua_State* L = table_.state();
    table_.push(L);
    for (int i = 1; i <= count_ && lua_istable(L, -1); i++) lua_pushnil(L), lua_rawseti(L, -2, i);
    lua_pop(L, 1);
    table_.drop();
  }

 private:
  bool is_argument(lua_State* L, int result) const {
    bool found = false;
    table_.push(L);
    for (int i = 1; i <= count_; i++) {
      lua_rawgeti(L, -1, i);
      found = found || lua_rawequal(L, -1, result);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return found;
  }

  void hold() { table_.hold(graph_ || holders_ == 0); }

  Anchor table_;
  int count_;
  bool object_;
  int holders_ = 0;
  bool graph_ = false;
};

// The checkpoint's ownership of its call.
struct Repetition {
  std::shared_ptr<AnchoredCall> call;
  explicit Repetition(std::shared_ptr<AnchoredCall> c) : call(std::move(c)) {}
  Repetition(const Repetition&) = delete;
  ~Repetition() { call->drop(); }
};

struct Watching {
  Ref<Checkpoint> checkpoint;
  explicit Watching(Ref<Checkpoint> c) : checkpoint(std::move(c)) { checkpoint->begin(); }
  ~Watching() { checkpoint->end(); }
};

}  // namespace

// (object, f, ...): calls f(...) under a watch. object: f is a function of ours that calls its first argument. A nested
// checkpoint is part of the outer one; without gradients there is nothing to save. C calls f, so f cannot yield: ops
// that other coroutines run meanwhile would be recorded as f's.
int checkpoint_of(lua_State* L) {
  const bool object = lua_toboolean(L, 1);
  lua_remove(L, 1);
  const int arguments = lua_gettop(L) - 1;
  if (modes().watch || !grad_enabled()) {
    lua_call(L, arguments, LUA_MULTRET);
    return lua_gettop(L);
  }
  const std::shared_ptr<AnchoredCall> call = AnchoredCall::of(L, object);
  auto repetition = std::make_shared<Repetition>(call);
  {
    const Watching scope(make_ref<Checkpoint>([repetition] { repetition->call->call(); }, call));
    repetition.reset();
    lua_call(L, arguments, LUA_MULTRET);
    call->keep_by_results(L);
  }
  return lua_gettop(L);
}

}  // namespace lutra
