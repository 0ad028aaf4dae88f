// Reads Lua values as the abstract values of binding.h, and pushes such values (push_value).
#include "vm/bind/lua_reader.h"

#include <cmath>
#include <lua.hpp>

#include "vm/bind/tensor_userdata.h"

namespace lutra {
namespace {

// Tests for an int64_t or uint64_t; makes an int64_t from a pointer; describes an array; makes a uint64_t from a
// pointer; splits a complex number into its parts; makes one from its parts.
const LuaFunctions kIntegers = {
    "=lutra.ffi",

    "local ffi = require 'ffi'\n"
    "local i64, u64, p64 = ffi.typeof('int64_t'), ffi.typeof('uint64_t'), ffi.typeof('const int64_t *')\n"
    "local pu64, c128, c64 = ffi.typeof('const uint64_t *'), ffi.typeof('complex'), ffi.typeof('complex float')\n"
    "return function(v) return ffi.istype(i64, v) or ffi.istype(u64, v) end,\n"
    "       function(p) return ffi.cast(p64, p)[0] end,\n"
    // returns the element type as a DType name, the number of bytes of all elements, then the sizes from the second
    // dimension on
    "       function(v)\n"
    "         local base, dims = tostring(ffi.typeof(v)):match('^ctype<([%w_ ]-) ?(%[[%[%]%d?]+)>$')\n"
    "         if not base or not dims then return end\n"
    "         local kinds = {double = 'float64', float = 'float32', bool = 'bool', complex = 'complex128',\n"
    "                        ['complex float'] = 'complex64'}\n"
    "         local name = kinds[base]\n"
    "         local size = ffi.sizeof(base)\n"
    "         if not name then\n"
    "           local unsigned = ffi.cast(base, -1) > 0\n"
    "           name = (unsigned and 'uint' or 'int') .. size * 8\n"
    "         end\n"
    "         if not name then return end\n"
    "         local rest = {}\n"
    "         for d in dims:match('%](.*)'):gmatch('%d+') do rest[#rest + 1] = tonumber(d) end\n"
    "         return name, ffi.sizeof(v), unpack(rest)\n"
    "       end,\n"
    "       function(p) return ffi.cast(pu64, p)[0] end,\n"
    "       function(v) if ffi.istype(c128, v) or ffi.istype(c64, v) then return v.re, v.im end end,\n"
    "       function(re, im) return c128(re, im) end\n",
    6};

void push_sizes(lua_State* L, const Sizes& sizes) {
  lua_createtable(L, int(sizes.size()), 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    lua_pushnumber(L, double(sizes[i].hint));
    lua_rawseti(L, -2, int(i) + 1);
  }
}

void push_scalar(lua_State* L, const Scalar& s) {
  if (s.kind == Scalar::kBool) {
    lua_pushboolean(L, s.i != 0);
  } else if (s.kind == Scalar::kInt) {
    push_int64(L, s.i);
  } else if (s.kind == Scalar::kUInt) {
    luaL_checkstack(L, 4, "too many values");
    kIntegers.push(L, 4);
    lua_pushlightuserdata(L, const_cast<int64_t*>(&s.i));
    lua_call(L, 1, 1);
  } else if (s.is_complex) {
    luaL_checkstack(L, 4, "too many values");
    kIntegers.push(L, 6);
    lua_pushnumber(L, s.d), lua_pushnumber(L, s.im);
    lua_call(L, 2, 1);
  } else {
    // LuaJIT boxes values in NaNs, so only the canonical NaN may become a Lua number.
    lua_pushnumber(L, std::isnan(s.d) ? std::nan("") : s.d);
  }
}

}  // namespace

void LuaFunctions::push(lua_State* L, int which) const {
  void* key = const_cast<LuaFunctions*>(this);
  lua_pushlightuserdata(L, key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_createtable(L, count, 0);
    if (luaL_loadbuffer(L, source.data(), source.size(), name) != 0) lua_error(L);
    lua_call(L, 0, count);
    for (int i = count; i >= 1; --i) lua_rawseti(L, -1 - i, i);
    lua_pushlightuserdata(L, key);
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  lua_rawgeti(L, -1, which);
  lua_remove(L, -2);
}

void push_int64(lua_State* L, int64_t v) {
  constexpr int64_t kExact = int64_t(1) << 53;
  if (v >= -kExact && v <= kExact) return lua_pushnumber(L, double(v));
  luaL_checkstack(L, 4, "too many values");
  kIntegers.push(L, 2);
  lua_pushlightuserdata(L, &v);
  lua_call(L, 1, 1);
}

bool to_int64_cdata(lua_State* L, int idx, int64_t* out) {
  if (lua_type(L, idx) != kCdataType) return false;
  luaL_checkstack(L, 4, "too many values");
  const int absolute = idx > 0 ? idx : lua_gettop(L) + idx + 1;
  kIntegers.push(L, 1);
  lua_pushvalue(L, absolute);
  lua_call(L, 1, 1);
  const bool yes = lua_toboolean(L, -1);
  lua_pop(L, 1);
  if (yes) *out = *static_cast<const int64_t*>(lua_topointer(L, absolute));
  return yes;
}

namespace {

bool to_complex_cdata(lua_State* L, int idx, Scalar* out) {
  luaL_checkstack(L, 4, "too many values");
  kIntegers.push(L, 5);
  lua_pushvalue(L, idx);
  lua_call(L, 1, 2);
  const bool yes = lua_isnumber(L, -2);
  if (yes) *out = Scalar::of_complex(lua_tonumber(L, -2), lua_tonumber(L, -1));
  lua_pop(L, 2);
  return yes;
}

}  // namespace

bool to_c_array(lua_State* L, int idx, CArray* out) {
  if (lua_type(L, idx) != kCdataType) return false;
  luaL_checkstack(L, 16, "too many values");
  const int top = lua_gettop(L), absolute = idx > 0 ? idx : top + idx + 1;
  kIntegers.push(L, 3);
  lua_pushvalue(L, absolute);
  lua_call(L, 1, LUA_MULTRET);
  const bool yes = lua_gettop(L) > top && lua_isstring(L, top + 1);
  if (yes) {
    out->dtype = dtype_from_name(lua_tostring(L, top + 1));
    out->data = lua_topointer(L, absolute);
    int64_t first = int64_t(lua_tonumber(L, top + 2)) / int64_t(size_of(out->dtype));
    out->sizes = {SymInt(0)};
    for (int i = top + 3; i <= lua_gettop(L); ++i) {
      const int64_t size = int64_t(lua_tonumber(L, i));
      out->sizes.push_back(size);
      first = size == 0 ? 0 : first / size;
    }
    out->sizes[0] = first;
  }
  lua_settop(L, top);
  return yes && out->dtype != DType::kNone;
}

void push_value(lua_State* L, const Value& v) {
  luaL_checkstack(L, 4, "too many results");
  if (v.is<Tensor>()) {
    push_tensor(L, v.as<Tensor>());
  } else if (v.is<std::vector<Tensor>>()) {
    const auto& list = v.as<std::vector<Tensor>>();
    lua_createtable(L, int(list.size()), 0);
    for (size_t i = 0; i < list.size(); ++i) {
      push_tensor(L, list[i]);
      lua_rawseti(L, -2, int(i) + 1);
    }
  } else if (v.is<Scalar>()) {
    push_scalar(L, v.as<Scalar>());
  } else if (v.is<bool>()) {
    lua_pushboolean(L, v.as<bool>());
  } else if (v.is<Sizes>()) {
    push_sizes(L, v.as<Sizes>());
  } else if (v.is<DType>()) {
    lua_pushstring(L, name(v.as<DType>()));
  } else if (v.is<Device>()) {
    const std::string text = to_string(v.as<Device>());
    lua_pushlstring(L, text.data(), text.size());
  } else if (v.is<std::string>()) {
    const std::string& text = v.as<std::string>();
    lua_pushlstring(L, text.data(), text.size());
  } else {
    lua_pushnil(L);
  }
}

LuaReader::LuaReader(lua_State* L) : L_(L), count_(lua_gettop(L)) {}

LuaKind LuaReader::kind(H h) {
  switch (lua_type(L_, h + 1)) {
    case LUA_TNONE:
    case LUA_TNIL: return LuaKind::kNil;
    case LUA_TBOOLEAN: return LuaKind::kBoolean;
    case LUA_TNUMBER: return LuaKind::kNumber;
    case LUA_TSTRING: return LuaKind::kString;
    case LUA_TTABLE: return LuaKind::kTable;
    case LUA_TFUNCTION: return LuaKind::kFunction;
    case LUA_TUSERDATA: return to_tensor(L_, h + 1) ? LuaKind::kTensor : LuaKind::kOther;
    case kCdataType: {
      int64_t ignored;
      if (to_int64_cdata(L_, h + 1, &ignored)) return LuaKind::kInt64;
      Scalar number;
      return to_complex_cdata(L_, h + 1, &number) ? LuaKind::kComplex : LuaKind::kOther;
    }
    default: return LuaKind::kOther;
  }
}

bool LuaReader::boolean(H h) { return lua_toboolean(L_, h + 1); }

Scalar LuaReader::number(H h) {
  if (lua_type(L_, h + 1) == LUA_TNUMBER) return Scalar(lua_tonumber(L_, h + 1));
  int64_t v = 0;
  if (to_int64_cdata(L_, h + 1, &v)) return Scalar::of_int(v);
  Scalar number;
  if (!to_complex_cdata(L_, h + 1, &number)) fail_internal("a number was expected, not ", describe(h));
  return number;
}

std::string LuaReader::string(H h) {
  size_t size = 0;
  const char* text = lua_tolstring(L_, h + 1, &size);
  return std::string(text, size);
}

Tensor LuaReader::tensor(H h) {
  Tensor* t = to_tensor(L_, h + 1);
  if (!t) fail_internal("a Tensor was expected, not ", describe(h));
  return *t;
}

int64_t LuaReader::length(H table) { return int64_t(lua_objlen(L_, table + 1)); }

ArgReader::H LuaReader::pushed() { return lua_gettop(L_) - 1; }

ArgReader::H LuaReader::index(H table, int64_t i) {
  luaL_checkstack(L_, 4, "arguments nested too deeply");
  lua_rawgeti(L_, table + 1, int(i));
  return pushed();
}

ArgReader::H LuaReader::field(H table, const char* key) {
  luaL_checkstack(L_, 4, "too many keywords");
  lua_pushstring(L_, key);
  lua_rawget(L_, table + 1);
  return pushed();
}

std::vector<std::string> LuaReader::keys(H table) {
  std::vector<std::string> out;
  luaL_checkstack(L_, 4, "arguments nested too deeply");
  lua_pushnil(L_);
  while (lua_next(L_, table + 1)) {
    lua_pop(L_, 1);
    out.push_back(lua_type(L_, -1) == LUA_TSTRING ? lua_tostring(L_, -1) : "?");
  }
  return out;
}

std::string LuaReader::describe(H h) {
  const int idx = h + 1;
  switch (lua_type(L_, idx)) {
    case LUA_TNONE:
    case LUA_TNIL: return "nil";
    case LUA_TBOOLEAN: return lua_toboolean(L_, idx) ? "boolean true" : "boolean false";
    case LUA_TNUMBER: return "number " + to_string(Scalar(lua_tonumber(L_, idx)));
    case LUA_TSTRING: {
      std::string s = string(h);
      if (s.size() > 40) s = s.substr(0, 37) + "...";
      return "string '" + s + "'";
    }
    case LUA_TUSERDATA: return to_tensor(L_, idx) ? "a Tensor" : "a userdata";
    case kCdataType: {
      int64_t v;
      return to_int64_cdata(L_, idx, &v) ? "int64_t " + std::to_string(v) : "a cdata";
    }
    default: return std::string("a ") + luaL_typename(L_, idx);
  }
}

ArgReader::H LuaReader::mark() { return lua_gettop(L_); }
void LuaReader::release(H mark) { lua_settop(L_, mark); }

}  // namespace lutra
