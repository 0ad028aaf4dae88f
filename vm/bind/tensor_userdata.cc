// Tensors as userdata. Invariants:
// 1. A live tensor has at most one userdata in a state: the weak-valued table Runtime::tensors maps push_key to it.
//    LuaJIT clears a weak value before its finalizer runs, so a dying userdata is never pushed again; the next push
//    makes a new one.
// 2. A userdata holds a reference, so the address that is its key is not reused while it is in the table.
// 3. TensorImpl::host is the userdata that was made last; a finalizer clears it only if it is its own.
// 4. A finalized userdata holds no tensor, and to_tensor returns null for it.
// LuaJIT does not count the bytes behind the userdata, so each push reports a new tensor (pressure.h).
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/functions.h"

#include <bit>
#include <cstddef>
#include <lua.hpp>
#include <new>

#include "vm/bind/binding.h"
#include "vm/bind/pressure.h"
#include "vm/bind/tensor_box.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"
#include "vm/mirror/mirror.h"

namespace lutra {

const char kTensorMagic = 0;

namespace {

void push_tensors(lua_State* L) { lua_rawgeti(L, LUA_REGISTRYINDEX, runtime(L).tensors); }

void drop_tensor(lua_State* L, TensorBox& box) {
  if (box.magic != &kTensorMagic) return;
  box.magic = nullptr;
  const Tensor t = std::move(box.tensor);
  box.tensor.~Tensor();
  if (t->host == &box) t->host = nullptr;
  t->changed();
  if (!t->autograd || t->autograd->hooks.empty()) return;
  push_known_tensor(L, t.get());
  if (lua_isnil(L, -1)) hooks_lose_userdata(*t->autograd);
  lua_pop(L, 1);
}

// Pushes the key of a tensor. LuaJIT's hash uses the low bits of an address directly, and tensors lie 512 bytes apart,
// so a thousand of them would share a dozen chains. So the key mixes higher bits into lower ones; different addresses
// have different keys.
void push_key(lua_State* L, const TensorImpl* t) {
  const auto at = std::bit_cast<uintptr_t>(t) / alignof(std::max_align_t);
  lua_pushlightuserdata(L, std::bit_cast<void*>(at ^ at >> 5));
}

int collect_tensor(lua_State* L) {
  auto* box = static_cast<TensorBox*>(lua_touserdata(L, 1));
  if (box) drop_tensor(L, *box);
  return 0;
}

}  // namespace

void open_tensor_userdata(lua_State* L) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  runtime(L).tensors = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_newtable(L);
  lua_pushcfunction(L, collect_tensor);
  lua_setfield(L, -2, "__gc");
  lua_pushvalue(L, -1);
  runtime(L).tensor_metatable = luaL_ref(L, LUA_REGISTRYINDEX);
  open_pressure();
  tell_places();
}

void drop_gone_tensors(lua_State* L, std::span<mirror::Udata* const> gone) {
  if (!lua_checkstack(L, 6)) return;
  const auto box_of = [](const mirror::Udata* u) { return static_cast<TensorBox*>(u->payload()); };
  push_tensors(L);
  for (const mirror::Udata* u : gone) {
    if (box_of(u)->magic != &kTensorMagic) continue;
    push_key(L, box_of(u)->tensor.get());
    lua_pushnil(L);
    lua_rawset(L, -3);
  }
  lua_pop(L, 1);
  for (const mirror::Udata* u : gone) drop_tensor(L, *box_of(u));
}

void push_known_tensor(lua_State* L, const TensorImpl* t) {
  if (!find_runtime(L)) return lua_pushnil(L);  // in a finalizer while the state closes
  push_tensors(L);
  push_key(L, t);
  lua_rawget(L, -2);
  lua_remove(L, -2);
}

void push_tensor_metatable(lua_State* L) { lua_rawgeti(L, LUA_REGISTRYINDEX, runtime(L).tensor_metatable); }

namespace {

// Makes the userdata of a tensor that has none in this state. It replaces the table of tensors at the top of the stack.
void push_new_userdata(lua_State* L, const Runtime& rt, Tensor t) {
  TensorImpl& i = *t.get();
  tell_collector(L, rt);
  void* memory = lua_newuserdata(L, sizeof(TensorBox));
  auto* box = new (memory) TensorBox{&kTensorMagic, std::move(t)};
  lua_rawgeti(L, LUA_REGISTRYINDEX, rt.tensor_metatable);
  lua_setmetatable(L, -2);
  // After a second userdata (in another state, or while the first is about to be finalized) every push searches the
  // table.
  i.host = i.host ? const_cast<char*>(&kTensorMagic) : static_cast<void*>(box);
  push_key(L, &i);
  lua_pushvalue(L, -2);
  lua_rawset(L, -4);
  lua_replace(L, -2);
  if (i.autograd && !i.autograd->hooks.empty()) hooks_gain_userdata(L, *i.autograd);
}

// Pushes the tensor's existing userdata. If there is none, pushes the table of tensors and returns false.
bool push_old_userdata(lua_State* L, const Runtime& rt, const TensorImpl& t) {
  if (t.sizes.size() > kMaxDims) fail_dims(t.sizes.size());
  luaL_checkstack(L, 5, "too many tensors");
  lua_rawgeti(L, LUA_REGISTRYINDEX, rt.tensors);
  if (!t.host) return false;  // it has no userdata in any state
  push_key(L, &t);
  lua_rawget(L, -2);
  const bool found = lua_type(L, -1) == LUA_TUSERDATA;
  found ? lua_replace(L, -2) : lua_pop(L, 1);
  return found;
}

}  // namespace

void push_tensor(lua_State* L, const Tensor& t) {
  if (!t) return lua_pushnil(L);
  const Runtime& rt = runtime(L);
  if (!push_old_userdata(L, rt, *t.get())) push_new_userdata(L, rt, t);
}

void push_tensor(lua_State* L, Tensor&& t) {
  if (!t) return lua_pushnil(L);
  const Runtime& rt = runtime(L);
  if (!push_old_userdata(L, rt, *t.get())) push_new_userdata(L, rt, std::move(t));
}

Tensor* tensor_in_userdata(void* payload, size_t bytes) {
  if (bytes != sizeof(TensorBox)) return nullptr;
  auto* box = static_cast<TensorBox*>(payload);
  return box->magic == &kTensorMagic ? &box->tensor : nullptr;
}

Tensor* to_tensor(lua_State* L, int idx) {
  if (lua_type(L, idx) != LUA_TUSERDATA || lua_objlen(L, idx) != sizeof(TensorBox)) return nullptr;
  auto* box = static_cast<TensorBox*>(lua_touserdata(L, idx));
  return box->magic == &kTensorMagic ? &box->tensor : nullptr;
}

}  // namespace lutra
