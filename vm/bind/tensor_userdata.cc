// Tensors as userdata. Invariants:
// 1. A live tensor has at most one userdata in a state: the weak-valued table Runtime::tensors maps push_key to it.
//    LuaJIT clears a weak value before its finalizer runs, so a dying userdata is never handed out again; the next push
//    makes a fresh one.
// 2. A userdata holds a reference, so the address that is its key stays taken while it is in the table.
// 3. TensorImpl::host is the userdata that was made last; a finalizer clears it only if it is its own.
// 4. A finalized userdata holds no tensor and is none for to_tensor.
// LuaJIT cannot see the bytes behind the userdata: each push tells its collector how much they have grown.
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/functions.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <lua.hpp>
#include <new>

#include "vm/bind/binding.h"
#include "vm/bind/tensor_box.h"
#include "vm/bind/userdata.h"
#include "vm/host/runtime.h"

namespace lutra {

const char kTensorMagic = 0;

namespace {

void push_tensors(lua_State* L) { lua_rawgeti(L, LUA_REGISTRYINDEX, runtime(L).tensors); }

// The key of a tensor. LuaJIT's hash takes the low bits of an address as they are, and tensors lie 512 bytes apart: a
// thousand of them would share a dozen chains. So higher bits are mixed into lower ones; no two addresses give one key.
void push_key(lua_State* L, const TensorImpl* t) {
  const auto at = std::bit_cast<uintptr_t>(t) / alignof(std::max_align_t);
  lua_pushlightuserdata(L, std::bit_cast<void*>(at ^ at >> 5));
}

int collect_tensor(lua_State* L) {
  auto* box = static_cast<TensorBox*>(lua_touserdata(L, 1));
  if (!box || box->magic != &kTensorMagic) return 0;
  if (box->tensor->host == box) box->tensor->host = nullptr;
  if (box->tensor->autograd && !box->tensor->autograd->hooks.empty()) {
    push_known_tensor(L, box->tensor.get());
    if (lua_isnil(L, -1)) hooks_lose_userdata(*box->tensor->autograd);
    lua_pop(L, 1);
  }
  box->magic = nullptr;
  box->tensor.~Tensor();
  return 0;
}

// What one kind of memory asks of the collector. A small heap is collected whole as soon as `least` bytes, or
// `per_heap_kb` for each KB of heap, have been allocated (a collection costs about 0.26 us a KB). A large heap is
// collected in steps: n KB = bytes / E * heap KB / 2 a push, E = max(`most`, live bytes), keeps the peak under E.
struct Pressure {
  double (*least)();
  double per_heap_kb, most;
  int64_t last = 0;
  double debt = 0, fresh = 0;
};

double least_on_host() { return 12 << 20; }
double least_on_device() {
  return std::clamp(double(device_memory_bytes()) / 40, 512.0 * 1024 * 1024, 2048.0 * 1024 * 1024);
}

// Whether the heap was collected whole.
bool press(lua_State* L, Pressure& p, int64_t now) {
  const int64_t grown = now - p.last;
  p.last = now;
  if (grown <= 0) return false;
  const double heap = lua_gc(L, LUA_GCCOUNT, 0);
  p.fresh += double(grown);
  if (heap * p.per_heap_kb < p.most) {
    if (p.fresh < std::max(p.least(), heap * p.per_heap_kb)) return false;
    lua_gc(L, LUA_GCCOLLECT, 0);
  } else {
    p.debt += double(grown) / std::max(p.most, double(now)) * heap * 0.5;
    if (p.debt < 1) return false;
    const int step = int(p.debt);
    p.debt -= step;
    lua_gc(L, LUA_GCSTEP, step);
  }
  p.fresh = 0;
  return true;
}

// Dead tensors of the CPU hold memory that is still in the processor's cache, so a small heap is collected as soon as
// about as much as that holds has been allocated: then results take turns in the same few blocks (a copy of 4 MB: 55
// us, not 90), at below 8 us a MB. A GPU fills a MB in 0.3 us, and a fortieth of its memory may hold what is dead: 0.1
// us a MB with 80 GB, 0.3 with 20 GB or less. Where memory runs out, the heap is collected before that is an error.
//
// Small dead tensors hold little, but some 600 bytes of the host's each: a few thousand leave the processor's cache,
// and each op then waits for memory several times (on a GPU 1.3 us for an op become 2.5).
//
// A collector that the host has stopped stays stopped: LuaJIT's is running again after each collection.
void tell_collector(lua_State* L) {
  constexpr double kLeastTensors = 2048, kTensorsPerHeapKb = 2, kMostHeapKb = 8192;
  static thread_local double fresh = 0;
  static thread_local Pressure host = {least_on_host, 32 << 10, 256 << 20};
  static thread_local Pressure device = {least_on_device, 512 << 10, double(int64_t(4) << 30)};
  if (!lua_gc(L, LUA_GCISRUNNING, 0)) return;
  const bool collected = press(L, host, allocated_bytes()), both = press(L, device, allocated_device_bytes());
  bool counted = false;
  if (++fresh >= kLeastTensors && !collected && !both) {
    const double heap = lua_gc(L, LUA_GCCOUNT, 0);
    counted = heap < kMostHeapKb && fresh >= heap * kTensorsPerHeapKb;
    if (counted) lua_gc(L, LUA_GCCOLLECT, 0);
  }
  if (!collected && !both && !counted) return;
  fresh = 0;
  host.last = allocated_bytes();
  device.last = allocated_device_bytes();
}

bool collect_all(size_t) {
  lua_State* L = current_lua();
  if (!L) return false;
  const auto live = [] { return allocated_bytes() + allocated_device_bytes(); };
  const int64_t before = live();
  lua_gc(L, LUA_GCCOLLECT, 0);
  return live() < before;
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
  set_memory_pressure_hook(collect_all);
  tell_places();
}

void push_known_tensor(lua_State* L, const TensorImpl* t) {
  if (!find_runtime(L)) return lua_pushnil(L);  // a finalizer, while the state closes
  push_tensors(L);
  push_key(L, t);
  lua_rawget(L, -2);
  lua_remove(L, -2);
}

void push_tensor_metatable(lua_State* L) { lua_rawgeti(L, LUA_REGISTRYINDEX, runtime(L).tensor_metatable); }

namespace {

// Stack: the table of tensors. Of a tensor without a userdata in this state, which takes the table's place.
void push_new_userdata(lua_State* L, const Runtime& rt, Tensor t) {
  TensorImpl& i = *t.get();
  tell_collector(L);
  void* memory = lua_newuserdata(L, sizeof(TensorBox));
  auto* box = new (memory) TensorBox{&kTensorMagic, std::move(t)};
  lua_rawgeti(L, LUA_REGISTRYINDEX, rt.tensor_metatable);
  lua_setmetatable(L, -2);
  // A second userdata (in another state, or after one that is about to be finalized): always look from now on.
  i.host = i.host ? const_cast<char*>(&kTensorMagic) : static_cast<void*>(box);
  push_key(L, &i);
  lua_pushvalue(L, -2);
  lua_rawset(L, -4);
  lua_replace(L, -2);
  if (i.autograd && !i.autograd->hooks.empty()) hooks_gain_userdata(L, *i.autograd);
}

// False: the table of tensors is pushed instead.
bool push_old_userdata(lua_State* L, const Runtime& rt, const TensorImpl& t) {
  if (t.sizes.size() > kMostDims) fail_dims(t.sizes.size());
  luaL_checkstack(L, 5, "too many tensors");
  lua_rawgeti(L, LUA_REGISTRYINDEX, rt.tensors);
  if (!t.host) return false;  // without a userdata in any state there is none to look for
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
