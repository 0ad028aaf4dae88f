// Tests that grad mode, autocast, the default device and random numbers belong to a Lua state, not to the thread that
// runs it, nor to other states.
#include <catch2/catch.hpp>
#include <lua.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "jit/inject/inject.h"
#include "ops/defs/call.h"
#include "vm/capi/lutra.h"

namespace {

struct State {
  lutra_State* S = lutra_open(nullptr);
  State() { REQUIRE(S); }
  ~State() { lutra_close(S); }
  State(const State&) = delete;

  // The value of a Lua expression, as text.
  std::string operator()(const std::string& expression) {
    const std::string chunk = "result = tostring(" + expression + ")";
    if (lutra_do_string(S, chunk.c_str(), "=test") != LUTRA_OK) return lutra_error(S);
    lua_getglobal(lutra_lua(S), "result");
    const std::string text = lua_tostring(lutra_lua(S), -1);
    lua_pop(lutra_lua(S), 1);
    return text;
  }
  void run(const std::string& chunk) {
    INFO(chunk);
    const int code = lutra_do_string(S, chunk.c_str(), "=test");
    INFO(lutra_error(S));
    REQUIRE(code == LUTRA_OK);
  }
};

template <class F>
void on_another_thread(F f) {
  std::thread(f).join();
}

const char kDraws[] = "local t = {} for i = 1, 3 do t[i] = lt.rand(1):item() end return table.concat(t, ' ')";
std::string draws(State& s) { return s(std::string("(function() ") + kDraws + " end)()"); }

}  // namespace

TEST_CASE("modes of one state are not those of another on the thread", "[modes]") {
  State a;
  a.run("lt.set_grad_enabled(false) lt.set_autocast_enabled('cpu', true)");
  State b;
  CHECK(a("lt.is_grad_enabled()") == "false");
  CHECK(b("lt.is_grad_enabled()") == "true");
  CHECK(a("lt.is_autocast_enabled('cpu')") == "true");
  CHECK(b("lt.is_autocast_enabled('cpu')") == "false");
  CHECK(a("lt.matmul(lt.ones(2, 2), lt.ones(2, 2)).dtype") == "bfloat16");
  CHECK(b("lt.matmul(lt.ones(2, 2), lt.ones(2, 2)).dtype") == "float32");
  CHECK(b("(lt.ones(2, {requires_grad = true}) * 2).requires_grad") == "true");
  CHECK(lutra::grad_enabled());
}

TEST_CASE("one state asks for verification, the others run as before", "[modes]") {
  const char use[] = "f = lt.compile(function(x) return x:exp() + 1 end) for i = 1, 3 do f(lt.ones(2)) end";
  State a, b;
  a.run("lt.config.verify = 1");
  b.run(use);
  const std::string before = b("lt.counters().verify.calls");
  a.run(use);
  CHECK(b("lt.counters().verify.calls") != before);
  const std::string after = b("lt.counters().verify.calls");
  a.run("lt.config.verify = 1");
  b.run("for i = 1, 3 do f(lt.ones(2)) end");
  CHECK(b("lt.counters().verify.calls") == after);
  CHECK(b("lt.config.verify") == "0");
  State c;
  a.run("f(lt.ones(2))");
  CHECK(c("lt.counters().verify.calls") != after);
}

TEST_CASE("a state that opens leaves the bugs of the process as they are", "[modes]") {
  State first;
  lutra::switch_on_bugs("relu");
  State second;
  CHECK(lutra::bugs_on() == "relu");
  lutra::switch_on_bugs("");
}

TEST_CASE("compiled code runs in its state's modes", "[modes]") {
  State a, b;
  for (State* s : {&a, &b})
    s->run("f = lt.compile(function(x) return x * 2 end) w = lt.ones(2, {requires_grad = true}) f(w) f(w)");
  a.run("lt.set_grad_enabled(false)");
  for (int round = 0; round < 3; round++) {
    CHECK(a("f(w).requires_grad") == "false");
    CHECK(b("f(w).requires_grad") == "true");
  }
  b.run("g = lt.compile(function() lt.set_grad_enabled(false) return lt.ones(1) end) g() g()");
  CHECK(b("lt.is_grad_enabled()") == "false");
  a.run("lt.set_grad_enabled(true)");
  CHECK(b("f(w).requires_grad") == "false");
}

TEST_CASE("random numbers of states do not mix", "[modes]") {
  State alone;
  alone.run("lt.manual_seed(7)");
  const std::string first = draws(alone), second = draws(alone);
  CHECK(first != second);
  State a, b;
  a.run("lt.manual_seed(7)");
  b.run("lt.manual_seed(11)");
  CHECK(draws(a) == first);
  draws(b);
  CHECK(a("lt.initial_seed()") == "7");
  CHECK(draws(a) == second);
  CHECK(b("lt.initial_seed()") == "11");
}

TEST_CASE("a state takes its modes to another thread", "[modes]") {
  State a;
  a.run("lt.manual_seed(7)");
  const std::string first = draws(a), second = draws(a);
  a.run("lt.manual_seed(7) lt.set_grad_enabled(false) w = lt.ones(2, {requires_grad = true})");
  CHECK(draws(a) == first);
  on_another_thread([&] {
    CHECK(a("lt.is_grad_enabled()") == "false");
    CHECK(draws(a) == second);
    CHECK(a("(w * 2).requires_grad") == "false");
    a.run("lt.set_grad_enabled(true)");
    State other;
    CHECK(other("lt.is_grad_enabled()") == "true");
  });
  CHECK(a("lt.is_grad_enabled()") == "true");
}

TEST_CASE("a graph that several threads made in turn has right gradients", "[modes]") {
  State a;
  a.run("w = lt.tensor({1, 2, 3}, {requires_grad = true}) y = w for i = 1, 40 do y = y * 1.1 + w * 0.1 end");
  on_another_thread([&] { a.run("z = y for i = 1, 40 do z = z * 0.9 + y * 0.2 end"); });
  on_another_thread([&] { a.run("z = (z * w):sum() + (y * w):sum() z:backward() got = w.grad:clone()"); });
  a.run(
      "v = lt.tensor({1, 2, 3}, {requires_grad = true}) y = v for i = 1, 40 do y = y * 1.1 + v * 0.1 end\n"
      "z = y for i = 1, 40 do z = z * 0.9 + y * 0.2 end z = (z * v):sum() + (y * v):sum() z:backward()");
  CHECK(a("got:equal(v.grad)") == "true");
}

namespace {

// other(expression): its value in another state, from within this one.
int call_other(lua_State* L) {
  State& other = *static_cast<State*>(lua_touserdata(L, lua_upvalueindex(1)));
  lua_pushstring(L, other(luaL_checkstring(L, 1)).c_str());
  return 1;
}

}  // namespace

TEST_CASE("a state that calls into another goes on in its own modes", "[modes]") {
  State a, b;
  lua_pushlightuserdata(lutra_lua(a.S), &b);
  lua_pushcclosure(lutra_lua(a.S), call_other, 1);
  lua_setglobal(lutra_lua(a.S), "other");
  a.run("lt.set_grad_enabled(false)");
  CHECK(a("other('lt.is_grad_enabled()') .. ' ' .. tostring(lt.is_grad_enabled())") == "true false");
  // From within a C function of Lutra: a hook that backward runs.
  a.run(
      "lt.set_grad_enabled(true) local w = lt.ones(2, {requires_grad = true})\n"
      "local h = w * 2 h:register_hook(function(g) seen = other('lt.set_grad_enabled(false)') end)\n"
      "h:sum():backward() after = lt.is_grad_enabled() grad = w.grad:sum():item()");
  CHECK(a("after") == "true");
  CHECK(a("grad") == "4");
  CHECK(b("lt.is_grad_enabled()") == "false");
  // A coroutine of the state shares its modes.
  CHECK(b("coroutine.wrap(function() return lt.is_grad_enabled() end)()") == "false");
}

TEST_CASE("modes outlive neither their state nor an error", "[modes]") {
  for (int round = 0; round < 20; round++) {
    State a;
    a.run("lt.set_grad_enabled(false) lt.set_autocast_enabled('cpu', true) pcall(lt.no_grad, error)");
    CHECK(a("lt.matmul(lt.ones(2, 2), lt.ones(2, 2)):sum():item()") == "8");
    CHECK(a("lt.matmul(lt.ones(2, 3), lt.ones(2, 2))").find("cannot be multiplied") != std::string::npos);
    CHECK(lutra::grad_enabled());
  }
  State fresh;
  CHECK(fresh("lt.is_grad_enabled()") == "true");
  CHECK(fresh("lt.is_autocast_enabled('cpu')") == "false");
}

TEST_CASE("lt.auto counts for the state that asked", "[modes]") {
  State a, b;
  const char program[] =
      "local x = lt.ones(4) function f(x) return x * 2 + 1 end\n"
      "local stop = os.clock() + seconds\n"
      "repeat\n"
      "  for i = 1, 400 do f(x) end\n"
      "  graphs = lt.counters().stats.unique_graphs\n"
      "until graphs > 0 or os.clock() > stop  -- captures wait until they can be afforded\n";
  a.run("lt.auto(true) seconds = 20");
  b.run("seconds = 0.2");
  b.run(program);
  CHECK(b("graphs") == "0");
  a.run(program);
  CHECK(a("graphs > 0") == "true");
  b.run("lt.auto(true) seconds = 20");
  a.run("lt.auto(false) lt.reset() seconds = 0.2");
  a.run(program);
  CHECK(a("graphs") == "0");
  b.run(program);
  CHECK(b("graphs > 0") == "true");
}

// Each thread has two states, which take turns; the states of two threads are swapped now and then. Each state counts
// what it ought to see.
TEST_CASE("states, threads and coroutines with modes of their own", "[modes]") {
  const char kSetup[] = R"(
    local n = ...
    lt.auto(n % 2 == 0)
    lt.manual_seed(n)
    local w = lt.ones(4, {requires_grad = true})
    local function f(x, k) return (x * k + 1):tanh() end
    local g = n % 3 == 0 and lt.compile(f) or f
    local grad, calls = true, 0
    local co = coroutine.wrap(function()
      while true do coroutine.yield(lt.is_grad_enabled()) end
    end)
    function turn(i)
      if (i + n) % 5 == 0 then grad = not grad lt.set_grad_enabled(grad) end
      assert(lt.is_grad_enabled() == grad and co() == grad)
      for k = 1, 6 do
        local y = g(w, k)
        assert(y.requires_grad == grad)
        assert(lt.no_grad(g, w, k):equal(y:detach()))
        assert(not lt.no_grad(g, w, k).requires_grad)
      end
      assert(lt.initial_seed() == n)
      local low = lt.autocast("cpu", function() return w:detach():reshape({2, 2}):matmul(lt.ones(2, 2)) end)
      assert(low.dtype == "bfloat16" and not lt.is_autocast_enabled("cpu"))
      local ok, message = pcall(lt.no_grad, function() error("of the test", 0) end)
      assert(not ok and message == "of the test" and lt.is_grad_enabled() == grad)
      calls = calls + 1
    end
    function finish() assert(calls == 60) end)";
  std::vector<std::unique_ptr<State>> states;
  for (int n = 0; n < 6; n++) {
    states.push_back(std::make_unique<State>());
    lua_State* L = lutra_lua(states.back()->S);
    REQUIRE(luaL_loadstring(L, kSetup) == 0);
    lua_pushinteger(L, n);
    REQUIRE(lutra_call(states.back()->S, 1, 0) == LUTRA_OK);
  }
  for (int round = 0; round < 6; round++) {
    std::string problems[3];
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++) {
      threads.emplace_back([&, t] {
        State* mine[] = {states[size_t(t)].get(), states[size_t((t + round) % 3 + 3)].get()};
        for (int i = 0; i < 20; i++) {
          const std::string chunk = "turn(" + std::to_string(round * 10 + i / 2) + ")";
          State& s = *mine[i % 2];
          if (lutra_do_string(s.S, chunk.c_str(), "=test") != LUTRA_OK) problems[t] = lutra_error(s.S);
        }
      });
    }
    for (auto& t : threads) t.join();
    for (const std::string& p : problems) CHECK(p == "");
  }
  for (auto& s : states) s->run("finish()");
}
