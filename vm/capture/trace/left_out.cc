// Records the functions that a trace leaves to Lua, so that they can be compiled as frames of their own.
#include <algorithm>
#include <lua.hpp>

#include "vm/capture/trace/child_path.h"
#include "vm/capture/trace/code.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/trace.h"
#include "vm/mirror/mirror.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

// Returns whether the frame's function is the program's: not LuaJIT's own and not a model of a C function.
bool is_programs(const Frame& f) { return !f.is_builtin() && f.code->file != std::string_view("lutra/lua_models.lua"); }

// Pushes the function, or a closure of the same prototype. Returns false and pushes nothing if there is no function to
// patch.
bool push_left_out(Trace& t, Var* f) {
  if (f->builtin || f->binding) return false;
  if (f->kind == VarKind::kClosure) return push_closure_like(t, f);
  if (f->kind != VarKind::kFunction && f->kind != VarKind::kLazy) return false;
  t.push_pin(f->pin);
  if (lua_isfunction(t.L, -1) && !lua_iscfunction(t.L, -1)) return true;
  lua_pop(t.L, 1);
  return false;
}

// Pushes an example for new closures of the function's prototype. It outlives the trace, so it has no upvalues, through
// which it might refer to the compiled function.
bool push_example_of(Trace& t, Var* f) {
  if (!push_left_out(t, f)) return false;
  if (f->kind == VarKind::kClosure) return true;
  if (!can_make_closures(code_of(t.state, t.L, lua_gettop(t.L))->proto())) return false;
  push_child_closure(t.L, lua_gettop(t.L), {});
  lua_remove(t.L, -2);
  return true;
}

// Pushes the table value for a closure that the trace makes (Trace::left_out).
bool push_maker_of(Trace& t, const Closure& made) {
  if (made.env == t.frames[0]->function) return lua_pushinteger(t.L, lua_Integer(made.constant)), true;
  t.leave_out(made.env);  // Lua's FNEW needs it, too
  lua_createtable(t.L, 2, 0);
  if (!push_example_of(t, made.env)) return false;
  lua_rawseti(t.L, -2, 1);
  lua_pushinteger(t.L, lua_Integer(made.constant));
  lua_rawseti(t.L, -2, 2);
  return true;
}

}  // namespace

bool push_closure_like(Trace& t, Var* made) {
  if (!mirror::available(t.L) || !can_make_closures(made->closure->code->proto())) return false;
  t.push_pin(around(made)->pin);
  push_child_closure(t.L, lua_gettop(t.L), path_to(made));
  lua_remove(t.L, -2);
  return true;
}

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
