// Tests redirecting functions in place and restoring them: bytecode, running frames, suspended coroutines, string.dump,
// the metatable of numbers, and memory over many rounds.
#include "ops/core/error.h"
#include "tests/portal/harness.h"

using namespace lutra;
using bc::Pc;

namespace {

// Patches the function at `index` in place with an echo portal at each of `pcs` (all insertable ones if empty).
void patch_in_place(PortalHarness& h, lua_State* L, int index, std::vector<Pc> pcs,
                    std::function<int(lua_State*)> portal) {
  index = index > 0 ? index : lua_gettop(L) + 1 + index;
  const bc::Dump dump = dump_function(L, index);
  const bc::Liveness live = bc::liveness(dump.top());
  if (pcs.empty()) {
    for (Pc pc = 1; pc < dump.top().size(); ++pc) {
      if (bc::insertable(dump.top(), pc) && live.reached[pc]) pcs.push_back(pc);
    }
  }
  Patch patch;
  for (Pc pc : pcs) {
    Point point{pc, alloc_portal_id(L), live.passable(pc), false, {Exit()}};
    for (size_t i = 0; i < point.args.size(); ++i) point.exits[0].outs.push_back({point.args[i], static_cast<int>(i)});
    point.exits[0].resume.pc = pc;
    point.exits[0].resume.past_portal = true;
    h.portals[point.id] = portal;
    patch.points.push_back(point);
  }
  make_clone(L, index, apply_patch(dump, patch));
  const std::string why = redirect(L, index, -1);
  if (!why.empty()) fail(why);
  lua_pop(L, 1);
}

int stand_in(lua_State* L) {
  lua_pushinteger(L, 1);
  lua_insert(L, 1);
  return lua_gettop(L);
}

// All that jit.util tells of a function, as one text.
const char* const kInfo =
    "local u = require 'jit.util'\n"
    "function info(f)\n"
    "  local out, i = {}, u.funcinfo(f)\n"
    "  for k, v in pairs(i) do if k ~= 'proto' and k ~= 'currentline' then out[#out + 1] = k .. '=' .. tostring(v) end "
    "end\n"
    "  table.sort(out)\n"
    "  if hot then return string.dump(f) end\n"  // LuaJIT rewrites loops that it gave up to compile
    "  for pc = 0, i.bytecodes - 1 do out[#out + 1] = tostring(u.funcbc(f, pc)) end\n"
    "  return table.concat(out, ' ') .. string.dump(f)\n"
    "end\n";

template <int (*fn)(lua_State*)>
int caught(lua_State* L) {
  try {
    return fn(L);
  } catch (const std::exception& e) {
    lua_pushstring(L, e.what());
  }
  return lua_error(L);
}
int redirect_from_lua(lua_State* L) {
  patch_in_place(*PortalHarness::current, L, 1, {}, [](lua_State*) { return 0; });
  return 0;
}
int restore_from_lua(lua_State* L) {
  lua_pushboolean(L, restore(L, 1));
  return 1;
}

void give_functions(PortalHarness& h, bool hot = false) {
  h.run(kInfo);
  lua_pushboolean(h.L, hot);
  lua_setglobal(h.L, "hot");
  lua_pushcfunction(h.L, caught<redirect_from_lua>);
  lua_setglobal(h.L, "patch");
  lua_pushcfunction(h.L, caught<restore_from_lua>);
  lua_setglobal(h.L, "unpatch");
}

}  // namespace

TEST_CASE("unpatch leaves the identical function", "[portal][redirect]") {
  for (const char* jit : kJitModes) {
    PortalHarness h(jit);
    give_functions(h, std::string(jit) == "hot");
    h.each_case([&](const std::string& name, int f, int c) {
      lua_State* L = h.L;
      auto info = [&] {
        lua_getglobal(L, "info");
        lua_pushvalue(L, f);
        REQUIRE(lua_pcall(L, 1, 1, 0) == 0);
        std::string s(lua_tostring(L, -1), lua_objlen(L, -1));
        lua_pop(L, 1);
        return s;
      };
      const std::string expected = h.results(f, c, 3);
      h.run("jit.flush()");
      const std::string before = info();
      const void* identity = prototype_identity(L, f);
      const std::string dumped = bc::emit(dump_function(L, f));
      for (int round = 0; round < 2; ++round) {
        patch_in_place(h, L, f, {}, stand_in);
        INFO(name << " jit " << jit);
        CHECK(redirected(L, f));
        if (std::string(jit) != "hot") CHECK(info() != before);
        CHECK(prototype_identity(L, f) == identity);
        CHECK(bc::emit(dump_function(L, f)) == dumped);
        const int calls = h.calls;
        CHECK(h.results(f, c, 3) == expected);
        CHECK(h.calls > calls);
        CHECK(restore(L, f));
        CHECK_FALSE(restore(L, f));
        CHECK_FALSE(redirected(L, f));
        CHECK(info() == before);
        const int after = h.calls;
        CHECK(h.results(f, c, 3) == expected);
        CHECK(h.calls == after);
        h.run("jit.flush()");
      }
    });
  }
}

TEST_CASE("patch and unpatch while the function runs", "[portal][redirect]") {
  for (const char* jit : kJitModes) {
    PortalHarness h(jit);
    give_functions(h, std::string(jit) == "hot");
    h.run(
        "local function work(n, hook)\n"
        "  local s, t = 0, {1, 2, 3, x = 'key'}\n"
        "  for i = 1, n do\n"
        "    local k = i * 0.5\n"
        "    hook(i, work)\n"
        "    s = s + k * 1000.125 + #t.x\n"
        "    local u = {s, name = 'text'}\n"
        "    if #u.name ~= 4 then return 'broken' end\n"
        "  end\n"
        "  local f = function() return s end\n"
        "  return s, f(), t.x .. 'end', pcall(error, 'e', 0)\n"
        "end\n"
        "local function same(...)\n"
        "  local want = {work(20, function() end)}\n"
        "  local got = {work(20, ...)}\n"
        "  for i = 1, 5 do assert(want[i] == got[i], tostring(got[i])) end\n"
        "  unpatch(work)\n"
        "end\n"
        "local before = info(work)\n"
        "for round = 1, 10 do\n"
        "  same(function(i, f) if i == 5 then patch(f) end end)\n"
        "  patch(work); same(function(i, f) if i == 5 then unpatch(f) end end)\n"
        "  same(function(i, f) if i % 3 == 0 then patch(f) elseif i % 3 == 1 then unpatch(f) end collectgarbage() "
        "end)\n"
        "  same(function(i, f) patch(f); collectgarbage() end)\n"
        "  local depth = 0\n"
        "  same(function(i, f) if i == 3 and depth < 3 then depth = depth + 1; patch(f); f(5, function() end); "
        "unpatch(f) end end)\n"
        "end\n"
        "unpatch(work); jit.flush()\n"
        "assert(info(work) == before)");
  }
}

TEST_CASE("patching near the end of a small stack", "[portal][redirect]") {
  for (const char* jit : kJitModes) {
    PortalHarness h(jit);
    give_functions(h, std::string(jit) == "hot");
    h.run(
        "local function deep(n, hook)\n"
        "  local a, b, c, d = n, {n}, n * 2, n * 3\n"
        "  if n == 0 then hook() return 0 end\n"
        "  local t = {x = deep(n - 1, hook)}\n"
        "  return t.x + a + b[1] + c + d + select('#', n, a, b, c, d)\n"
        "end\n"
        "for n = 0, 60 do\n"
        "  local want = coroutine.wrap(deep)(n, function() end)\n"
        "  local function run(hook) local co = coroutine.wrap(deep); assert(co(n, hook) == want) end\n"
        "  run(function() patch(deep) collectgarbage() end)\n"
        "  run(function() unpatch(deep) collectgarbage() end)\n"
        "  run(function() patch(deep) unpatch(deep) patch(deep) collectgarbage('step') end)\n"
        "  unpatch(deep)\n"
        "end");
  }
}

TEST_CASE("patch and unpatch from hooks and finalizers", "[portal][redirect]") {
  for (const char* jit : kJitModes) {
    PortalHarness h(jit);
    give_functions(h, std::string(jit) == "hot");
    h.run(
        "local function work(n)\n"
        "  local s, t = 0, {x = 'key'}\n"
        "  for i = 1, n do\n"
        "    local u = {i, t.x .. i}\n"
        "    s = s + #u[2] * 0.5 + u[1]\n"
        "    local p = newproxy(proxy)\n"
        "  end\n"
        "  return s, t.x\n"
        "end\n"
        "local turn, before = 0, info(work)\n"
        "local function change() turn = turn + 1; if turn % 2 == 0 then patch(work) else unpatch(work) end end\n"
        "proxy = newproxy(true); local want = work(50)\n"
        "for count = 1, 40 do\n"
        "  debug.sethook(change, '', count); local got, key = work(50); debug.sethook()\n"
        "  assert(got == want and key == 'key')\n"
        "end\n"
        "assert(turn > 100)\n"
        "local dead = 0; local function finalize() dead = dead + 1; if dead % 50 == 0 then pcall(change) end end\n"
        "getmetatable(proxy).__gc = finalize; collectgarbage('setpause', 50); turn = 0\n"
        "for round = 1, 30 do assert(work(200) == work(200)) end\n"
        "assert(turn > 100, turn)\n"
        "getmetatable(proxy).__gc = nil; collectgarbage(); unpatch(work)\n"
        "jit.flush(); unpatch(work); assert(info(work) == before)");
  }
}

TEST_CASE("unpatch while coroutines are suspended inside", "[portal][redirect]") {
  for (const char* jit : kJitModes) {
    PortalHarness h(jit);
    give_functions(h, std::string(jit) == "hot");
    h.run(
        "local yield = coroutine.yield\n"
        "local function gen(n, a, b)\n"
        "  local s = 0\n"
        "  for i = 1, n do\n"
        "    s = s + i * a\n"
        "    local r = yield(s, 'key' .. i)\n"
        "    s = s + (r or b)\n"
        "  end\n"
        "  return s, {a, b, s}\n"
        "end\n"
        "local before = info(gen)\n"
        "local function drive(hook)\n"
        "  local cos, out = {}, {}\n"
        "  for c = 1, 5 do cos[c] = coroutine.create(gen) end\n"
        "  for step = 1, 12 do\n"
        "    for c = 1, 5 do\n"
        "      local ok, s, k\n"
        "      if step == 1 then ok, s, k = coroutine.resume(cos[c], 9 + c, c, 2) else ok, s, k = "
        "coroutine.resume(cos[c], step % 3 == 0 and step or nil) end\n"
        "      out[#out + 1] = tostring(ok) .. tostring(s) .. type(k)\n"
        "      hook(step, c)\n"
        "    end\n"
        "  end\n"
        "  return table.concat(out, ' ')\n"
        "end\n"
        "local want = drive(function() end)\n"
        "for round = 1, 5 do\n"
        "  assert(drive(function(step, c) if step == 2 and c == 1 then patch(gen) elseif step == 5 then unpatch(gen) "
        "collectgarbage() end end) == want)\n"
        "  patch(gen); assert(drive(function(step) if step == 4 then unpatch(gen) end collectgarbage() end) == want)\n"
        "  assert(drive(function(step, c) if c % 2 == 0 then patch(gen) else unpatch(gen) end collectgarbage('step') "
        "end) == want)\n"
        "  unpatch(gen)\n"
        "end\n"
        "unpatch(gen); jit.flush()\n"
        "assert(info(gen) == before)");
  }
}

TEST_CASE("the cold stub tail calls what its portal returns", "[portal][redirect]") {
  for (const char* jit : kJitModes) {
    for (int id_floor : {1, 40000}) {
      PortalHarness h(jit);
      h.each_case([&](const std::string& name, int f, int c) {
        lua_State* L = h.L;
        const std::string expected = h.results(f, c);
        int id = alloc_portal_id(L);
        while (id < id_floor) id = alloc_portal_id(L);
        make_clone(L, f, make_stub(dump_function(L, f), id));
        const int clone = lua_gettop(L);
        lua_pushvalue(L, clone);
        const int ref = luaL_ref(L, LUA_REGISTRYINDEX);
        int visits = 0;
        h.portals[id] = [&](lua_State* L) {
          if (++visits < 3) return 0;
          lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
          if (visits == 3) patch_in_place(h, L, lua_gettop(L), {1}, stand_in);
          return 1;
        };
        INFO(name << " jit " << jit);
        CHECK(h.results(clone, c) == expected);
        CHECK(visits == 3);
        CHECK(redirected(L, clone));
        CHECK(bc::emit(dump_function(L, clone)) == bc::emit(dump_function(L, f)));
        CHECK(prototype_identity(L, clone) == prototype_identity(L, f));
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
      });
    }
  }
}

TEST_CASE("ten thousand rounds of patch and unpatch do not grow memory", "[portal][redirect]") {
  PortalHarness h("on");
  lua_State* L = h.L;
  h.run(
      "local function f(n) local s = 0; for i = 1, n do s = s + i end return s end\n"
      "return f, function(g) for i = 1, 3 do if g(10) ~= 55 then error('wrong') end end end");
  const bc::Dump dump = dump_function(L, 1);
  auto round = [&](int i) {
    const int id = alloc_portal_id(L);
    h.portals[1] = [](lua_State*) { return 0; };
    h.portals[2] = h.portals[1];
    Point point{static_cast<Pc>(1 + i % 2), id, {}, false, {}};
    make_clone(L, 1, apply_patch(dump, {{point}}));
    REQUIRE(redirect(L, 1, -1).empty());
    lua_pop(L, 1);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, 1);
    REQUIRE(lua_pcall(L, 1, 0, 0) == 0);
    REQUIRE(restore(L, 1));
    free_portal_id(L, id);
    lua_gc(L, LUA_GCSTEP, 10);
  };
  auto memory = [&] {
    lua_gc(L, LUA_GCCOLLECT, 0);
    lua_gc(L, LUA_GCCOLLECT, 0);
    return lua_gc(L, LUA_GCCOUNT, 0);
  };
  for (int i = 0; i < 1000; ++i) round(i);
  const int before = memory();
  for (int i = 0; i < 10000; ++i) round(i);
  CHECK(memory() <= before + 16);
  CHECK(alloc_portal_id(L) < 2000);
}

TEST_CASE("string.dump shows the original of a patched function", "[portal][redirect]") {
  PortalHarness h;
  give_functions(h);
  h.run(
      "local function f(a, ...) local t = {...}; return a, #t end\n"
      "local whole, stripped = string.dump(f), string.dump(f, true)\n"
      "patch(f)\n"
      "assert(string.dump(f) == whole and string.dump(f, true) == stripped)\n"
      "assert(type(string.dump) == 'function' and not pcall(string.dump, print) and not pcall(string.dump))\n"
      "local d = debug.getinfo(f)\n"
      "assert(d.linedefined == 1 and d.what == 'Lua' and d.short_src == 'test' and d.nups == 0)\n"
      "unpatch(f)\n"
      "assert(string.dump(f) == whole)");
}

TEST_CASE("line numbers in a patched function are the source's", "[portal][redirect]") {
  PortalHarness h;
  give_functions(h);
  h.run(
      "local function f(x)\n"
      "  local a = 1\n"
      "  local b = a + 1\n"
      "  error('here')\n"
      "end\n"
      "local function g(x)\n"
      "  local y = x\n"
      "  return y.field.deep + 1\n"
      "end\n"
      "local _, e1 = pcall(f); local _, e2 = pcall(g, {})\n"
      "patch(f); patch(g)\n"
      "local _, p1 = pcall(f); local _, p2 = pcall(g, {})\n"
      "assert(p1 == e1 and e1 == 'test:4: here', p1)\n"
      "assert(p2 == e2, p2)");
}

TEST_CASE("a live frame keeps lines, names and upvalues when its function is patched and unpatched",
          "[portal][redirect]") {
  for (const char* jit : kJitModes) {
    PortalHarness h(jit);
    give_functions(h, std::string(jit) == "hot");
    h.run(
        "local up = 0\n"
        "local function f(hook, t)\n"
        "  up = up + 1\n"
        "  hook()\n"
        "  up = up + 1\n"
        "  return debug.getinfo(1, 'l').currentline, t.field.deep\n"
        "end\n"
        "local before = info(f)\n"
        "local function fails(hook) local ok, e = pcall(f, hook, {}); assert(not ok); return e end\n"
        "local want = fails(function() end)\n"
        "assert(want == \"test:6: attempt to index field 'field' (a nil value)\", want)\n"
        "for round = 1, 5 do\n"
        "  assert(fails(function() patch(f) collectgarbage() end) == want)\n"
        "  assert(fails(function() unpatch(f) assert(info(f) == before) collectgarbage() end) == want)\n"
        "  assert(fails(function() patch(f) unpatch(f) patch(f) unpatch(f) end) == want)\n"
        "  assert(f(function() patch(f) end, {field = {}}) == 6)\n"
        "  assert(f(function() unpatch(f) end, {field = {}}) == 6)\n"
        "end\n"
        "assert(up == 2 * (1 + 25))");
  }
}

TEST_CASE("a frame moves to the newest prototype", "[portal][redirect]") {
  for (const char* jit : kJitModes) {
    PortalHarness h(jit);
    lua_State* L = h.L;
    h.run("return function(n, ...) local s = 0; for i = 1, n do s = s + i * select('#', ...) end return s end");
    const bc::Dump dump = dump_function(L, 1);
    Pc body = 0;
    while (bc::op(dump.top().code[body]) != bc::Op::FORI) ++body;
    ++body;
    auto patched = [&](int id) { return apply_patch(dump, {{{body, id, {}, false, {}}}}); };
    const int first = alloc_portal_id(L), second = alloc_portal_id(L);
    int calls[2] = {0, 0};
    h.portals[first] = [&](lua_State* L) {
      if (++calls[0] != 30) return 0;
      lua_Debug ar;
      lua_getstack(L, 1, &ar);
      lua_getinfo(L, "f", &ar);
      make_clone(L, 1, patched(second));
      CHECK(redirect(L, 1, 2).empty());
      CHECK_FALSE(move_frame(L, 1, first));
      CHECK(move_frame(L, 1, second));
      lua_getstack(L, 1, &ar);
      lua_getinfo(L, "f", &ar);
      CHECK(lua_rawequal(L, 1, -1));
      lua_gc(L, LUA_GCCOLLECT, 0);
      return 0;
    };
    h.portals[second] = [&](lua_State*) {
      ++calls[1];
      return 0;
    };
    make_clone(L, 1, patched(first));
    REQUIRE(redirect(L, 1, 2).empty());
    lua_settop(L, 1);
    lua_pushinteger(L, 100);
    lua_pushinteger(L, 7);
    lua_call(L, 2, 1);
    CHECK(lua_tointeger(L, -1) == 5050);
    CHECK(calls[0] == 30);
    CHECK(calls[1] == 70);
  }
}

TEST_CASE("closures that patched code makes are of the original's prototypes", "[portal][redirect]") {
  PortalHarness h;
  give_functions(h);
  h.run(
      "local function outer(x) local inner = function() return x end; return inner end\n"
      "local a = outer(1); patch(outer); local b = outer(2); return a, b, outer");
  CHECK(prototype_identity(h.L, 1) == prototype_identity(h.L, 2));
  CHECK(prototype_identity(h.L, 1) != prototype_identity(h.L, 3));
}

TEST_CASE("jit.off of the original holds for its patched prototype", "[portal][redirect]") {
  PortalHarness h("on");
  h.run("local function f() return 1 end; jit.off(f); return f");
  const bc::Dump dump = dump_function(h.L, 1);
  make_clone(h.L, 1, apply_patch(dump, {{{1, alloc_portal_id(h.L), {}, false, {}}}}));
  CHECK((mirror::proto_of(static_cast<mirror::Func*>(mirror::object(h.L, 2)))->flags & mirror::kProtoNoJit) != 0);
}

TEST_CASE("numbers keep the metatable of others", "[portal][redirect]") {
  PortalHarness h;
  lua_State* L = h.L;
  give_functions(h);
  h.run(
      "f = function(a) local b = a + 1; return b end; patch(f)\n"
      "local function message(g) local ok, e = pcall(g); assert(not ok); return e end\n"
      "assert(message(function() local x = 5; x() end) == \"test:3: attempt to call local 'x' (a number value)\")\n"
      "assert(message(function() num = 5; num() end) == \"test:4: attempt to call global 'num' (a number value)\")\n"
      "local t = {field = 5}; assert(message(function() t.field() end) == \"test:5: attempt to call field 'field' (a "
      "number value)\")\n"
      "local mt = {__index = {twice = function(n) return 2 * n end}, __call = function(n, a) return n + a end}\n"
      "assert(debug.setmetatable(0, mt) == true)\n"
      "assert((5):twice() == 10 and (5)(3) == 8 and (1)(1) == 2 and (-1)(1, 2) == 0 and debug.getmetatable(0) == mt)\n"
      "assert(f(1) == 2)\n"
      "debug.setmetatable(0, {__unm = false}); assert(not pcall(function() return (5)(3) end) and f(1) == 2)\n"
      "assert(mt.__call(1, 2) == 3)\n"
      "debug.setmetatable(0, nil); assert(f(1) == 2 and not pcall(function() return (5):twice() end))\n"
      "assert(debug.setmetatable('', debug.getmetatable('')) and not pcall(debug.setmetatable, 0, 5))\n"
      "assert(f(1) == 2)");
  CHECK(h.calls > 3);
  const int calls = h.calls;
  h.run("local n = 0; for i = -5, 50 do if pcall(function() return i(1, 2, 3) end) then n = n + 1 end end return n");
  CHECK(lua_tointeger(L, -1) == 0);
  CHECK(h.calls == calls);
}

TEST_CASE("an exception in a portal is a Lua error with the line", "[portal][redirect]") {
  PortalHarness h;
  h.run("local function f(a)\n local b = a\n return b end return f");
  const bc::Dump dump = dump_function(h.L, 1);
  const int id = alloc_portal_id(h.L);
  h.portals[id] = [](lua_State*) -> int { fail("matmul: shapes"); };
  make_clone(h.L, 1, apply_patch(dump, {{{2, id, {}, false, {}}}}));
  REQUIRE(lua_pcall(h.L, 0, 0, 0) != 0);
  CHECK(std::string(lua_tostring(h.L, -1)) == "test:3: matmul: shapes");
}

TEST_CASE("without the mirror clones work and patching in place says why not", "[portal][redirect]") {
  for (const char* jit : kJitModes) {
    PortalHarness h(jit, false);
    lua_State* L = h.L;
    h.each_case([&](const std::string& name, int f, int c) {
      const std::string expected = h.results(f, c);
      const bc::Dump dump = dump_function(L, f);
      const bc::Liveness live = bc::liveness(dump.top());
      const int id = alloc_portal_id(L);
      h.portals[id] = stand_in;
      Point point{1, id, live.passable(1), false, {Exit()}};
      for (size_t i = 0; i < point.args.size(); ++i)
        point.exits[0].outs.push_back({point.args[i], static_cast<int>(i)});
      point.exits[0].resume.pc = 1;
      point.exits[0].resume.past_portal = true;
      make_clone(L, f, apply_patch(dump, {{point}}));
      INFO(name);
      const int calls = h.calls;
      CHECK(h.results(lua_gettop(L), c) == expected);
      CHECK(h.calls > calls);
      CHECK_THAT(redirect(L, f, -1), Catch::Contains("cannot patch in place"));
      CHECK_FALSE(restore(L, f));
      CHECK(prototype_identity(L, f) == prototype_identity(L, -1));
      CHECK(bc::emit(dump_function(L, -1)) == bc::emit(dump));
    });
    h.run("assert(not pcall(function() return (1)(2) end))");
  }
}
