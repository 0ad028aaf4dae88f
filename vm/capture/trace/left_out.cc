// Functions that a trace leaves to Lua: noted, so that whoever keeps what the trace becomes can compile them by themselves.
#include <algorithm>
#include <lua.hpp>

#include "vm/capture/trace/trace.h"
#include "vm/mirror/mirror.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

// Neither Lua's own, nor the model of a function of C's.
bool is_programs(const Frame& f) { return !f.is_builtin() && f.code->file != std::string_view("lutra/lua_models.lua"); }

// Another closure of the prototype; false, and nothing pushed, where there can be none.
bool push_closure_like(Trace& t, const Closure& made, Var* function) {
  if (!mirror::available(t.L)) return false;
  const int top = lua_gettop(t.L);
  t.push_prototype(made.env);
  t.push_prototype(function);
  const bool can = push_maker(t.L, top + 2, top + 1);
  if (can) {
    lua_call(t.L, 0, 1);
    lua_replace(t.L, top + 1);
  }
  lua_settop(t.L, can ? top + 1 : top);
  return can;
}

}  // namespace

void Trace::leave_out(Var* f) {
  if (left_out == 0 || f->builtin || f->binding) return;
  luaL_checkstack(L, 20, "capture");
  const int top = lua_gettop(L);
  if (f->kind == VarKind::kFunction || f->kind == VarKind::kLazy) {
    push_pin(f->pin);
    lua_pushboolean(L, true);
  } else if (f->kind == VarKind::kClosure && push_closure_like(*this, *f->closure, f)) {
    const bool first = f->closure->env == frames[0]->function;
    first ? lua_pushinteger(L, lua_Integer(f->closure->constant)) : lua_pushboolean(L, false);
  }
  if (lua_isfunction(L, top + 1) && !lua_iscfunction(L, top + 1)) lua_rawset(L, left_out);
  lua_settop(L, top);
}

void Trace::leave_out(const Frame& caller) {
  auto callee = std::find(frames.begin(), frames.end(), &caller);
  while (++callee != frames.end() && !is_programs(**callee)) {
  }
  if (callee != frames.end()) leave_out((*callee)->function);
}

}  // namespace lutra
