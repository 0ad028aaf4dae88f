// Conversion of lutra_Values to Lua values and back; see values.h.
#include "vm/capi/values.h"

#include <cstring>
#include <lua.hpp>

#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"

namespace lutra::capi {
namespace {

void push_integers(lua_State* L, const int64_t* list, size_t n) {
  if (n > 0 && !list) refuse("a list of integers must not be NULL");
  if (n > size_t(1) << 24) refuse("a list of ", n, " integers is too long");
  lua_createtable(L, int(n), 0);
  for (size_t i = 0; i < n; i++) push_int64(L, list[i]), lua_rawseti(L, -2, int(i) + 1);
}

constexpr int kMaxNested = 16;
constexpr size_t kMaxElements = size_t(1) << 20;

void push_one(lua_State* L, const lutra_Value& v, int i, int depth = 0);

void push_table(lua_State* L, const lutra_Value& table, int i, int depth) {
  if (depth == kMaxNested) refuse("the tables of value ", i, " are more than ", kMaxNested, " deep");
  if (table.length > 0 && !table.as.values) refuse("the table of value ", i, " is NULL");
  if (table.length > kMaxElements) refuse("a table of ", table.length, " values is too long");
  luaL_checkstack(L, 4, "too many tables");
  lua_newtable(L);
  int at = 0;
  for (size_t k = 0; k < table.length; k++) {
    const lutra_Value& v = table.as.values[k];
    push_one(L, v, i, depth + 1);
    v.name ? lua_setfield(L, -2, v.name) : lua_rawseti(L, -2, ++at);
  }
}

void push_one(lua_State* L, const lutra_Value& v, int i, int depth) {
  switch (v.kind) {
    case LUTRA_NIL: return lua_pushnil(L);
    case LUTRA_BOOLEAN: return lua_pushboolean(L, v.as.boolean);
    case LUTRA_NUMBER: return push_value(L, Scalar(v.as.number));
    case LUTRA_INTEGER: return push_int64(L, v.as.integer);
    case LUTRA_STRING:
      if (!v.as.string) refuse("the string of value ", i, " is NULL");
      return lua_pushlstring(L, v.as.string, v.length ? v.length : std::strlen(v.as.string));
    case LUTRA_TENSOR:
      if (!v.as.tensor) refuse("the tensor of value ", i, " is NULL");
      return push_tensor(L, v.as.tensor->tensor);
    case LUTRA_INTEGERS: return push_integers(L, v.as.integers, v.length);
    case LUTRA_TABLE: return push_table(L, v, i, depth);
    default: refuse("value ", i, " has kind ", v.kind, ", which no input has");
  }
}

// If the only result is a list of tensors, replaces it by its elements. An empty table does not count as such a list.
void spread_list(lua_State* L, int base, int m) {
  if (lua_gettop(L) != base + 1 || !lua_istable(L, base + 1)) return;
  const int n = int(lua_objlen(L, base + 1));
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(L, base + 1, i);
    const bool yes = lutra::to_tensor(L, -1) != nullptr;
    lua_pop(L, 1);
    if (!yes) return;
  }
  if (n == 0) return;
  luaL_checkstack(L, m + 4, "too many results");
  for (int i = 1; i <= n && i <= m; i++) lua_rawgeti(L, base + 1, i);
  lua_remove(L, base + 1);
}

// Converts the table at the top of the stack into values.
void take_table(lua_State* L, int result, int depth, lutra_Value* out);

// Converts the value at the top of the stack, an element of a table or a result.
void take_one(lua_State* L, int result, int depth, lutra_Value* out) {
  *out = value_at(L, lua_gettop(L));
  if (out->kind != LUTRA_OTHER) return;
  out->kind = LUTRA_NIL;
  if (lua_istable(L, -1)) return take_table(L, result, depth, out);
  refuse(depth ? "a value in result " : "result ", result, " is a ", luaL_typename(L, -1),
         ", for which there is no value");
}

void take_table(lua_State* L, int result, int depth, lutra_Value* out) {
  if (depth == kMaxNested) refuse("the tables of result ", result, " are more than ", kMaxNested, " deep");
  luaL_checkstack(L, 6, "too many tables");
  const size_t listed = lua_objlen(L, -1);
  size_t count = listed;
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) count += lua_type(L, -2) == LUA_TSTRING;
  if (count > kMaxElements) refuse("result ", result, " has ", count, " elements: too many");
  out->as.values = new lutra_Value[count]();
  out->kind = LUTRA_TABLE, out->length = count;
  for (size_t i = 0; i < listed; i++) {
    lua_rawgeti(L, -1, int(i) + 1);
    take_one(L, result, depth + 1, &out->as.values[i]);
    lua_pop(L, 1);
  }
  size_t at = listed;
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    const double index = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
    if (index >= 1 && index <= double(listed) && index == double(size_t(index))) continue;
    if (lua_type(L, -2) != LUA_TSTRING) {
      refuse("result ", result, " has a key that is a ", luaL_typename(L, -2), " and not in its list");
    }
    const char* name = lua_tostring(L, -2);
    take_one(L, result, depth + 1, &out->as.values[at]);
    out->as.values[at++].name = name;
  }
}

}  // namespace

int push_values(lua_State* L, const lutra_Value* values, int n) {
  luaL_checkstack(L, n + 8, "too many values");
  int named = 0;
  for (int i = 0; i < n; i++) {
    if (values[i].name) {
      named++;
    } else {
      push_one(L, values[i], i);
    }
  }
  if (named == 0) return n;
  lua_createtable(L, 0, named);
  for (int i = 0; i < n; i++) {
    if (!values[i].name) continue;
    push_one(L, values[i], i);
    lua_setfield(L, -2, values[i].name);
  }
  return n - named + 1;
}

int push_tensors(lua_State* L, lutra_Tensor* const* tensors, int n) {
  luaL_checkstack(L, n + 8, "too many values");
  for (int i = 0; i < n; i++) push_tensor(L, tensors[i] ? tensors[i]->tensor : Tensor());
  return n;
}

void take_tensors(lua_State* L, int base, lutra_Tensor** outputs, int m) {
  spread_list(L, base, m);
  const int n = lua_gettop(L) - base;
  for (int i = 0; i < m && i < n; i++) {
    if (!lua_isnil(L, base + 1 + i) && !lutra::to_tensor(L, base + 1 + i)) {
      refuse("result ", i, " is a ", luaL_typename(L, base + 1 + i), ", no tensor (lutra_invoke_values takes others)");
    }
  }
  try {
    for (int i = 0; i < m && i < n; i++) {
      if (const Tensor* t = lutra::to_tensor(L, base + 1 + i)) outputs[i] = new_handle(*t);
    }
  } catch (const std::bad_alloc&) {
    for (int i = 0; i < m; i++) lutra_tensor_free(outputs[i]), outputs[i] = nullptr;
    throw;
  }
}

lutra_Value value_at(lua_State* L, int idx) {
  lutra_Value v = {};
  int64_t integer;
  switch (lua_type(L, idx)) {
    case LUA_TNONE:
    case LUA_TNIL: v.kind = LUTRA_NIL; break;
    case LUA_TBOOLEAN: v.kind = LUTRA_BOOLEAN, v.as.boolean = lua_toboolean(L, idx); break;
    case LUA_TNUMBER: v.kind = LUTRA_NUMBER, v.as.number = lua_tonumber(L, idx); break;
    case LUA_TSTRING: v.kind = LUTRA_STRING, v.as.string = lua_tolstring(L, idx, &v.length); break;
    default:
      v.kind = LUTRA_OTHER;
      if (const Tensor* t = lutra::to_tensor(L, idx)) {
        v.as.tensor = new_handle(*t), v.kind = LUTRA_TENSOR;
      } else if (to_int64_cdata(L, idx, &integer)) {
        v.kind = LUTRA_INTEGER, v.as.integer = integer;
      }
  }
  return v;
}

void take_values(lutra_State* S, lua_State* L, int base, lutra_Value* outputs, int m) {
  spread_list(L, base, m);
  const int n = lua_gettop(L) - base;
  luaL_checkstack(L, 8, "too many results");
  lua_createtable(L, m, 0);  // keeps the strings and names alive
  try {
    for (int i = 0; i < m && i < n; i++) {
      lua_pushvalue(L, base + 1 + i);
      take_one(L, i, 0, &outputs[i]);
      const bool kept = outputs[i].kind == LUTRA_STRING || outputs[i].kind == LUTRA_TABLE;
      kept ? lua_rawseti(L, base + n + 1, i + 1) : lua_pop(L, 1);
    }
  } catch (const std::exception&) {
    lutra_values_free(outputs, m);
    throw;
  }
  lua_rawseti(L, LUA_REGISTRYINDEX, S->strings);
}

}  // namespace lutra::capi
