// A reference from C++ to a Lua value. It can be followed as long as something keeps the value alive.
//
// Invariants:
// 1. An anchor finds its value through a weak-valued table from ids to values. That table does not keep the value
//    alive.
// 2. The state keeps it alive (kHeldKey: ids to values, or false), or the environments of userdata do. LuaJIT traverses
//    these environments, so it can collect a cycle through the value and such a userdata.
#pragma once
#include <memory>
#include <vector>

#include "ops/core/tensor.h"

struct lua_State;

namespace lutra {

class Anchor {
 public:
  // Makes an anchor of the value at the top of the stack, which stays there. The state holds the value.
  explicit Anchor(lua_State* L);
  Anchor(const Anchor&) = delete;
  ~Anchor() { drop(); }
  void drop();

  // Return whether the anchor's state is alive; and whether L is one of its threads.
  bool usable() const;
  bool is_of(lua_State* L) const;
  bool dropped() const { return id_ < 0; }
  bool is_state_alive() const {
    const auto live = alive_.lock();
    return live && *live;
  }
  lua_State* state() const { return L_; }
  void push(lua_State* L) const;
  // Sets whether the state holds the value. Allocates no memory.
  void hold(bool held);
  // Adds the value to the environment of the userdata at the top of L.
  void put_into_environment(lua_State* L) const;
  // Removes the value from the environment of t's userdata, if it has one.
  void take_from_environment(const TensorImpl* t) const;

 private:
  lua_State* L_;
  std::weak_ptr<bool> alive_;
  int id_;
};

// A call of Lua code that a backward makes: its function and its arguments.
struct LuaCallee {
  virtual ~LuaCallee() = default;
  // Pushes the function, then the functions that it is known to call, or a table instead of these. Returns the number
  // of values; 0 if the function no longer exists.
  virtual int push_functions(lua_State* L) const = 0;
  // Pushes the arguments, with `tensors` as those that the backward passes; a null tensor becomes nil. Returns their
  // number.
  virtual int push_arguments(lua_State* L, const std::vector<Tensor>& tensors) const = 0;
};

// An object that a tensor keeps, and that is notified when the tensor's userdata is created and collected.
struct UserdataKeeper : HookKeeper {
  // The userdata is at the top of L, a thread of this state or of another one.
  virtual void gain_userdata(lua_State* L) = 0;
  virtual void lose_userdata() = 0;
};

}  // namespace lutra
