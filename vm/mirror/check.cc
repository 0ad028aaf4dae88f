// The start-up check: compares raw fields of new objects with what the public API and jit.util return for them. It
// succeeds if this LuaJIT has the structs in mirror.h.
//
// It reads only inside objects that it has made, so with another layout it fails instead of crashing.
#include <cstring>
#include <lua.hpp>

#include "vm/mirror/mirror.h"

namespace lutra::mirror {

namespace {

// The probe function: two upvalues, varargs, number and string constants, a loop.
constexpr char kProbe[] =
    "local a, t = 7.25, ...\n"
    "local function probe(x, y, ...)\n"
    "  local s = 'mirror' .. x\n"
    "  for i = 1, 2 do s = s .. i * 0.37 end\n"
    "  return s, a, t\n"
    "end\n"
    "local function call(f)\n"
    "  local late\n"
    "  local function other() return late end\n"
    "  local r = f(11, 'arg')\n"
    "  late = r\n"
    "  return r, other\n"
    "end\n"
    "return probe, call";

double field_number(lua_State* L, int table, const char* name) {
  lua_getfield(L, table, name);
  const double v = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return v;
}

// Calls jit.util.<name>(function at `fn`, arg) and leaves one result.
bool jit_util(lua_State* L, int util, const char* name, int fn, int arg, bool with_arg) {
  lua_getfield(L, util, name);
  if (!lua_isfunction(L, -1)) return false;
  lua_pushvalue(L, fn);
  if (with_arg) lua_pushinteger(L, arg);
  lua_call(L, with_arg ? 2 : 1, 1);
  return true;
}

bool check_function(lua_State* L, int fn, int table, const Func* chunk) {
  const Func* f = static_cast<const Func*>(lua_topointer(L, fn));
  if (f->gct != 8 || f->ffid != 0 || f->nupvalues != 2) return false;
  lua_getfenv(L, fn);
  const void* env = lua_topointer(L, -1);
  lua_pop(L, 1);
  if (f->env != env || f->upvalues[0] != lua_upvalueid(L, fn, 1) || f->upvalues[1] != lua_upvalueid(L, fn, 2))
    return false;
  const Upval* a = f->upvalues[0];
  const Proto* p = proto_of(f);
  for (int i = 0; i < 2; ++i) {
    if (f->upvalues[i]->dhash != hash_of_variable(proto_of(chunk), p->uv[i])) return false;
  }
  return number(*a->v) == 7.25 && gc_pointer(*f->upvalues[1]->v) == lua_topointer(L, table);
}

bool check_proto(lua_State* L, int util, int fn) {
  const int top = lua_gettop(L);
  const Func* f = static_cast<const Func*>(lua_topointer(L, fn));
  if (!jit_util(L, util, "funcinfo", fn, 0, false)) return false;
  const int info = lua_gettop(L);
  lua_getfield(L, info, "proto");
  const Proto* p = static_cast<const Proto*>(lua_topointer(L, -1));
  if (f->pc != reinterpret_cast<const uint32_t*>(p + 1) || p->gct != 7) return false;
  if (p->numparams != field_number(L, info, "params") || p->framesize != field_number(L, info, "stackslots") ||
      p->sizebc != field_number(L, info, "bytecodes") || p->sizekgc != field_number(L, info, "gcconsts") ||
      p->sizekn != field_number(L, info, "nconsts") || p->sizeuv != field_number(L, info, "upvalues") ||
      p->firstline != field_number(L, info, "linedefined")) {
    return false;
  }
  if (!(p->flags & 2) || p->chunkname->len != 13 || std::memcmp(p->chunkname->data(), "=lutra mirror", 13) != 0)
    return false;
  for (uint32_t pc = 0; pc < p->sizebc; ++pc) {
    jit_util(L, util, "funcbc", fn, static_cast<int>(pc), true);
    if (static_cast<uint32_t>(static_cast<int64_t>(lua_tonumber(L, -1))) != p->bytecode()[pc]) return false;
    lua_settop(L, info);
  }
  jit_util(L, util, "funck", fn, -1, true);
  if (reinterpret_cast<const void*>(p->k[-1]) != lua_topointer(L, -1)) return false;
  const Str* s = static_cast<const Str*>(lua_topointer(L, -1));
  size_t len = 0;
  const char* text = lua_tolstring(L, -1, &len);
  if (!text || s->len != len || s->data() != text) return false;
  lua_settop(L, top);
  return true;
}

bool check_table(lua_State* L, int table, int meta) {
  const Tab* t = static_cast<const Tab*>(lua_topointer(L, table));
  if (t->gct != 11 || t->metatable != lua_topointer(L, meta) || t->asize < 4 || t->hmask != 3) return false;
  if (number(t->array[3]) != 30) return false;
  for (const char* name : {"x", "yy", "zzz"}) {
    lua_pushstring(L, name);
    const TValue* v = raw_get(t, static_cast<const Str*>(lua_topointer(L, -1)));
    lua_pop(L, 1);
    if (!v || number(*v) != static_cast<double>(std::strlen(name))) return false;
  }
  lua_pushliteral(L, "absent");
  const bool absent = !raw_get(t, static_cast<const Str*>(lua_topointer(L, -1)));
  lua_pop(L, 1);
  return absent;
}

char lookup_key;

// Compares lookups with keys of every type with rawget, and lengths with lua_objlen.
bool check_lookup(lua_State* L) {
  const int top = lua_gettop(L);
  lua_newtable(L);
  const int t = lua_gettop(L);
  for (int i = 1; i <= 5; ++i) lua_pushinteger(L, i), lua_rawseti(L, t, i);
  lua_newuserdata(L, 8);
  lua_pushcfunction(L, luaopen_base);
  lua_pushlightuserdata(L, &lookup_key);
  lua_newtable(L);
  lua_pushboolean(L, 1);
  lua_pushboolean(L, 0);
  lua_pushnumber(L, 2.5);
  lua_pushnumber(L, -7);
  lua_pushnumber(L, 1e300);
  lua_pushliteral(L, "text");
  const int last = lua_gettop(L);
  for (int k = t + 1; k <= last; ++k) {
    lua_pushvalue(L, k);
    lua_pushinteger(L, k);
    lua_rawset(L, t);
  }
  const Tab* tab = static_cast<const Tab*>(lua_topointer(L, t));
  bool ok = length(tab) == 5 && raw_get(tab, make_number(6)).u64 == kNilValue;
  for (int k = t + 1; k <= last; ++k) ok = ok && number(raw_get(tab, base(L)[k - 1])) == k;
  lua_settop(L, top);
  return ok;
}

bool check_userdata(lua_State* L, int meta) {
  void* payload = lua_newuserdata(L, 24);
  lua_pushvalue(L, meta);
  lua_setmetatable(L, -2);
  const Udata* u = static_cast<Udata*>(payload) - 1;
  const bool ok = u->gct == 12 && u->len == 24 && u->metatable == lua_topointer(L, meta);
  lua_pop(L, 1);
  return ok;
}

// Runs as a C function that Lua code calls as f(11, 'arg'). Returns true if its frame is where mirror.h expects it.
int check_frame(lua_State* L) {
  const Thread* th = thread(L);
  bool ok = th->gct == 6 && th->top - th->base == 2 && number(th->base[0]) == 11 &&
            gc_pointer(th->base[1]) == lua_topointer(L, 2);
  ok = ok && th->stack < th->base && th->top <= th->maxstack;
  lua_Debug ar;
  if (ok && lua_getstack(L, 1, &ar) && lua_getinfo(L, "f", &ar)) {
    const Proto* p = proto_of(static_cast<const Func*>(lua_topointer(L, -1)));
    const uint32_t* ret = return_pc(L);
    const uint32_t* code = p->bytecode();
    ok = ret > code + 1 && ret < code + p->sizebc && (ret[-1] & 0xff) == 0x42;  // CALL
    lua_newtable(L);
    const uint64_t root = *reinterpret_cast<const uint64_t*>(th->glref + 40);
    const uint8_t white = *reinterpret_cast<const uint8_t*>(th->glref + 32);
    const uint8_t marked = static_cast<const Header*>(lua_topointer(L, -1))->marked;
    const Upval* open = open_variables(L);
    ok = ok && open && !open->closed && !open->immutable && slot_of(L, open) == 1;
    for (const Upval* v = open; ok && v; v = next_open(v)) {
      const auto* next = static_cast<const Upval*>(gc_pointer({v->unused}));
      ok = v->gct == 5 && !v->closed && v->v <= open->v && gc_pointer(next->tv) == v;
    }
    ok = ok && reinterpret_cast<const void*>(root) == lua_topointer(L, -1) && (marked & 3) == (white & 3);
  } else {
    ok = false;
  }
  lua_pushboolean(L, ok);
  return 1;
}

bool check_all(lua_State* L) {
  if (sizeof(void*) != 8 || !lua_checkstack(L, 40)) return false;
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  if (!lua_istable(L, -1)) return false;
  lua_getfield(L, -1, "jit");
  if (!lua_istable(L, -1) || field_number(L, lua_gettop(L), "version_num") != 20100) return false;
  lua_getfield(L, -1, "arch");
  if (!lua_isstring(L, -1) || std::strcmp(lua_tostring(L, -1), cpu::kArm64 ? "arm64" : "x64") != 0) return false;
  lua_getfield(L, -3, "jit.util");
  if (!lua_istable(L, -1)) {
    lua_getfield(L, LUA_GLOBALSINDEX, "require");
    if (!lua_isfunction(L, -1)) return false;
    lua_pushliteral(L, "jit.util");
    lua_call(L, 1, 1);
  }
  const int util = lua_gettop(L);
  lua_createtable(L, 4, 4);
  const int table = lua_gettop(L);
  for (int i = 1; i <= 4; ++i) {
    lua_pushinteger(L, i * 10);
    lua_rawseti(L, table, i);
  }
  for (const char* name : {"x", "yy", "zzz"}) {
    lua_pushinteger(L, static_cast<int>(std::strlen(name)));
    lua_setfield(L, table, name);
  }
  lua_newtable(L);
  const int meta = lua_gettop(L);
  lua_pushvalue(L, meta);
  lua_setmetatable(L, table);
  if (luaL_loadbuffer(L, kProbe, sizeof kProbe - 1, "=lutra mirror")) return false;
  lua_pushvalue(L, -1);
  const auto* chunk = static_cast<const Func*>(lua_topointer(L, -1));
  lua_pushvalue(L, table);
  lua_call(L, 1, 2);
  const int probe = lua_gettop(L) - 1;
  if (!check_function(L, probe, table, chunk) || !check_proto(L, util, probe)) return false;
  if (!check_table(L, table, meta) || !check_userdata(L, meta)) return false;
  lua_pushcfunction(L, check_frame);
  lua_call(L, 1, 1);
  return lua_toboolean(L, -1) && check_lookup(L);
}

int protected_check(lua_State* L) {
  lua_pushboolean(L, check_all(L));
  return 1;
}

char registry_key;

}  // namespace

void set_unavailable(lua_State* L) {
  lua_pushlightuserdata(L, &registry_key);
  lua_pushboolean(L, 0);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

bool available(lua_State* L) {
  lua_pushlightuserdata(L, &registry_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_pushcfunction(L, protected_check);
    if (lua_pcall(L, 0, 1, 0)) {
      lua_pop(L, 1);
      lua_pushboolean(L, 0);
    }
    lua_pushlightuserdata(L, &registry_key);
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  const bool ok = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return ok;
}

}  // namespace lutra::mirror
