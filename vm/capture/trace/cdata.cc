// Integers of 64 bits in; what LuaJIT computes of them out.
#include "vm/capture/trace/cdata.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <lua.hpp>

#include "ops/core/error.h"
#include "vm/capture/trace/trace.h"
#include "vm/guard/native_run.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

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
  } else {
    const std::string code = "return " + literal(constant);
    if (luaL_loadstring(t.L, code.c_str()) || lua_pcall(t.L, 0, 1, 0)) fail_internal("capture: ", code);
  }
  Var* v = t.constant_from_stack();
  v->fixed = true;
  return v;
}

bool is_number_cdata(Trace& t) {
  if (lua_type(t.L, -1) != kCdataType) return false;
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

namespace {

// Whether the value at the top of the stack is an integer of 64 bits, no reference to one, and lies as guards read it.
bool is_integer_cdata(Trace& t) {
  if (!mirror::available(t.L) || !is_number_cdata(t)) return false;
  const int top = lua_gettop(t.L);
  const auto& integer = *static_cast<const IntegerCdata*>(mirror::object(t.L, top));
  bool is = false;
  lua_getfield(t.L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(t.L, -1, "ffi");
  for (const char* type : {"int64_t", "uint64_t"}) {
    lua_getfield(t.L, top + 2, "typeof");
    lua_pushstring(t.L, type);
    const bool got = lua_pcall(t.L, 1, 1, 0) == 0 && lua_type(t.L, -1) == kCdataType;
    const auto* number = got ? static_cast<const uint32_t*>(lua_topointer(t.L, -1)) : nullptr;
    is = is || (number && *number == integer.type && lua_topointer(t.L, top) == &integer.value);
    lua_pop(t.L, 1);
  }
  lua_settop(t.L, top);
  return is;
}

// An integer that a call brings: guarded by its value, as long as calls brought no other.
bool is_steady_integer(Trace& t, Var* v) {
  const auto guards = [&](const GuardStep& s) { return s.op == GuardOp::kCdataCheck && s.source == v->source; };
  if (std::any_of(t.program.steps.begin(), t.program.steps.end(), guards)) return true;
  if (t.options.dynamic != 0 && t.options.changing_values.count(v->source->text)) return false;
  t.push_pin(v->pin);
  const bool is = is_integer_cdata(t) && luaL_callmeta(t.L, -1, "__tostring");
  if (is) {
    const std::string expected = lua_tostring(t.L, -1) ? lua_tostring(t.L, -1) : "";
    lua_pop(t.L, 1);
    t.check(GuardOp::kCdataCheck, v->source, t.constant_slot(v), expected);
  }
  lua_pop(t.L, 1);
  return is;
}

}  // namespace

bool is_constant_cdata(Trace& t, Var* v) {
  if (t.force(v)->kind != VarKind::kObject) return false;
  if (v->source && !v->fixed) return is_steady_integer(t, v);
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
