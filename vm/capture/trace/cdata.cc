// Computes with 64-bit integers as LuaJIT does.
#include "vm/capture/trace/cdata.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <lua.hpp>

#include "ops/core/error.h"
#include "vm/capture/trace/texts.h"
#include "vm/capture/trace/trace.h"
#include "vm/capture/trace/unbacked_sizes.h"
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
  bool is = push_library(t.L, "ffi");
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

// Returns whether the value at the top of the stack is a 64-bit integer, not a reference to one, with the memory layout
// that guards read.
bool is_integer_cdata(Trace& t) {
  if (!mirror::available(t.L) || !is_number_cdata(t)) return false;
  const int top = lua_gettop(t.L);
  const auto& integer = *static_cast<const IntegerCdata*>(mirror::object(t.L, top));
  bool is = false;
  if (!push_library(t.L, "ffi")) return false;
  for (const char* type : {"int64_t", "uint64_t"}) {
    lua_getfield(t.L, top + 1, "typeof");
    lua_pushstring(t.L, type);
    const bool got = lua_pcall(t.L, 1, 1, 0) == 0 && lua_type(t.L, -1) == kCdataType;
    const auto* number = got ? static_cast<const uint32_t*>(lua_topointer(t.L, -1)) : nullptr;
    is = is || (number && *number == integer.type && lua_topointer(t.L, top) == &integer.value);
    lua_pop(t.L, 1);
  }
  lua_settop(t.L, top);
  return is;
}

// Returns whether v is an integer that a call passes, and guards its value, unless other calls passed another value.
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

namespace {

// Returns the ctype id of int64_t if the value at the top of the stack is an int64_t, not a reference to one.
std::optional<int> signed_type(Trace& t) {
  if (!is_integer_cdata(t)) return {};
  const int top = lua_gettop(t.L);
  if (!push_library(t.L, "ffi")) return {};
  lua_getfield(t.L, -1, "istype");
  lua_pushstring(t.L, "int64_t");
  lua_pushvalue(t.L, top);
  const bool is = lua_pcall(t.L, 2, 1, 0) == 0 && lua_toboolean(t.L, -1);
  lua_settop(t.L, top);
  if (!is) return {};
  return static_cast<const IntegerCdata*>(mirror::object(t.L, top))->type;
}

std::optional<int64_t> constant_integer(Trace& t, Var* v) {
  if (v->kind == VarKind::kNumber) {
    const double d = v->num.to_double();
    if (v->num.expr || !v->guarded || d != std::floor(d) || std::fabs(d) > 0x1p53) return {};
    return int64_t(d);
  }
  t.push_pin(v->pin);
  std::optional<int64_t> n;
  if (const auto type = signed_type(t)) {
    const auto value = static_cast<const IntegerCdata*>(mirror::object(t.L, lua_gettop(t.L)))->value;
    if (number_of_integer(mirror::object(t.L, lua_gettop(t.L)), *type)) n = int64_t(value);
  }
  lua_pop(t.L, 1);
  return n;
}

// Returns the expression of an operand of a changing integer; 0 if it is not a whole number that a double holds
// exactly.
int32_t operand(Trace& t, Var* v) {
  SymEnv& env = *t.graph->env;
  if (is_changing_integer(t, v)) return v->num.expr;
  const bool constant =
      v->kind == VarKind::kNumber ? !v->tensor && v->guarded && !v->num.expr : is_constant_cdata(t, v);
  if (constant) {
    const std::optional<int64_t> n = constant_integer(t, v);
    return n ? env.constant(*n) : 0;
  }
  if (v->kind != VarKind::kNumber || v->tensor) return 0;
  const Scalar n = t.symbolic(v);
  if (!n.expr || is_unbacked(t, n.expr)) return 0;
  const int32_t integer = n.kind == Scalar::kInt ? n.expr : env.ask_integer(n.expr);
  return integer && env.ask_exact(integer) ? integer : 0;
}

// Computes an operation of operands within 2^53; 0 if the result is not within 2^53, where int64_t and LuaJIT's numbers
// agree. A quotient rounds towards zero.
int32_t compute(SymEnv& env, std::string_view metamethod, int32_t a, int32_t b) {
  if (metamethod == "__add" || metamethod == "__sub") {
    const int32_t r = env.make(metamethod == "__add" ? SymOp::kAdd : SymOp::kSub, a, b);
    return env.ask_exact(r) ? r : 0;
  }
  if (metamethod == "__mul") {
    if (std::fabs(double(env[a].i) * double(env[b].i)) > 0x1p53) return 0;
    const int32_t r = env.make(SymOp::kMul, a, b);
    return env.ask_exact(r) ? r : 0;
  }
  if (metamethod != "__div" && metamethod != "__mod") return 0;
  const bool plain = env[a].i >= 0 && env[b].op == SymOp::kConstInt && env[b].i > 0;
  if (!plain || !env.ask(SymCmp::kLe, env.constant(0), a)) return 0;
  return env.make(metamethod == "__div" ? SymOp::kFloorDiv : SymOp::kMod, a, b);
}

Var* compare(Trace& t, std::string_view metamethod, int32_t a, int32_t b) {
  if (metamethod != "__eq" && metamethod != "__lt" && metamethod != "__le") return nullptr;
  const SymCmp cmp = metamethod == "__eq" ? SymCmp::kEq : metamethod == "__lt" ? SymCmp::kLt : SymCmp::kLe;
  return t.boolean(t.graph->env->ask(cmp, a, b));
}

// Lets LuaJIT compute the metamethod of this call's values, and gives the result the expression `expr`.
Var* made_integer(Trace& t, const char* metamethod, Var* a, Var* b, int32_t expr) {
  const int top = lua_gettop(t.L);
  const auto push = [&](Var* v) {
    v->kind == VarKind::kNumber ? lua_pushnumber(t.L, v->num.to_double()) : t.push_pin(v->pin);
  };
  push(a->kind == VarKind::kObject ? a : b);
  if (!luaL_getmetafield(t.L, -1, metamethod)) fail_internal("capture: an integer without ", metamethod);
  push(a), push(b);
  lua_call(t.L, 2, 1);
  lua_replace(t.L, top + 1);
  lua_settop(t.L, top + 1);
  Var* v = t.constant_from_stack();
  v->num = Scalar::of_sym(SymInt::of_expr(*t.graph->env, expr));
  return v;
}

// Computes an operation with a changing integer. Returns null if an operand or the result is not an integer that a
// double holds exactly.
Var* changing_operation(Trace& t, const char* metamethod, Var* a, Var* b) {
  SymEnv& env = *t.graph->env;
  const bool negates = std::string_view(metamethod) == "__unm";
  const int32_t x = operand(t, a), y = negates ? x : operand(t, b);
  if (!x || !y) return nullptr;
  if (Var* answer = compare(t, metamethod, x, y)) return answer;
  const int32_t r = negates ? env.make(SymOp::kSub, env.constant(0), x) : compute(env, metamethod, x, y);
  return r ? made_integer(t, metamethod, a, b, r) : nullptr;
}

}  // namespace

bool is_changing_integer(Trace& t, Var* v) {
  if (t.force(v)->kind != VarKind::kObject) return false;
  if (v->num.expr) return true;
  if (!v->source || v->fixed || t.options.dynamic == 0 || !t.options.changing_values.count(v->source->text))
    return false;
  t.push_pin(v->pin);
  const auto type = signed_type(t);
  const auto n = type ? number_of_integer(mirror::object(t.L, lua_gettop(t.L)), *type) : std::nullopt;
  lua_pop(t.L, 1);
  if (!n) return false;
  lua_pushnumber(t.L, *n);
  Var* number = t.force(t.wrap(t.source(SourceKind::kInteger, v->source, nullptr, *type, v->source->text)));
  const Scalar symbol = t.symbolic(number);
  if (symbol.expr && symbol.kind == Scalar::kInt) v->num = symbol;
  return v->num.expr != 0;
}

Var* number_of_changing(Trace& t, Var* v) { return t.scalar(v->num); }

bool is_constant_cdata(Trace& t, Var* v) {
  if (t.force(v)->kind != VarKind::kObject || v->num.expr) return false;
  if (v->source && !v->fixed) return is_steady_integer(t, v);
  t.push_pin(v->pin);
  const bool is = is_number_cdata(t);
  lua_pop(t.L, 1);
  if (is) t.guard_identity(v);
  return is;
}

namespace {

// Returns whether a miss has shown that the number changes. Otherwise it is a constant, which more operations accept.
bool changes(Trace& t, Var* v) { return v->kind == VarKind::kNumber && may_change(v) && t.has_varied(v, 1); }

// Returns whether the value at the top of the stack is the type int64_t, from ffi.typeof or as a name.
bool is_signed_type(Trace& t) {
  const int top = lua_gettop(t.L);
  if (lua_type(t.L, top) == LUA_TSTRING) return !strcmp(lua_tostring(t.L, top), "int64_t");
  if (lua_type(t.L, top) != kCdataType || !luaL_callmeta(t.L, top, "__tostring")) return false;
  const bool is = lua_isstring(t.L, -1) && !strcmp(lua_tostring(t.L, -1), "ctype<int64_t>");
  lua_settop(t.L, top);
  return is;
}

// Returns whether the function is one of these of ffi. A program may load ffi at any time.
bool is_of_ffi(Trace& t, Var* function, std::initializer_list<const char*> names) {
  const int top = lua_gettop(t.L);
  if (!push_library(t.L, "ffi")) return false;
  t.push_real(function);
  bool is = false;
  for (const char* name : names) {
    lua_getfield(t.L, top + 1, name);
    is = is || lua_rawequal(t.L, -1, top + 2);
  }
  lua_settop(t.L, top);
  return is;
}

}  // namespace

// The type is the called value (int64(n)), or the first argument of ffi.cast and ffi.new.
Var* made_cdata(Trace& t, Var* function, const Vars& args) {
  const bool called = function->kind == VarKind::kObject;
  if (args.size() != (called ? 1U : 2U) || (!called && !is_of_ffi(t, function, {"cast", "new"}))) return nullptr;
  Var *type = t.force(called ? function : args[0]), *from = t.force(args.back());
  const bool known = type->kind == VarKind::kString || type->kind == VarKind::kObject;
  if (!known || from->kind != VarKind::kNumber || from->tensor) return nullptr;
  const int top = lua_gettop(t.L);
  t.push_real(type);
  const bool is = is_signed_type(t);
  lua_settop(t.L, top);
  if (!is) return nullptr;
  if (type->kind == VarKind::kObject) t.guard_identity(type);
  const int32_t expr = changes(t, from) ? operand(t, from) : 0;
  const double number = expr ? from->num.to_double() : t.constant(from);
  t.push_real(function);
  if (!called) t.push_real(type);
  lua_pushnumber(t.L, number);
  lua_call(t.L, int(args.size()), 1);
  Var* v = t.constant_from_stack();
  if (expr) v->num = Scalar::of_sym(SymInt::of_expr(*t.graph->env, expr));
  return v;
}

Var* is_of_type(Trace& t, Var* function, const Vars& args) {
  if (args.size() != 2 || !is_of_ffi(t, function, {"istype"})) return nullptr;
  Var *type = t.force(args[0]), *v = t.force(args[1]);
  const int top = lua_gettop(t.L);
  if (type->kind == VarKind::kString) {
    lua_pushstring(t.L, t.text(type).c_str());
  } else if (type->kind == VarKind::kObject && type->source && !type->fixed) {
    t.guard_identity(type);
    t.push_pin(type->pin);
  } else {
    return nullptr;
  }
  if (v->kind == VarKind::kObject && !is_changing_integer(t, v) && !is_constant_cdata(t, v))
    return lua_settop(t.L, top), nullptr;
  t.push_real(function);
  lua_insert(t.L, top + 1);
  v->kind == VarKind::kObject ? t.push_pin(v->pin) : lua_pushnil(t.L);  // all others are of no C type
  const bool fails = lua_pcall(t.L, 2, 1, 0) != 0;
  const bool is = !fails && lua_toboolean(t.L, -1);
  lua_settop(t.L, top);
  if (fails) t.stop(Break::raises, {"ffi.istype"});
  return t.boolean(is);
}

Var* cdata_operation(Trace& t, const char* metamethod, Var* a, Var* b) {
  if (is_changing_integer(t, a) || is_changing_integer(t, b)) return changing_operation(t, metamethod, a, b);
  const bool first = is_constant_cdata(t, a), second = is_constant_cdata(t, b);
  const auto fits = [](const Var* v, bool is) { return is || v->kind == VarKind::kNumber; };
  if ((!first && !second) || !fits(a, first) || !fits(b, second)) return nullptr;
  if (changes(t, first ? b : a)) {
    if (Var* made = changing_operation(t, metamethod, a, b)) return made;
  }
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
