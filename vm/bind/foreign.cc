// Memory of others as tensors: lt.from_blob, lt.from_ffi, lt.from_dlpack, x:to_dlpack.
//
// A table of the state keeps the Lua values that a storage needs: the cdata with its bytes, the function that it calls
// at the end. Invariants:
// 1. A storage may be freed on any thread, so its deleter only records that. The state releases the values at its next
//    check, which each collection runs.
// 2. When the state closes, the memory of its cdata is freed. Storages over it then count as freed.
#include "vm/bind/foreign.h"

#include <lua.hpp>
#include <memory>
#include <mutex>

#include "ops/core/closest.h"
#include "ops/core/dlpack.h"
#include "ops/core/foreign.h"
#include "vm/bind/functions.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

const char kKeeperKey = 0, kForeignValuesKey = 0;

// -- Lua values that storages need

struct Keeper {
  std::recursive_mutex mutex;
  bool open = true;
  std::vector<int> returned;
  std::unordered_map<int, Storage*> live;
};
using KeeperRef = std::shared_ptr<Keeper>;

void push_registry(lua_State* L, const char* key) {
  lua_pushlightuserdata(L, const_cast<char*>(key));
  lua_rawget(L, LUA_REGISTRYINDEX);
}

Keeper* keeper_of(lua_State* L) {
  push_registry(L, &kKeeperKey);
  auto* keeper = static_cast<KeeperRef*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return keeper ? keeper->get() : nullptr;
}

int close_keeper(lua_State* L) {
  auto* keeper = static_cast<KeeperRef*>(lua_touserdata(L, 1));
  {
    std::lock_guard lock((*keeper)->mutex);
    (*keeper)->open = false;
    for (const auto& [id, storage] : (*keeper)->live) storage->free();
    (*keeper)->live.clear();
  }
  keeper->~KeeperRef();
  lua_pushlightuserdata(L, const_cast<char*>(&kKeeperKey));
  lua_pushnil(L);
  lua_rawset(L, LUA_REGISTRYINDEX);
  return 0;
}

void* push_userdata_with_gc(lua_State* L, size_t bytes, lua_CFunction gc) {
  void* const memory = lua_newuserdata(L, bytes);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  return memory;
}

// A finalizer that runs in the next collection: it releases the values of freed storages, and creates the next such
// object.
int look_again(lua_State* L) {
  if (!keeper_of(L)) return 0;
  return_foreign(L);
  push_userdata_with_gc(L, 1, look_again);
  return 0;
}

const KeeperRef& make_keeper(lua_State* L) {
  push_registry(L, &kKeeperKey);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_pushlightuserdata(L, const_cast<char*>(&kForeignValuesKey));
    lua_newtable(L);
    lua_rawset(L, LUA_REGISTRYINDEX);
    lua_pushlightuserdata(L, const_cast<char*>(&kKeeperKey));
    auto made = std::make_shared<Keeper>();  // first: the finalizer must find a keeper
    auto* keeper = new (push_userdata_with_gc(L, sizeof(KeeperRef), close_keeper)) KeeperRef(std::move(made));
    lua_rawset(L, LUA_REGISTRYINDEX);
    push_userdata_with_gc(L, 1, look_again);
    lua_pop(L, 1);
    return *keeper;
  }
  auto* keeper = static_cast<KeeperRef*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return *keeper;
}

// Makes a tensor over data that keeps the Lua value at `kept` alive and calls the function at `deleter`; 0: none.
Tensor keeping(lua_State* L, void* data, const Sizes& sizes, const Sizes* strides, DType dtype, Device device, int kept,
               int deleter) {
  return_foreign(L);
  if (!kept && !deleter) return tensor_over(data, sizes, strides, dtype, device, {});
  const KeeperRef keeper = make_keeper(L);
  push_registry(L, &kForeignValuesKey);
  lua_createtable(L, 2, 0);
  if (kept) lua_pushvalue(L, kept), lua_rawseti(L, -2, 1);
  if (deleter) lua_pushvalue(L, deleter), lua_rawseti(L, -2, 2);
  lua_pushnumber(L, double(reinterpret_cast<uintptr_t>(data)));
  lua_rawseti(L, -2, 3);
  const int id = luaL_ref(L, -2);
  try {
    Tensor t = tensor_over(data, sizes, strides, dtype, device, [keeper, id](void*) {
      std::lock_guard lock(keeper->mutex);
      if (!keeper->open) return;
      keeper->live.erase(id);
      keeper->returned.push_back(id);
    });
    std::lock_guard lock(keeper->mutex);
    keeper->live[id] = t->storage.get();
    lua_pop(L, 1);
    return t;
  } catch (const Error&) {
    luaL_unref(L, -1, id);
    throw;
  }
}

// -- cdata

// Lua functions for what the C API cannot do: the address of a pointer or array; the DLPack struct type of a pointer; a
// pointer to such a struct that releases it when collected. The structs stay incomplete types, so that a program may
// define them.
const LuaFunctions kPointers = {
    "=lutra.foreign",

    "local ffi = require 'ffi'\n"
    "ffi.cdef 'struct DLManagedTensorVersioned; struct DLManagedTensor;'\n"
    "local structs = {ffi.typeof('struct DLManagedTensorVersioned *'), ffi.typeof('struct DLManagedTensor *')}\n"
    "return function(p) return tonumber(ffi.cast('uintptr_t', ffi.cast('const void *', p))) end,\n"
    "       function(p) return ffi.istype(structs[1], p) and 1 or ffi.istype(structs[2], p) and 2 or 0 end,\n"
    "       function(at, which, release) return ffi.gc(ffi.cast(structs[which], at), release) end\n",
    3};
enum Pointers { kAddress = 1, kWhichStruct, kMakePointer };

double ask_pointer(lua_State* L, Pointers which, int idx) {
  kPointers.push(L, which);
  lua_pushvalue(L, idx);
  lua_call(L, 1, 1);
  const double result = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return result;
}

// Returns the pointer stored in the cdata at idx.
void*& pointer_in(lua_State* L, int idx) { return *static_cast<void**>(const_cast<void*>(lua_topointer(L, idx))); }

// -- DLPack

template <class Managed>
int release(lua_State* L) {
  if (auto* managed = static_cast<Managed*>(std::exchange(pointer_in(L, 1), nullptr))) managed->deleter(managed);
  return 0;
}

int from_dlpack_raw(lua_State* L) {
  check_not_sandboxed("from_dlpack");
  const int which = lua_type(L, 1) == kCdataType ? int(ask_pointer(L, kWhichStruct, 1)) : 0;
  if (which == 0) {
    fail(
        "from_dlpack: argument 'ext_tensor' must be a pointer to struct DLManagedTensorVersioned or DLManagedTensor, "
        "got ",
        LuaReader(L).describe(0));
  }
  void*& pointer = pointer_in(L, 1);
  Tensor t;
  try {
    t = which == 1 ? from_dlpack(static_cast<DLManagedTensorVersioned*>(pointer))
                   : from_dlpack(static_cast<DLManagedTensor*>(pointer));
  } catch (const Error& e) {
    throw Error(e.kind, str("from_dlpack: ", e.what()));
  }
  pointer = nullptr;  // the tensor owns it now
  push_tensor(L, t);
  return 1;
}

int to_dlpack_raw(lua_State* L) {
  check_not_sandboxed("to_dlpack");
  const Tensor* self = to_tensor(L, 1);
  if (!self) fail("to_dlpack: argument 'input' must be a Tensor, got ", luaL_typename(L, 1));
  const Tensor t = *self;
  bool versioned = true;
  if (!lua_isnoneornil(L, 2)) {
    if (!lua_istable(L, 2)) fail("to_dlpack: options are a table, got ", luaL_typename(L, 2));
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
      const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
      if (key != "versioned") fail("to_dlpack: unknown option '", key, "'", KnownNames{"versioned"}.known(key));
      if (!lua_isboolean(L, -1)) fail("to_dlpack: option 'versioned' must be a boolean, got ", luaL_typename(L, -1));
      versioned = lua_toboolean(L, -1);
    }
  }
  kPointers.push(L, kMakePointer);
  void* const made = versioned ? static_cast<void*>(to_dlpack(t)) : to_dlpack_unversioned(t);
  lua_pushlightuserdata(L, made);
  lua_pushinteger(L, versioned ? 1 : 2);
  lua_pushcfunction(L, versioned ? release<DLManagedTensorVersioned> : release<DLManagedTensor>);
  lua_call(L, 3, 1);
  return 1;
}

// -- memory

// lt.from_ffi(array)
int from_ffi(lua_State* L) {
  check_not_sandboxed("from_ffi");
  CArray array;
  if (!to_c_array(L, 1, &array)) {
    fail("from_ffi: argument 'array' must be an array of numbers made by ffi.new, got ", LuaReader(L).describe(0),
         lua_type(L, 1) == kCdataType ? " (a pointer goes to from_blob, with sizes and dtype)" : "");
  }
  push_tensor(L, keeping(L, const_cast<void*>(array.data), array.sizes, nullptr, array.dtype, Device{}, 1, 0));
  return 1;
}

Sizes read_list(const char* argument, ArgReader& in, ArgReader::H h) {
  Sizes out;
  if (in.kind(h) == LuaKind::kNumber) return {read_int("from_blob", argument, in, h)};
  if (in.kind(h) != LuaKind::kTable) {
    fail("from_blob: argument '", argument, "' must be a list of integers, got ", in.describe(h));
  }
  for (int64_t i = 1, n = in.length(h); i <= n; i++) out.push_back(read_int("from_blob", argument, in, in.index(h, i)));
  return out;
}

DType read_dtype(ArgReader& in, ArgReader::H h) {
  if (in.kind(h) == LuaKind::kNil) return DType::kFloat32;
  const DType dtype = in.kind(h) == LuaKind::kString ? dtype_from_name(in.string(h)) : DType::kNone;
  if (dtype == DType::kNone) fail("from_blob: argument 'dtype' must be a dtype, got ", in.describe(h));
  return dtype;
}

// lt.from_blob(pointer, sizes, {dtype =, strides =, device =, deleter =})
int from_blob(lua_State* L) {
  check_not_sandboxed("from_blob");
  lua_settop(L, 3);
  const bool is_cdata = lua_type(L, 1) == kCdataType;
  LuaReader in(L);
  if (!is_cdata && lua_type(L, 1) != LUA_TNUMBER && !lua_islightuserdata(L, 1)) {
    fail("from_blob: argument 'pointer' must be a pointer or an address, got ", in.describe(0));
  }
  const double address = is_cdata ? ask_pointer(L, kAddress, 1) : lua_tonumber(L, 1);
  if (!(address >= 0 && address < 0x1p53) || address != double(uint64_t(address))) {
    fail("from_blob: ", in.describe(0), " is no address");
  }
  void* data = lua_islightuserdata(L, 1) ? lua_touserdata(L, 1) : reinterpret_cast<void*>(uintptr_t(address));
  const Sizes sizes = read_list("sizes", in, 1);
  Sizes strides;
  bool has_strides = false;
  DType dtype = DType::kFloat32;
  Device device;
  int deleter = 0;
  if (in.kind(2) != LuaKind::kNil) {
    const KnownNames known = {"dtype", "strides", "device", "deleter"};
    if (in.kind(2) != LuaKind::kTable) fail("from_blob: options are a table, got ", in.describe(2));
    for (const std::string& key : in.keys(2)) {
      if (!known.have(key)) fail("from_blob: unknown option '", key, "'", known.known(key));
    }
    const auto steps = in.field(2, "strides"), at = in.field(2, "device"), end = in.field(2, "deleter");
    dtype = read_dtype(in, in.field(2, "dtype"));
    has_strides = in.kind(steps) != LuaKind::kNil;
    if (has_strides) strides = read_list("strides", in, steps);
    if (in.kind(at) != LuaKind::kNil) device = read_device("from_blob", "device", in, at);
    if (in.kind(end) == LuaKind::kFunction) deleter = end + 1;
    if (!deleter && in.kind(end) != LuaKind::kNil) {
      fail("from_blob: option 'deleter' must be a function, got ", in.describe(end));
    }
  }
  push_tensor(L, keeping(L, data, sizes, has_strides ? &strides : nullptr, dtype, device, is_cdata ? 1 : 0, deleter));
  return 1;
}

const Special kForeignSpecials[] = {
    {"from_blob", kFunctionOf | kHostEffect, nullptr, from_blob},
    {"from_ffi", kFunctionOf | kHostEffect, nullptr, from_ffi},
    {"from_dlpack", kFunctionOf | kHostEffect, nullptr, from_dlpack_raw},
    {"to_dlpack", kMethod | kNeedsData, nullptr, to_dlpack_raw},
};

}  // namespace

void return_foreign(lua_State* L) {
  Keeper* keeper = keeper_of(L);
  if (!keeper) return;
  std::vector<int> returned;
  {
    std::lock_guard lock(keeper->mutex);
    returned.swap(keeper->returned);
  }
  if (returned.empty() || !lua_checkstack(L, 6)) return;
  push_registry(L, &kForeignValuesKey);
  for (const int id : returned) {
    lua_rawgeti(L, -1, id);
    luaL_unref(L, -2, id);
    const int top = lua_gettop(L);
    lua_rawgeti(L, top, 2);
    lua_rawgeti(L, top, 3);
    if (!lua_isnil(L, top + 1)) lua_pcall(L, 1, 0, 0);  // errors are ignored, as in a finalizer
    lua_settop(L, top - 1);
  }
  lua_pop(L, 1);
}

std::span<const Special> foreign_specials() { return kForeignSpecials; }

}  // namespace lutra
