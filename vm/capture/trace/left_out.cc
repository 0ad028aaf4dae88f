// Functions that a trace leaves to Lua: noted, so that whoever keeps what the trace becomes can compile them by
// themselves.
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

// Pushes the function, or one like it. False, and nothing pushed, where there is none to patch.
bool push_left_out(Trace& t, Var* f) {
  if (f->builtin || f->binding) return false;
  if (f->kind == VarKind::kClosure) return push_closure_like(t, *f->closure, f);
  if (f->kind != VarKind::kFunction && f->kind != VarKind::kLazy) return false;
  t.push_pin(f->pin);
  if (lua_isfunction(t.L, -1) && !lua_iscfunction(t.L, -1)) return true;
  lua_pop(t.L, 1);
  return false;
}

// Pushes what is said of a closure that the trace makes.
bool push_maker_of(Trace& t, const Closure& made) {
  if (made.env == t.frames[0]->function) return lua_pushinteger(t.L, lua_Integer(made.constant)), true;
  t.leave_out(made.env);  // to Lua's FNEW it must be known as well
  lua_createtable(t.L, 2, 0);
  if (!push_left_out(t, made.env)) return false;
  lua_rawseti(t.L, -2, 1);
  lua_pushinteger(t.L, lua_Integer(made.constant));
  lua_rawseti(t.L, -2, 2);
  return true;
}

}  // namespace

void Trace::leave_out(Var* f) {
  if (left_out == 0) return;
  luaL_checkstack(L, 20, "capture");
  const int top = lua_gettop(L);
  if (push_left_out(*this, f)) {
    bool known = true;
    f->kind == VarKind::kClosure ? void(known = push_maker_of(*this, *f->closure)) : lua_pushboolean(L, true);
    if (known) lua_rawset(L, left_out);
  }
  lua_settop(L, top);
}

void Trace::leave_out(const Frame& caller) {
  auto callee = std::find(frames.begin(), frames.end(), &caller);
  while (++callee != frames.end() && !is_programs(**callee)) {
  }
  if (callee != frames.end()) leave_out((*callee)->function);
}

}  // namespace lutra
