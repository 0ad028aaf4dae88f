// Constants in; constants that LuaJIT computes of them out.
#include "vm/capture/trace/cdata.h"

#include <bit>
#include <cinttypes>
#include <cstdio>
#include <lua.hpp>

#include "ops/core/error.h"
#include "vm/capture/trace/trace.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

constexpr int kCdata = 10;

std::string literal(const bc::KGC& k) {
  char text[80];
  if (const auto* i = std::get_if<int64_t>(&k)) return snprintf(text, sizeof text, "0x%" PRIx64 "LL", *i), text;
  if (const auto* u = std::get_if<uint64_t>(&k)) return snprintf(text, sizeof text, "0x%" PRIx64 "ULL", *u), text;
  return snprintf(text, sizeof text, "%.17gi", std::get<std::complex<double>>(k).imag()), text;
}

}  // namespace

Var* number_cdata(Trace& t, Frame& f, unsigned index) {
  const bc::KGC& constant = f.code->proto().kgc[index];
  if (mirror::available(t.L)) {
    t.push_prototype(f.function);
    const mirror::Proto* const proto = to_proto(t.L, lua_gettop(t.L));
    lua_pop(t.L, 1);
    const uint64_t object = proto->k[-1 - ptrdiff_t(index)];
    mirror::push_object(t.L, mirror::kCdata, std::bit_cast<const void*>(object));
    return t.constant_from_stack();
  }
  const std::string code = "return " + literal(constant);
  if (luaL_loadstring(t.L, code.c_str()) || lua_pcall(t.L, 0, 1, 0)) fail_internal("capture: ", code);
  return t.constant_from_stack();
}

bool is_number_cdata(Trace& t) {
  if (lua_type(t.L, -1) != kCdata) return false;
  const int top = lua_gettop(t.L);
  lua_getfield(t.L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(t.L, -1, "ffi");
  bool is = lua_istable(t.L, -1);
  if (is) {
    lua_getfield(t.L, -1, "istype");
    for (const char* type : {"int64_t", "uint64_t", "complex"}) {
      lua_pushvalue(t.L, -1);
      lua_pushstring(t.L, type);
      lua_pushvalue(t.L, top);
      is = lua_pcall(t.L, 2, 1, 0) == 0 && lua_toboolean(t.L, -1);
      lua_pop(t.L, 1);
      if (is) break;
    }
  }
  lua_settop(t.L, top);
  return is;
}

bool is_constant_cdata(Trace& t, Var* v) {
  if (t.force(v)->kind != VarKind::kObject || (v->source && !v->fixed)) return false;
  t.push_pin(v->pin);
  const bool is = is_number_cdata(t);
  lua_pop(t.L, 1);
  if (is) t.guard_identity(v);
  return is;
}

Var* cdata_operation(Trace& t, const char* metamethod, Var* a, Var* b) {
  const bool first = is_constant_cdata(t, a), second = is_constant_cdata(t, b);
  const auto fits = [](const Var* v, bool is) { return is || v->kind == VarKind::kNumber; };
  if ((!first && !second) || !fits(a, first) || !fits(b, second)) return nullptr;
  const int top = lua_gettop(t.L);
  t.push_pin((first ? a : b)->pin);
  if (!luaL_getmetafield(t.L, -1, metamethod)) return lua_settop(t.L, top), nullptr;
  t.push_real(a), t.push_real(b);
  if (lua_pcall(t.L, 2, 1, 0)) {
    const std::string text = lua_tostring(t.L, -1) ? lua_tostring(t.L, -1) : "";
    lua_settop(t.L, top);
    t.stop(Break::raises, {"arithmetic of cdata", text});
  }
  lua_replace(t.L, top + 1);
  lua_settop(t.L, top + 1);
  return t.constant_from_stack();
}

}  // namespace lutra
