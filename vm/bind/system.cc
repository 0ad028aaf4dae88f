// Functions about the library as a whole: the seed, threads, memory, the default device.
#include <cmath>
#include <cstring>
#include <lua.hpp>

#include "jit/runtime/pool.h"
#include "ops/core/closest.h"
#include "ops/core/current_device.h"
#include "ops/core/disk_cache.h"
#include "ops/core/settings.h"
#include "ops/core/storage.h"
#include "ops/extern/precision.h"
#include "vm/bind/functions.h"
#include "vm/bind/idx.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/host/limits.h"
#include "vm/host/modes.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

int manual_seed(lua_State* L) {
  LuaReader in(L);
  const LuaKind kind = in.kind(0);
  if (kind != LuaKind::kNumber && kind != LuaKind::kInt64) {
    fail("manual_seed: argument 'seed' must be an integer, got ", in.describe(0));
  }
  const SymInt seed = read_int("manual_seed", "seed", in, 0);
  default_generator().seed = uint64_t(seed.hint);
  default_generator().next_call = 0;
  return 0;
}

int initial_seed(lua_State* L) {
  push_int64(L, int64_t(default_generator().seed));
  return 1;
}

// The random state: the seed and the number of the next call, as a byte tensor.
constexpr DType kByte = DType::kUInt8;

int get_rng_state(lua_State* L) {
  const Generator g = default_generator();
  const Tensor t = make_tensor({int64_t(sizeof g)}, kByte);
  std::memcpy(t->storage->data, &g, sizeof g);
  push_tensor(L, t);
  return 1;
}

int set_rng_state(lua_State* L) {
  LuaReader in(L);
  if (in.kind(0) != LuaKind::kTensor) {
    fail("set_rng_state: argument 'new_state' must be a Tensor, got ", in.describe(0));
  }
  const Tensor t = in.tensor(0);
  if (t->storage->freed) fail("set_rng_state: argument 'new_state' was freed (x:free())");
  const bool fits = t->dtype == kByte && t->device() == Device{} && t->is_contiguous();
  if (!fits || t->numel().hint != sizeof(Generator)) {
    fail("set_rng_state: a state is what get_rng_state gives, ", sizeof(Generator), " bytes, got ", describe(t));
  }
  std::memcpy(&default_generator(), static_cast<const char*>(t->storage->data) + t->offset.hint, sizeof(Generator));
  return 0;
}

int get_num_threads(lua_State* L) {
  lua_pushinteger(L, thread_count());
  return 1;
}

int set_num_threads(lua_State* L) {
  LuaReader in(L);
  if (in.kind(0) != LuaKind::kNumber) {
    fail("set_num_threads: argument 'n' must be an integer, got ", in.describe(0));
  }
  const int64_t n = read_int("set_num_threads", "n", in, 0).hint;
  if (n < 1 || n > 4096) fail("set_num_threads: expects a positive number of threads, got ", n);
  runtime(L).config.num_threads = int(n);
  settings().num_threads = int(n);
  return 0;
}

// Returns {allocated = bytes of all live CPU tensors, device = of GPU tensors, state = of this state's tensors, lua =
// bytes of Lua's own heap}.
int memory(lua_State* L) {
  lua_createtable(L, 0, 4);
  lua_pushnumber(L, double(modes_of(L)->account->tensors.load()));
  lua_setfield(L, -2, "state");
  lua_pushnumber(L, double(allocated_bytes()));
  lua_setfield(L, -2, "allocated");
  lua_pushnumber(L, double(allocated_device_bytes()));
  lua_setfield(L, -2, "device");
  lua_pushnumber(L, lua_gc(L, LUA_GCCOUNT, 0) * 1024.0 + lua_gc(L, LUA_GCCOUNTB, 0));
  lua_setfield(L, -2, "lua");
  return 1;
}

int set_default_device_impl(lua_State* L) {
  LuaReader in(L);
  set_default_device(read_device("set_default_device", "device", in, 0));
  return 0;
}

// lt.device("cuda", 1): devices are strings.
LuaResults device(const Binding&, ArgReader& in) {
  if (in.kind(0) == LuaKind::kString && in.kind(1) == LuaKind::kNil) {
    parse_device("device", "type", in, 0);
    return {in.string(0)};
  }
  Device d = parse_device("device", "type", in, 0);
  if (in.kind(1) == LuaKind::kNil) return {to_string(d)};
  if (in.kind(0) != LuaKind::kString || in.string(0).find(':') != std::string::npos) {
    fail("device: the index is given twice, in ", in.describe(0), " and ", in.describe(1));
  }
  const Device at = parse_device("device", "index", in, 1);
  if (d.type == DeviceType::kCPU && at.index > 0) fail("device: there is one CPU, got index ", int(at.index));
  return {to_string(d.type == DeviceType::kCPU ? d : at)};
}

// (function name, device) -> device. Checks that the device exists.
LuaResults checked_device(const Binding&, ArgReader& in) {
  return {to_string(read_device(in.string(0), "device", in, 1))};
}

int get_default_device(lua_State* L) {
  const Value device = default_device_value();
  const std::string text = to_string(device.is_none() ? Device{} : device.as<Device>());
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

// (options, known names) -> whether some option is unknown. Unlike a loop over pairs it does not depend on the order of
// keys, so capture accepts any table.
LuaResults has_unknown(const Binding&, ArgReader& in) {
  if (in.kind(0) != LuaKind::kTable || in.kind(1) != LuaKind::kTable) fail("has_unknown: takes two tables");
  for (const std::string& key : in.keys(0)) {
    if (key == "?" || in.kind(in.field(1, key.c_str())) == LuaKind::kNil) return {true};
  }
  return {false};
}

// Returns whether a table has string keys.
LuaResults has_names(const Binding&, ArgReader& in) {
  if (in.kind(0) != LuaKind::kTable) return {false};
  for (const std::string& key : in.keys(0)) {
    if (key != "?") return {true};
  }
  return {false};
}

int get_cache_directory(lua_State* L) {
  const std::string path = cache_directory();
  path.empty() ? lua_pushnil(L) : lua_pushlstring(L, path.data(), path.size());
  return 1;
}

// Returns the entries of the cache directory: {{kind =, about =, bytes =, used =}, ...}, most recently used first.
int get_kept(lua_State* L) {
  const std::vector<CacheEntry> entries = list_cached();
  lua_createtable(L, int(entries.size()), 0);
  for (size_t i = 0; i < entries.size(); i++) {
    lua_createtable(L, 0, 4);
    lua_pushlstring(L, entries[i].kind.data(), entries[i].kind.size());
    lua_setfield(L, -2, "kind");
    lua_pushlstring(L, entries[i].about.data(), entries[i].about.size());
    lua_setfield(L, -2, "about");
    lua_pushnumber(L, double(entries[i].bytes));
    lua_setfield(L, -2, "bytes");
    lua_pushnumber(L, double(entries[i].used));
    lua_setfield(L, -2, "used");
    lua_rawseti(L, -2, int(i) + 1);
  }
  return 1;
}

int clear_kept(lua_State* L) {
  lua_pushnumber(L, double(clear_cached()));
  return 1;
}

constexpr std::string_view kPrecisions[] = {"highest", "high", "medium"};

int get_precision(lua_State* L) {
  lua_pushstring(L, kPrecisions[size_t(matmul_precision())].data());
  return 1;
}

// Sets the precision of float32 products on a GPU. "highest": full float32; "high" and "medium": they may round
// operands to TF32.
int set_precision(lua_State* L) {
  LuaReader in(L);
  for (size_t i = 0; in.kind(0) == LuaKind::kString && i < std::size(kPrecisions); i++) {
    if (in.string(0) == kPrecisions[i]) return set_matmul_precision(MatmulPrecision(i)), 0;
  }
  KnownNames known;
  for (std::string_view each : kPrecisions) known.add(each);
  fail("set_float32_matmul_precision: argument 'precision' must be \"highest\", \"high\" or \"medium\", got ",
       in.describe(0), in.kind(0) == LuaKind::kString ? known.question(in.string(0)) : "");
}

int get_convolution_tf32(lua_State* L) {
  lua_pushboolean(L, convolution_tf32());
  return 1;
}

int set_convolution_tf32_impl(lua_State* L) {
  set_convolution_tf32(lua_toboolean(L, 1));
  return 0;
}

int read_idx_impl(lua_State* L) {
  LuaReader in(L);
  if (in.kind(0) != LuaKind::kString) fail("read_idx: argument 'path' must be a string, got ", in.describe(0));
  push_tensor(L, read_idx(in.string(0)));
  return 1;
}

// Raises an error of the standard library with the line of the program that called it.
int fail_impl(lua_State* L) {
  const char* text = lua_tostring(L, 1);
  fail(text ? text : "unknown error");
}

const Special kSystemSpecials[] = {
    {"manual_seed", kFunctionOf | kHostEffect, nullptr, manual_seed},
    {"initial_seed", kFunctionOf | kHostEffect, nullptr, initial_seed},
    {"get_rng_state", kFunctionOf | kHostEffect, nullptr, get_rng_state},
    {"set_rng_state", kFunctionOf | kHostEffect, nullptr, set_rng_state},
    {"get_num_threads", kFunctionOf | kHostEffect, nullptr, get_num_threads},
    {"set_num_threads", kFunctionOf | kHostEffect, nullptr, set_num_threads},
    {"limits", kFunctionOf | kHostEffect, nullptr, make_limits},
    {"memory", kFunctionOf | kHostEffect, nullptr, memory},
    {"set_default_device", kFunctionOf | kHostEffect, nullptr, set_default_device_impl},
    {"device", kFunctionOf, device, nullptr},
    {"_native.device", kHostEffect, checked_device, nullptr},
    {"get_default_device", kFunctionOf | kHostEffect, nullptr, get_default_device},
    {"_native.has_unknown", 0, has_unknown, nullptr},
    {"_native.has_names", 0, has_names, nullptr},
    {"_native.cache_directory", kHostEffect, nullptr, get_cache_directory},
    {"_native.kept", kHostEffect, nullptr, get_kept},
    {"_native.clear_kept", kHostEffect, nullptr, clear_kept},
    {"_native.fail", kHostEffect, nullptr, fail_impl},
    {"get_float32_matmul_precision", kFunctionOf | kHostEffect, nullptr, get_precision},
    {"set_float32_matmul_precision", kFunctionOf | kHostEffect, nullptr, set_precision},
    {"_native.get_convolution_tf32", kHostEffect, nullptr, get_convolution_tf32},
    {"_native.set_convolution_tf32", kHostEffect, nullptr, set_convolution_tf32_impl},
    {"_native.read_idx", kHostEffect, nullptr, read_idx_impl},
};

}  // namespace

std::span<const Special> system_specials() { return kSystemSpecials; }

}  // namespace lutra
