// The wish to stop is heard wherever a compile is, and leaves nothing behind: the next call compiles again.
#include <atomic>
#include <chrono>
#include <lua.hpp>
#include <thread>

#include <catch2/catch.hpp>

#include "ops/core/error.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

const char* const kProgram = R"lua(
  lt = require "lutra"
  local w = lt.ones(4, 4, {requires_grad = true})
  local function chain(x, n)
    for i = 1, n do x = (x:matmul(w) * 0.25):tanh() + i end
    return x:sum()
  end
  function fresh()  -- compiled anew at each call
    w.grad = nil
    return lt.compile(function(x) local y = chain(x, 60) y:backward() return y end)
  end
  function eager()
    w.grad = nil
    local y = chain(lt.ones(4, 4), 60)
    y:backward()
    return y:item(), w.grad:sum():item()
  end
)lua";

struct State {
  lua_State* L = luaL_newstate();
  State() {
    luaL_openlibs(L);
    open_lutra(L);
    lua_getfield(L, LUA_GLOBALSINDEX, "package");
    lua_getfield(L, -1, "loaded");
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "lutra");
    lua_settop(L, 0);
    if (luaL_dostring(L, kProgram)) FAIL(lua_tostring(L, -1));
  }
  ~State() { lua_close(L); }
  double eval(const std::string& text) {
    if (luaL_dostring(L, text.c_str())) FAIL(lua_tostring(L, -1));
    const double d = lua_tonumber(L, -1);
    lua_settop(L, 0);
    return d;
  }
};

// Asks to stop after `after`; says when a run was stopped by it.
bool is_stopped(lua_State* L, std::chrono::microseconds after, const char* program) {
  std::atomic<bool> done{false};
  std::thread presser([&] {
    const auto until = std::chrono::steady_clock::now() + after;
    while (!done && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    if (!done) interrupt_wanted = true;
  });
  const bool failed = luaL_dostring(L, program);
  done = true;
  presser.join();
  const bool was = interrupt_wanted.exchange(false);
  if (failed) {
    INFO(lua_tostring(L, -1));
    CHECK(std::string(lua_tostring(L, -1)).find("interrupted!") != std::string::npos);
    CHECK_FALSE(was);
  }
  lua_settop(L, 0);
  return failed;
}

}  // namespace

TEST_CASE("a compile that is interrupted leaves nothing behind", "[capture][interrupt]") {
  State s;
  s.eval("y, g = eager() f = fresh() f(lt.ones(4, 4))");
  const auto start = std::chrono::steady_clock::now();
  s.eval("f = fresh() f(lt.ones(4, 4))");
  const auto once = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  int stopped = 0;
  constexpr int kRounds = 40;
  for (int i = 0; i < kRounds; i++) {
    s.eval("f = fresh()");
    stopped += is_stopped(s.L, once * i / kRounds, "f(lt.ones(4, 4))");
    s.eval("lt.reset() f = fresh()");
    if (is_stopped(s.L, once * i / kRounds, "f(lt.ones(4, 4))")) stopped++;
    CHECK(s.eval("local w = f(lt.ones(4, 4)) return w:item() == y and 1 or 0") == 1);
    CHECK(s.eval("return lt.is_grad_enabled() and 1 or 0") == 1);
  }
  CHECK(stopped > 0);  // how many is the machine's affair
}

}  // namespace lutra
