// Tests portals at every place where code can be inserted, both ones that decline and ones that take over. The results
// are those of the original.
#include "ops/core/error.h"
#include "tests/portal/harness.h"

using namespace lutra;
using bc::Pc;

PortalHarness* PortalHarness::current = nullptr;

namespace {

std::vector<Pc> places(const bc::Proto& p) {
  const bc::Liveness live = bc::liveness(p);
  std::vector<Pc> out;
  for (Pc pc = 1; pc < p.size(); ++pc) {
    if (bc::insertable(p, pc) && live.reached[pc]) out.push_back(pc);
  }
  return out;
}

// A point that hands all live slots through the portal and comes back to its own pc, by one of two exits.
Point echo_point(const bc::Proto& p, Pc pc, int id) {
  Point point;
  point.pc = pc;
  point.id = id;
  point.args = bc::liveness(p).passable(pc);
  for (int code : {1, 2}) {
    Exit exit;
    exit.code = code;
    for (size_t i = 0; i < point.args.size(); ++i) exit.outs.push_back({point.args[i], static_cast<int>(i)});
    exit.resume.pc = pc;
    exit.resume.past_portal = true;
    point.exits.push_back(exit);
  }
  return point;
}

int echo(lua_State* L, int code) {
  lua_pushinteger(L, code);
  lua_insert(L, 1);
  return lua_gettop(L);
}

int turn = 0;
int decline(lua_State*) { return 0; }
int take_over(lua_State* L) { return echo(L, 1 + turn++ % 2); }
int sometimes(lua_State* L) { return turn++ % 3 ? take_over(L) : 0; }

void check_everywhere(int (*portal)(lua_State*), bool together) {
  for (const char* mode : kJitModes) {
    PortalHarness h(mode);
    h.each_case([&](const std::string& name, int f, int c) {
      const std::string expected = h.results(f, c);
      const bc::Dump dump = dump_function(h.L, f);
      Patch all;
      for (Pc pc : places(dump.top())) {
        const int id = alloc_portal_id(h.L);
        h.portals[id] = portal;
        const Point point = echo_point(dump.top(), pc, id);
        all.points.push_back(point);
        if (together) continue;
        make_clone(h.L, f, apply_patch(dump, {{point}}));
        INFO(name << " pc " << pc << " jit " << mode);
        CHECK(h.results(lua_gettop(h.L), c) == expected);
        lua_pop(h.L, 1);
      }
      if (!together) return;
      const Patched patched = apply_patch(dump, all);
      make_clone(h.L, f, patched);
      INFO(name << " jit " << mode << "\n" << bc::print(patched.dump.top()));
      CHECK(h.results(lua_gettop(h.L), c) == expected);
    });
    CHECK(h.calls > 1000);
  }
}

}  // namespace

TEST_CASE("portals that decline, one at a time", "[portal]") { check_everywhere(decline, false); }
TEST_CASE("portals that decline, everywhere at once", "[portal]") { check_everywhere(decline, true); }
TEST_CASE("portals that take over, one at a time", "[portal]") { check_everywhere(take_over, false); }
TEST_CASE("portals that take over now and then, everywhere at once", "[portal]") { check_everywhere(sometimes, true); }

TEST_CASE("large portal ids and frames without room go another way", "[portal]") {
  for (const char* mode : kJitModes) {
    PortalHarness h(mode);
    // 110 live locals: arguments fit beside the frame once, not twice with results.
    for (int locals : {5, 110, 180}) {
      std::string code = "return function(...) local a1 = ...\n";
      for (int i = 2; i <= locals; ++i) code += "local a" + std::to_string(i) + " = a1 + " + std::to_string(i) + "\n";
      code += "local s = 0; for i = 1, 3 do s = s * 3 + a1\n";
      for (int i = 2; i <= locals; ++i) code += "s = s + i * a" + std::to_string(i) + "\n";
      code += "end return s, ... end";
      h.run("return {'locals', (function() " + code + " end)(), 5, 6}");
      const int c = lua_gettop(h.L);
      lua_rawgeti(h.L, c, 2);
      const std::string expected = h.results(c + 1, c, 2);
      const bc::Dump dump = dump_function(h.L, c + 1);
      const std::vector<Pc> all = places(dump.top());
      for (int id : {7, 40000}) {
        while (alloc_portal_id(h.L) < id) {
        }
        h.portals[id] = take_over;
        for (size_t i = 0; i<all.size(); i += locals> 100 ? 97 : 3) {
          const Patched patched = apply_patch(dump, {{echo_point(dump.top(), all[i], id)}});
          make_clone(h.L, c + 1, patched);
          INFO("locals " << locals << " id " << id << " pc " << all[i] << " jit " << mode);
          CHECK(h.results(lua_gettop(h.L), c, 2) == expected);
          lua_pop(h.L, 1);
        }
      }
      lua_settop(h.L, 0);
    }
    CHECK(h.calls > 100);
  }
}

TEST_CASE("a portal sees the frame's varargs", "[portal]") {
  PortalHarness h;
  h.run("return function(a, ...) local b = a; return b, ... end");
  const bc::Dump dump = dump_function(h.L, 1);
  Point point = echo_point(dump.top(), 2, alloc_portal_id(h.L));
  point.varargs = true;
  point.exits.resize(1);
  point.exits[0].resume = {Resume::Kind::kReturn, 0, false, true, {0, 2}};
  h.portals[point.id] = take_over;
  turn = 0;
  make_clone(h.L, 1, apply_patch(dump, {{point}}));
  for (int i = 1; i <= 4; ++i) lua_pushinteger(h.L, i);
  lua_call(h.L, 4, LUA_MULTRET);
  std::string got;
  for (int i = 2; i <= lua_gettop(h.L); ++i) got += std::string(lua_tostring(h.L, i)) + " ";
  CHECK(got == "1 3 2 3 4 ");  // slot 0; second of (slots..., varargs): slot 0's copy is dead here, so 2, 3; then ...
}

TEST_CASE("patched bytecode", "[portal]") {
  PortalHarness h;
  std::string text;
  for (const char* code : {"function(a, b) local c = a * b; local d = c + 1; return d end",
                           "function(n, x) local s = x; for i = 1, n do s = s * x; print(s) end return s end"}) {
    h.run(std::string("return ") + code);
    const bc::Dump dump = dump_function(h.L, -1);
    text += std::string(code) + "\n";
    for (Pc pc : {Pc{1}, Pc{6}}) {
      if (!bc::insertable(dump.top(), pc)) continue;
      text += "echo at " + std::to_string(pc) + "\n" +
              bc::print(apply_patch(dump, {{echo_point(dump.top(), pc, 9)}}).dump.top());
    }
    text += "stub\n" + bc::print(make_stub(dump, 11).dump.top()) + "\n";
  }
  check_golden("portal/patched.txt", text);
}

TEST_CASE("points that break a rule are refused", "[portal]") {
  PortalHarness h;
  h.run("return function(n, t) local s = 0; for i = 1, n do s = s + i end if n < 3 then s = 1 end return s end");
  const bc::Dump dump = dump_function(h.L, 1);
  const bc::Proto& p = dump.top();
  auto refuse = [&](Point point, const std::string& why) {
    point.id = 5;
    CHECK_THROWS_WITH(apply_patch(dump, {{point}}), Catch::Contains(why));
  };
  Pc body = 0, after_compare = 0;
  for (Pc pc = 1; pc < p.size(); ++pc) {
    if (bc::op(p.code[pc]) == bc::Op::FORI) body = pc + 1;
    if (bc::has(p.code[pc], bc::kCompare)) after_compare = pc + 1;
  }
  REQUIRE(after_compare);
  refuse({after_compare, 0, {}, false, {}}, "no code may be inserted");
  refuse({1, 0, {1}, false, {}}, "slot 1 is dead");
  refuse({body, 0, {4}, false, {}}, "hidden");
  refuse({1, 0, {}, true, {}}, "no varargs");
  Exit into_loop;
  into_loop.resume.pc = body;
  refuse({1, 0, {}, false, {into_loop}}, "has no value");
  CHECK_THROWS_WITH(apply_patch(dump, {{{1, 5, {}, false, {}}, {1, 6, {}, false, {}}}}),
                    Catch::Contains("two portals"));
}
