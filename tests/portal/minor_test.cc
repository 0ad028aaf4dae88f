// Tests that minor collections find exactly the objects to which nothing refers. LuaJIT's own collector is the
// reference.
#include <random>
#include <set>

#include "tests/bytecode/lua_state.h"
#include "vm/mirror/minor.h"

using namespace lutra;
using mirror::Minor;

namespace {

constexpr uint32_t kBytes = 24;

// A state with `fresh()`: userdata of a kind; `tries` of them were found gone.
struct Heap : LuaState {
  mirror::MinorKind kind;
  std::set<const void*> gone;
  int finalized = 0;

  Heap() {
    luaL_newmetatable(L, "minor test");
    lua_pushlightuserdata(L, this);
    lua_pushcclosure(L, finalize, 1);
    lua_setfield(L, -2, "__gc");
    kind = {static_cast<const mirror::Tab*>(lua_topointer(L, -1)), kBytes, nullptr};
    lua_pop(L, 1);
    lua_register(L, "fresh", fresh);
  }
  ~Heap() { lua_gc(L, LUA_GCSTOP, 0); }

  static int finalize(lua_State* L) {
    ++static_cast<Heap*>(lua_touserdata(L, lua_upvalueindex(1)))->finalized;
    return 0;
  }
  static int fresh(lua_State* L) {
    lua_newuserdata(L, kBytes);
    luaL_getmetatable(L, "minor test");
    lua_setmetatable(L, -2);
    return 1;
  }
  void call(const char* name, const void* self, lua_CFunction f) {
    lua_pushlightuserdata(L, const_cast<void*>(self));
    lua_pushcclosure(L, f, 1);
    lua_setglobal(L, name);
  }
  size_t in_memory() { return mirror::userdata_of(L, kind).size(); }
  Minor hold(size_t* n) { return find(mirror::hold, n); }
  Minor collect(size_t* n) { return find(mirror::collect, n); }

 private:
  Minor find(Minor (*f)(lua_State*, const mirror::MinorKind&, mirror::Found*), size_t* n) {
    mirror::Found found;
    const Minor done = f(L, kind, &found);
    *n = found.gone.size();
    for (const mirror::Udata* u : found.gone) CHECK(gone.insert(u).second);
    return done;
  }
};

}  // namespace

TEST_CASE("a minor collection finds what is gone, once", "[mirror][minor]") {
  Heap h;
  size_t n = 0;
  CHECK(h.collect(&n) == Minor::kTooMuch);  // not held
  h.run("collectgarbage() kept = {fresh()} for i = 1, 10 do fresh() end");
  REQUIRE(h.hold(&n) == Minor::kDone);
  CHECK(n >= 9);
  h.run("kept[2] = fresh() for i = 1, 10 do local x = fresh() end local t = {} t.t = {t, fresh()}");
  REQUIRE(h.collect(&n) == Minor::kDone);
  CHECK(n >= 9);
  CHECK(h.collect(&n) == Minor::kDone);
  CHECK(n <= 2);  // what stale slots of the stack referred to
  h.run("kept[2] = nil");
  CHECK(h.collect(&n) == Minor::kDone);
  CHECK(n >= 1);
  CHECK(h.finalized == 0);
  h.run("kept = nil");
  CHECK(h.collect(&n) == Minor::kDone);
  CHECK(n == 0);  // it was there before
  lua_gc(h.L, LUA_GCCOLLECT, 0);
  CHECK(h.in_memory() <= 1);
  CHECK(h.finalized <= 1);  // those that were found gone are not finalized again
  CHECK(h.collect(&n) == Minor::kTooMuch);
}

TEST_CASE("a held state goes on with its collector as it was", "[mirror][minor]") {
  Heap h;
  size_t n = 0;
  const int pause = lua_gc(h.L, LUA_GCSETPAUSE, 170), pace = lua_gc(h.L, LUA_GCSETSTEPMUL, 230);
  REQUIRE(h.hold(&n) == Minor::kDone);
  CHECK(lua_gc(h.L, LUA_GCISRUNNING, 0) == 1);
  CHECK(lua_gc(h.L, LUA_GCSETPAUSE, pause) == 170);
  CHECK(lua_gc(h.L, LUA_GCSETSTEPMUL, pace) == 230);
  // Lua's own garbage ends the hold, and the heap does not grow.
  h.run("for i = 1, 200000 do local t = {i} end");
  CHECK(lua_gc(h.L, LUA_GCCOUNT, 0) < 2000);
  h.run("return collectgarbage('step', 100000)");
  CHECK(lua_toboolean(h.L, -1));
  CHECK(lua_gettop(h.L) == 1);
}

TEST_CASE("no minor collection where the collector does not run", "[mirror][minor]") {
  Heap h;
  size_t n = 0;
  REQUIRE(h.hold(&n) == Minor::kDone);
  lua_gc(h.L, LUA_GCSTOP, 0);
  CHECK(h.collect(&n) == Minor::kBusy);
  CHECK(h.hold(&n) == Minor::kBusy);
  lua_gc(h.L, LUA_GCRESTART, -1);
  CHECK(h.collect(&n) == Minor::kDone);
  h.call("collect", &h, [](lua_State* L) {
    auto* heap = static_cast<Heap*>(lua_touserdata(L, lua_upvalueindex(1)));
    size_t found = 0;
    lua_pushinteger(L, int(heap->collect(&found)));
    return 1;
  });
  h.run("local p = newproxy(true) getmetatable(p).__gc = function() within = collect() end");
  h.run("collectgarbage() collectgarbage() return within");
  CHECK(lua_tointeger(h.L, -1) == int(Minor::kBusy));
}

TEST_CASE("no minor collection while LuaJIT records a trace", "[mirror][minor]") {
  Heap h;
  size_t n = 0;
  REQUIRE(h.hold(&n) == Minor::kDone);
  h.call("collect", &h, [](lua_State* L) {
    auto* heap = static_cast<Heap*>(lua_touserdata(L, lua_upvalueindex(1)));
    size_t found = 0;
    lua_pushinteger(L, int(heap->collect(&found)));
    return 1;
  });
  h.run(
      "local seen = {} require('jit').attach(function() seen[#seen + 1] = collect() end, 'record')\n"
      "local s = 0 for i = 1, 300 do s = s + i end return #seen, seen[1], seen[#seen]");
  CHECK(lua_tointeger(h.L, 1) > 0);
  CHECK(lua_tointeger(h.L, 2) == int(Minor::kBusy));
  CHECK(lua_tointeger(h.L, 3) == int(Minor::kBusy));
}

TEST_CASE("a state whose structs are not known has no minor collections", "[mirror][minor]") {
  Heap h;
  size_t n = 0;
  mirror::set_unavailable(h.L);
  CHECK(h.hold(&n) == Minor::kNever);
  CHECK(h.collect(&n) == Minor::kNever);
}

namespace {

// Random stores into everything that can refer to a value, random steps of the collector.
constexpr char kMutator[] = R"(
local random, collect, new = ...
local N = 24
local things = {}
local function variable(v)
  local w = v
  return {get = function() return v, w end, set = function(x, y) v = x w = y end}
end
local function coroutine_of(v)
  local co = coroutine.create(function(x)
    local kept = v
    while true do
      local last = kept
      kept = coroutine.yield(last)
      if random(9) == 1 then local deep = {kept, last} coroutine.yield(deep) end
    end
  end)
  coroutine.resume(co)
  return co
end
local weak = {setmetatable({}, {__mode = 'k'}), setmetatable({}, {__mode = 'v'}), setmetatable({}, {__mode = 'kv'})}
local function make(v)
  local kind = random(9)
  if kind == 1 then return {v} end
  if kind == 2 then return {x = v, [v] = true} end
  if kind == 3 then return variable(v) end
  if kind == 4 then return coroutine_of(v) end
  if kind == 5 then return setmetatable({}, {__index = v, v}) end
  if kind == 6 then local p = newproxy() debug.setfenv(p, {v}) return p end
  if kind == 7 then return setfenv(function() return it end, {it = v}) end
  if kind == 8 then return setmetatable({[v] = {v}}, {__mode = ('k'):rep(random(2))}) end
  return v
end
for i = 1, N do things[i] = make(new()) end
local changes = {
  function(t, v) if type(t) == 'table' then t[random(5)] = v end end,
  function(t, v) if type(t) == 'table' then t['f' .. random(5)] = v end end,
  function(t, v) if type(t) == 'table' and rawget(t, 'set') then pcall(t.set, v, new()) end end,
  function(t, v) if type(t) == 'thread' then coroutine.resume(t, v) end end,
  function(t, v) if type(t) == 'function' then setfenv(t, {it = v, getfenv(t)}) end end,
  function(t, v) if type(t) == 'userdata' and debug.getfenv(t) then debug.setfenv(t, {v, debug.getfenv(t)}) end end,
  function(t, v) if type(t) == 'table' then for k in pairs(t) do t[k] = v break end end end,
  function(t, v) weak[1][v] = t weak[2][random(9)] = v weak[3][v] = v weak[2]['t' .. random(9)] = {v} end,
  function(t, v) if type(t) == 'table' then for k in pairs(t) do t[k] = nil break end end end,
  function(t, v) for k, x in pairs(weak[random(3)]) do things[random(N)] = {k, x} break end end,
}
return function(steps)
  for _ = 1, steps do
    local v = random(3) == 1 and new() or random(3) == 1 and make(new()) or things[random(N)]
    changes[random(#changes)](things[random(N)], v)
    if random(4) == 1 then things[random(N)] = make(v) end
    if random(12) == 1 then for i = 1, N do if random(3) == 1 then things[i] = make(new()) end end end
    v = nil
    collect(random(40))
  end
end
)";

struct Judge : Heap {
  std::mt19937 random;
  size_t found = 0, judged = 0;

  explicit Judge(unsigned seed) : random(seed) {}

  static int random_of(lua_State* L) {
    auto* h = static_cast<Judge*>(lua_touserdata(L, lua_upvalueindex(1)));
    lua_pushinteger(L, int(h->random() % unsigned(luaL_checkinteger(L, 1))) + 1);
    return 1;
  }
  // Objects that a full collection leaves in memory were referred to.
  static int collect_as(lua_State* L) {
    auto* h = static_cast<Judge*>(lua_touserdata(L, lua_upvalueindex(1)));
    const int what = int(luaL_checkinteger(L, 1));
    mirror::Found now;
    if (what == 1) lua_gc(L, LUA_GCSTEP, 1 + int(h->random() % 20));
    if (what == 2) {
      mirror::hold(L, h->kind, &now);
    } else {
      mirror::collect(L, h->kind, &now);
    }
    h->found += now.gone.size();
    if (what != 3) return 0;
    lua_gc(L, LUA_GCCOLLECT, 0);
    const std::set<const void*> gone(now.gone.begin(), now.gone.end());
    for (const mirror::Udata* u : mirror::userdata_of(L, h->kind)) h->judged += gone.count(u);
    return 0;
  }
};

}  // namespace

TEST_CASE("random heaps: what is taken is gone for LuaJIT, too", "[mirror][minor]") {
  for (const char* jit : {"jit.off()", "jit.opt.start('hotloop=2', 'hotexit=2')"}) {
    for (unsigned seed = 1; seed <= 12; ++seed) {
      Judge h(seed);
      h.run(jit);
      h.run("collectgarbage('setpause', " + std::to_string(110 + seed % 3 * 100) + ")");
      lua_settop(h.L, 0);
      REQUIRE(luaL_loadstring(h.L, kMutator) == 0);
      for (lua_CFunction f : {Judge::random_of, Judge::collect_as, Heap::fresh}) {
        lua_pushlightuserdata(h.L, &h);
        lua_pushcclosure(h.L, f, 1);
      }
      REQUIRE(lua_pcall(h.L, 3, 1, 0) == 0);
      lua_pushinteger(h.L, 4000);
      INFO(jit << " seed " << seed);
      const int status = lua_pcall(h.L, 1, 0, 0);
      if (status) FAIL(lua_tostring(h.L, -1));
      CHECK(h.judged == 0);
      CHECK(h.found > 200);
    }
  }
}
