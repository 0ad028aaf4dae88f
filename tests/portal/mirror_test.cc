// Tests that the start-up check passes on this machine's LuaJIT and is cheap, and that raw reads agree with the public
// API.
#include <chrono>

#include "tests/bytecode/lua_state.h"
#include "vm/mirror/mirror.h"

using namespace lutra;

TEST_CASE("the mirror's start-up check passes and costs at most two starts of LuaJIT", "[mirror]") {
  using Microseconds = std::chrono::duration<double, std::micro>;
  // Beside a state's own start, so that a slow machine or an emulator slows both.
  double start = 1e9, check = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto t0 = std::chrono::steady_clock::now();
    LuaState state;
    const auto t1 = std::chrono::steady_clock::now();
    CHECK(mirror::available(state.L));
    const auto t2 = std::chrono::steady_clock::now();
    start = std::min(start, Microseconds(t1 - t0).count());
    check = std::min(check, Microseconds(t2 - t1).count());
    CHECK(lua_gettop(state.L) == 0);
  }
  CAPTURE(start, check);
  CHECK(check < 2 * start);
}

TEST_CASE("a state without jit.util has no mirror", "[mirror]") {
  lua_State* L = luaL_newstate();
  CHECK_FALSE(mirror::available(L));
  lua_close(L);
}

TEST_CASE("threads, raw table reads and pushed objects", "[mirror]") {
  LuaState state;
  lua_State* L = state.L;
  REQUIRE(mirror::available(L));
  const size_t before = mirror::threads_since(L, nullptr).size();
  state.run("co = coroutine.create(function() coroutine.yield() end); coroutine.resume(co); t = {key = 'value'}");
  CHECK(mirror::threads_since(L, nullptr).size() == before + 1);
  lua_getglobal(L, "t");
  lua_pushliteral(L, "key");
  const auto* t = static_cast<mirror::Tab*>(mirror::object(L, -2));
  const mirror::TValue* v = mirror::raw_get(t, static_cast<mirror::Str*>(mirror::object(L, -1)));
  REQUIRE(v);
  mirror::push_object(L, mirror::kStr, mirror::gc_pointer(*v));
  CHECK(std::string(lua_tostring(L, -1)) == "value");
}

TEST_CASE("the caller of a C function", "[mirror]") {
  LuaState state;
  lua_State* L = state.L;
  for (bool raw : {true, false}) {
    lua_settop(L, 0);
    if (raw) REQUIRE(mirror::available(L));
    lua_pushcfunction(L, [](lua_State* L) {
      mirror::Caller caller;
      if (!mirror::caller_function(L, &caller)) return 0;
      lua_pushinteger(L, caller.pc);
      lua_pushinteger(L, caller.line);
      return 3;
    });
    lua_setglobal(L, "who");
    state.run("function f()\n local a = 1\n local g, pc, line = who()\n return g == f, pc, line end\nreturn f()");
    CHECK(lua_toboolean(L, -3));
    CHECK(lua_tointeger(L, -2) == 3);
    CHECK(lua_tointeger(L, -1) == 3);
    lua_settop(L, 0);
    lua_pushnil(L);
    lua_setglobal(L, "who");
  }
  state.run("jit.opt.start('hotloop=1', 'hotexit=1')");
  lua_pushcfunction(L, [](lua_State* L) {
    mirror::Caller caller;
    lua_pushboolean(L, mirror::caller_function(L, &caller));
    lua_pushinteger(L, caller.pc);
    return 2;
  });
  lua_setglobal(L, "who");
  state.run(
      "local bad = 0; for i = 1, 200 do local ok, pc = who(); if not ok or pc ~= 7 then bad = bad + 1 end end return "
      "bad");
  CHECK(lua_tointeger(L, -1) == 0);
}
