// Replaces Lua's print, io.write, io.stdout and io.stderr by functions that call the host's writers.
#include "vm/capi/output.h"

#include <lua.hpp>

#include "vm/host/log.h"
#include "vm/host/runtime.h"

namespace lutra::capi {
namespace {

// Upvalues 1 and 2: the writer, in a userdata, and its argument.
void write_top(lua_State* L) {
  size_t n = 0;
  const char* text = lua_tolstring(L, -1, &n);
  auto* writer = static_cast<lutra_Writer*>(lua_touserdata(L, lua_upvalueindex(1)));
  (*writer)(lua_touserdata(L, lua_upvalueindex(2)), text, n);
}

int print_impl(lua_State* L) {
  const int n = lua_gettop(L);
  luaL_checkstack(L, 2 * n + 4, "too many values to print");
  lua_getglobal(L, "tostring");
  for (int i = 1; i <= n; i++) {
    if (i > 1) lua_pushliteral(L, "\t");
    lua_pushvalue(L, n + 1);
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
    if (!lua_isstring(L, -1)) luaL_error(L, "'tostring' must return a string to 'print'");
  }
  lua_pushliteral(L, "\n");
  lua_concat(L, lua_gettop(L) - n - 1);
  write_top(L);
  return 0;
}

void write_from(lua_State* L, int first) {
  for (int i = first; i <= lua_gettop(L); i++) luaL_checkstring(L, i);
  lua_concat(L, lua_gettop(L) - first + 1);
  write_top(L);
}

int write_impl(lua_State* L) {
  write_from(L, 1);
  lua_pushboolean(L, 1);
  return 1;
}

// file:write(...) -> file
int write_method_impl(lua_State* L) {
  luaL_checkany(L, 1);
  write_from(L, 2);
  lua_settop(L, 1);
  return 1;
}

int print(lua_State* L) { return guarded(L, print_impl); }
int write(lua_State* L) { return guarded(L, write_impl); }
int write_method(lua_State* L) { return guarded(L, write_method_impl); }
int nothing(lua_State* L) { return lua_settop(L, 1), lua_gettop(L); }

void push_with(lua_State* L, lua_CFunction f, lutra_Writer writer, void* arg) {
  *static_cast<lutra_Writer*>(lua_newuserdata(L, sizeof writer)) = writer;
  lua_pushlightuserdata(L, arg);
  lua_pushcclosure(L, f, 2);
}

// Replaces a file of io by a table with its methods. io is at the top of the stack.
void replace_file(lua_State* L, const char* name, lutra_Writer writer, void* arg) {
  lua_createtable(L, 0, 3);
  push_with(L, write_method, writer, arg);
  lua_setfield(L, -2, "write");
  for (const char* method : {"flush", "setvbuf"}) lua_pushcfunction(L, nothing), lua_setfield(L, -2, method);
  lua_setfield(L, -2, name);
}

}  // namespace

void direct_output(lua_State* L, const lutra_Options& options) {
  if (options.log) set_log_writer(L, options.log, options.log_arg);
  if (options.output) push_with(L, print, options.output, options.output_arg), lua_setglobal(L, "print");
  lua_getglobal(L, "io");
  if (lua_istable(L, -1) && options.output) {
    push_with(L, write, options.output, options.output_arg);
    lua_setfield(L, -2, "write");
    replace_file(L, "stdout", options.output, options.output_arg);
  }
  if (lua_istable(L, -1) && options.error_output) {
    replace_file(L, "stderr", options.error_output, options.error_output_arg);
  }
  lua_pop(L, 1);
}

}  // namespace lutra::capi
