/* A host in C that embeds Lutra: state, scripts, errors, calls through LuaJIT's API. Exits with the number of failures.
 */
#include <stdio.h>
#include <string.h>

#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include "tests/host/check.h"
#include "vm/capi/lutra.h"

static int host_function(lua_State* L) {
  lua_pushnumber(L, luaL_checknumber(L, 1) + 1);
  return 1;
}

static void test_scripts(lutra_State* S, const char* script) {
  const char* args[2];
  lua_State* L = lutra_lua(S);
  args[0] = "one";
  args[1] = "two";
  check(lutra_do_string(S, "total = lt.ones(2, 3):sum():item()", "=test") == LUTRA_OK, "do_string");
  lua_getglobal(L, "total");
  check(lua_tonumber(L, -1) == 6, "result of do_string");
  lua_pop(L, 1);
  check(lutra_do_file(S, script, 2, args) == LUTRA_OK, "do_file");
  lua_getglobal(L, "seen");
  check(lua_isstring(L, -1) && strcmp(lua_tostring(L, -1), "one two 2") == 0, "arguments of do_file");
  lua_pop(L, 1);
  check(lua_gettop(L) == 0, "stack after scripts");
}

static void test_errors(lutra_State* S) {
  check(lutra_do_string(S, "local x = lt.ones(2)\nlt.matmul(x, 3)", "=test") == LUTRA_ERROR_RUN, "code of an error");
  check(strstr(lutra_error(S), "test:2: matmul: argument 'other' must be a Tensor, got number 3") == lutra_error(S),
        "message of an error");
  check(strstr(lutra_error(S), "stack traceback:") != NULL, "traceback of an error");
  check(lutra_do_string(S, "x = = 1", "=test") == LUTRA_ERROR_SYNTAX, "code of a syntax error");
  check(strstr(lutra_error(S), "test:1:") == lutra_error(S), "message of a syntax error");
  check(lutra_do_file(S, "no such file.lua", 0, NULL) == LUTRA_ERROR_FILE, "code of a missing file");
  check(strstr(lutra_error(S), "no such file.lua") != NULL, "message of a missing file");
  check(lutra_do_string(S, "error({})", "=test") == LUTRA_ERROR_RUN, "error with a table");
  check(lutra_do_string(S, "ok = lt.ones(2):sum():item()", "=test") == LUTRA_OK, "the state goes on");
  check(lua_gettop(lutra_lua(S)) == 0, "stack after errors");
}

static void test_calls(lutra_State* S) {
  lua_State* L = lutra_lua(S);
  lua_pushcfunction(L, host_function);
  lua_pushnumber(L, 41);
  check(lutra_call(S, 1, 1) == LUTRA_OK && lua_tonumber(L, -1) == 42, "call");
  lua_settop(L, 0);
  lua_pushcfunction(L, host_function);
  lua_pushstring(L, "x");
  check(lutra_call(S, 1, 1) == LUTRA_ERROR_RUN && lua_gettop(L) == 0, "failing call");
}

static void test_options(void) {
  lutra_Options options;
  lutra_State* S;
  lua_State* L = luaL_newstate();
  luaL_openlibs(L);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.device = "nowhere";
  check(lutra_open(&options) == NULL && strstr(lutra_error(NULL), "nowhere") != NULL, "an impossible device");
  options.device = NULL;
  options.no_global = 1;
  options.lua = L;
  S = lutra_open(&options);
  check(S != NULL, "open in the host's state");
  if (S) {
    lua_getglobal(L, "lt");
    check(lua_isnil(L, -1), "no global");
    lua_pop(L, 1);
    lutra_close(S);
  }
  lua_close(L);
}

/* Leaves by LuaJIT's own error, at once and from within a call of the state that it makes. */
static int raises(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Value* out, int* m) {
  (void)in, (void)out, (void)m;
  ++*(int*)arg;
  if (n == 0) luaL_error(lutra_lua(S), "raised by the host");
  if (lutra_do_string(S, "host.raise()", "=inner") == LUTRA_OK) return LUTRA_OK;
  lua_pushstring(lutra_lua(S), lutra_error(S));
  return lua_error(lutra_lua(S));
}

static void test_raising(void) {
  lutra_State* S = lutra_open(NULL);
  int calls = 0, i;
  check(lutra_register(S, "host.raise", raises, &calls) == LUTRA_OK, "register");
  for (i = 0; i < 300; i++) {
    check(lutra_do_string(S, "local ok, e = pcall(host.raise) assert(not ok and e:find 'raised by the host')\n"
                             "ok, e = pcall(host.raise, 1) assert(not ok and e:find 'raised by the host')\n"
                             "ok, e = pcall(coroutine.wrap(host.raise)) assert(not ok and e:find 'raised by the host')\n"
                             "assert((lt.ones(2) + 1):sum():item() == 4)",
                          "=raising") == LUTRA_OK,
          lutra_error(S));
    check(lutra_do_string(S, "host.raise()", "=raise") == LUTRA_ERROR_RUN, "a code");
    check(strstr(lutra_error(S), "raised by the host") != NULL, lutra_error(S));
  }
  check(calls == 300 * 5, "every call");
  lutra_close(S); /* not as within a callback */
  check(lutra_do_string(S, "", "=closed") == LUTRA_ERROR_STATE && strstr(lutra_error(S), "closed"), "it is closed");
}

int main(int argc, char** argv) {
  lutra_State *S = lutra_open(NULL), *other = lutra_open(NULL);
  if (!S || !other || argc < 2) {
    fprintf(stderr, "%s\n", lutra_error(NULL));
    return 1;
  }
  check(strcmp(lutra_version(), LUTRA_VERSION) == 0, "version");
  test_scripts(S, argv[1]);
  test_errors(S);
  test_calls(S);
  check(lutra_do_string(other, "assert(total == nil) y = lt.zeros(3) + 1", "=other") == LUTRA_OK, "a second state");
  lutra_close(S);
  check(lutra_do_string(other, "assert(y:sum():item() == 3)", "=other") == LUTRA_OK, "the second state lives on");
  lutra_close(other);
  lutra_close(NULL);
  test_options();
  test_raising();
  return failures;
}
