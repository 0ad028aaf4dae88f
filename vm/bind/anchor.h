// A Lua value that something of C++ needs: the value in, a way to it out, as long as somebody holds it.
//
// Invariants:
// 1. An anchor finds its value through a weak-valued table from ids to values. Who holds the value is another question.
// 2. The state holds it (kHeldKey: ids to values, or false), or the environments of userdata do. Those LuaJIT sees, so
//    that a cycle through the value and such a userdata is collected.
#pragma once
#include <memory>
#include <vector>

#include "ops/core/tensor.h"

struct lua_State;

namespace lutra {

class Anchor {
 public:
  // Of the value at the top, which stays there; held by the state.
  explicit Anchor(lua_State* L);
  Anchor(const Anchor&) = delete;
  ~Anchor() { drop(); }
  void drop();

  // Whether the state lives, and L is one of its threads.
  bool usable() const;
  bool is_of(lua_State* L) const;
  bool dropped() const { return id_ < 0; }
  bool is_state_alive() const {
    const auto live = alive_.lock();
    return live && *live;
  }
  lua_State* state() const { return L_; }
  void push(lua_State* L) const;
  // Whether the state holds it. Needs no memory.
  void hold(bool held);
  // Of the userdata at the top of L.
  void put_into_environment(lua_State* L) const;
  // Of the userdata of t, where it has one.
  void take_from_environment(const TensorImpl* t) const;

 private:
  lua_State* L_;
  std::weak_ptr<bool> alive_;
  int id_;
};

// A call of Lua code that a backward makes: its function and its arguments.
struct LuaCallee {
  virtual ~LuaCallee() = default;
  // Pushes the function, then those that it is known to call, or a table in their place; gives how many. 0: it is gone.
  virtual int push_functions(lua_State* L) const = 0;
  // Pushes the arguments, tensors in the place of those that the backward gives; a null one is nil. Gives how many.
  virtual int push_arguments(lua_State* L, const std::vector<Tensor>& tensors) const = 0;
};

// Keeps something for a tensor: is told when the tensor's userdata comes and goes.
struct UserdataKeeper : HookKeeper {
  // It is at the top of L, a thread of this state or of another one.
  virtual void gain_userdata(lua_State* L) = 0;
  virtual void lose_userdata() = 0;
};

}  // namespace lutra
