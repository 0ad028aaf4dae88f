// Tests leaving a function at pc k by a tail call of a resume closure with its live slots. The results are those of the
// original.
#include "ops/core/error.h"
#include "tests/portal/harness.h"

using namespace lutra;
using bc::op;
using bc::Op;
using bc::Pc;

namespace {

// Slots of the frame that called the running portal, whose call's slot is `call_base`. A stitched trace has put a
// continuation frame between them.
mirror::TValue* caller_slots(lua_State* L, unsigned call_base) {
  mirror::TValue* base = mirror::base(L);
  const uint64_t link = base[-1].u64;
  return (link & 3) == 0 ? base - (call_base + 2) : base - (link >> 3);
}

// Pushes slot s of the frame. The control slot of a pairs loop holds a raw index: its key is the loop's first variable.
void push_slot(lua_State* L, const bc::Proto& p, Pc pc, mirror::TValue* slots, unsigned s) {
  for (const bc::Loop& l : bc::loops(p)) {
    if (l.kind == bc::Loop::Kind::kIterN && pc >= l.first_body && pc <= l.end && s == l.base - 1) s = l.base;
  }
  const mirror::TValue v = slots[s];
  lua_pushnil(L);
  mirror::top(L)[-1] = v;
}

struct Trial {
  bc::Dump dump;
  ResumeSpec spec;
  ResumeProto resume;
  int closure = 0;  // registry reference of the resume closure
  int takes = 0;    // how many calls of the portal still decline before one takes over
  bool by_call = false;
};

// A portal at t.spec.pc that leaves the frame for the resume closure.
Point leaving_point(const Trial& t, int id) {
  const bc::Proto& p = t.dump.top();
  Exit exit;
  exit.resume.kind = Resume::Kind::kTailCall;
  exit.resume.varargs = p.vararg();
  exit.resume.args.push_back(0);
  int n = static_cast<int>(t.resume.live.size());
  if (t.spec.mode == ResumeMode::kAfterCall) n += 1 + t.spec.num_args;
  for (int i = 1; i <= n; ++i) exit.resume.args.push_back(i);
  return {t.spec.pc, id, {}, false, {exit}};
}

int leave(lua_State* L, Trial& t) {
  if (t.takes-- != 0) return 0;
  const bc::Proto& p = t.dump.top();
  mirror::TValue* slots = caller_slots(L, p.framesize);
  lua_settop(L, 0);
  luaL_checkstack(L, 250, "test");
  slots = caller_slots(L, p.framesize);
  lua_pushinteger(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, t.closure);
  for (unsigned s : t.resume.live) push_slot(L, p, t.spec.pc, slots, s);
  if (t.spec.mode == ResumeMode::kAfterCall) {
    const unsigned a = bc::op_a(p.code[t.spec.pc]);
    push_slot(L, p, t.spec.pc, slots, a);
    for (int i = 0; i < t.spec.num_args; ++i) push_slot(L, p, t.spec.pc, slots, a + 2 + i);
  }
  return lua_gettop(L);
}

// Tries every pc and several visits of it.
void resume_everywhere(ResumeMode mode) {
  int tried = 0, left = 0;
  for (const char* jit : kJitModes) {
    PortalHarness h(jit);
    lua_State* L = h.L;
    REQUIRE(mirror::available(L));
    h.each_case([&](const std::string& name, int f, int c) {
      const std::string expected = h.results(f, c, 3);
      const bc::Dump dump = dump_function(L, f);
      const bc::Proto& p = dump.top();
      for (Pc pc = 1; pc < p.size(); ++pc) {
        const Op o = op(p.code[pc]);
        if (!bc::insertable(p, pc) || (mode == ResumeMode::kAfterCall && o != Op::CALL && o != Op::CALLT)) continue;
        if (!why_not_resumable(p, pc, mode).empty()) continue;
        Trial t{dump, {pc, mode, 0}, {}};
        if (mode == ResumeMode::kAfterCall) {
          t.spec.num_args = static_cast<int>(o == Op::CALL ? bc::op_c(p.code[pc]) : bc::op_d(p.code[pc])) - 1;
        }
        t.resume = build_resume(dump, t.spec);
        CHECK(t.resume.live == resume_slots(p, pc, mode));
        make_clone(L, f, t.resume.patched);
        t.closure = luaL_ref(L, LUA_REGISTRYINDEX);
        const int id = alloc_portal_id(L);
        h.portals[id] = [&](lua_State* L) {
          const int n = leave(L, t);
          left += n > 0;
          return n;
        };
        make_clone(L, f, apply_patch(dump, {{leaving_point(t, id)}}));
        for (int visit : {0, 1, 4}) {
          t.takes = visit;
          INFO(name << " pc " << pc << " visit " << visit << " jit " << jit << "\n"
                    << bc::print(p) << bc::print(t.resume.patched.dump.top()));
          CHECK(h.results(lua_gettop(L), c, 3) == expected);
          ++tried;
        }
        lua_pop(L, 1);
        luaL_unref(L, LUA_REGISTRYINDEX, t.closure);
        h.portals.erase(id);
      }
    });
  }
  CHECK(tried > (mode == ResumeMode::kAt ? 1000 : 100));
  CHECK(left * 3 > tried);
}

}  // namespace

TEST_CASE("resume at every pc", "[portal][resume]") { resume_everywhere(ResumeMode::kAt); }
TEST_CASE("resume after every call", "[portal][resume]") { resume_everywhere(ResumeMode::kAfterCall); }
TEST_CASE("the frame calls in place of its own call", "[portal][resume]") {
  for (const char* jit : kJitModes) {
    PortalHarness h(jit);
    lua_State* L = h.L;
    h.each_case([&](const std::string& name, int f, int c) {
      const std::string expected = h.results(f, c, 3);
      const bc::Dump dump = dump_function(L, f);
      const bc::Proto& p = dump.top();
      const bc::Liveness live = bc::liveness(p);
      for (Pc pc = 1; pc < p.size(); ++pc) {
        const bc::Ins i = p.code[pc];
        if (!bc::insertable(p, pc) || !live.reached[pc] || (op(i) != Op::CALL && op(i) != Op::CALLT)) continue;
        const int nargs = static_cast<int>(op(i) == Op::CALL ? bc::op_c(i) : bc::op_d(i)) - 1;
        Point point{pc, alloc_portal_id(L), {bc::op_a(i)}, false, {Exit()}};
        Resume& r = point.exits[0].resume;
        r.kind = Resume::Kind::kCall;
        r.pc = pc;
        r.args = {0};
        for (int k = 0; k < nargs; ++k) {
          point.args.push_back(bc::op_a(i) + 2 + k);
          r.args.push_back(k + 1);
        }
        h.portals[point.id] = [](lua_State* L) {
          lua_pushinteger(L, 1);
          lua_insert(L, 1);
          return lua_gettop(L);
        };
        const Patched patched = apply_patch(dump, {{point}});
        make_clone(L, f, patched);
        INFO(name << " pc " << pc << " jit " << jit << "\n" << bc::print(patched.dump.top()));
        CHECK(h.results(lua_gettop(L), c, 3) == expected);
        lua_pop(L, 1);
      }
    });
    CHECK(h.calls > 100);
  }
}

TEST_CASE("after a metamethod or an iterator was inlined", "[portal][resume]") {
  // {function, Lua text of what the instruction does}: the first such instruction is done by a call instead.
  struct Case {
    const char *code, *doing, *args;
    Op op;
  };
  const Case cases[] = {
      {"function(a, b) local c = a + b; return c, a end", "function(a, b) return a + b end", "3, 4", Op::ADDVV},
      {"function(a, b) if a < b then return 'lt' end return 'ge' end", "function(a, b) return a < b end", "3, 4",
       Op::ISGE},
      {"function(a, b) if a < b then return 'lt' end return 'ge' end", "function(a, b) return a < b end", "4, 3",
       Op::ISGE},
      {"function(a, b) if not (a <= b) then return 'gt' end return 'le' end", "function(a, b) return a <= b end",
       "4, 3", Op::ISLE},
      {"function(a, b) if a == b then return 'eq' end return 'ne' end", "function(a, b) return a == b end", "3, 3",
       Op::ISNEV},
      {"function(a, b) if a ~= b then return 'ne' end return 'eq' end", "function(a, b) return a == b end", "3, 5",
       Op::ISEQV},
      {"function(a, b) local c = a[b]; return c end", "function(a, b) return a[b] end", "{7, 8}, 2", Op::TGETV},
      {"function(a, b) a[b] = b; return a[b] end", "function(a, b) a[b] = b end", "{7, 8}, 2", Op::TSETV},
      {"function(a) local c = -a; return c end", "function(a) return -a end", "4", Op::UNM},
  };
  for (const Case& k : cases) {
    for (bool resume : {false, true}) {
      PortalHarness h;
      lua_State* L = h.L;
      h.run(std::string("return ") + k.code + ", " + k.doing);
      const bc::Dump dump = dump_function(L, 1);
      const bc::Proto& p = dump.top();
      Pc pc = 1;
      while (pc < p.size() && op(p.code[pc]) != k.op) ++pc;
      INFO(k.code << "\n" << bc::print(p));
      REQUIRE(pc < p.size());
      const int nargs = p.num_params;
      Point point{pc, alloc_portal_id(L), {}, false, {Exit()}};
      Trial t{dump, {pc, ResumeMode::kAfterCall, nargs}, {}};
      Resume& r = point.exits[0].resume;
      if (resume) {
        t.resume = build_resume(dump, t.spec);
        make_clone(L, 1, t.resume.patched);
        r.kind = Resume::Kind::kTailCall;
        for (size_t i = 0; i < 2 + t.resume.live.size() + nargs; ++i) r.args.push_back(static_cast<int>(i));
      } else {
        r.kind = Resume::Kind::kCall;
        r.pc = pc;
        for (int i = 0; i <= nargs; ++i) r.args.push_back(i);
      }
      if (resume) lua_setfield(L, LUA_REGISTRYINDEX, "resume");
      lua_settop(L, 2);
      lua_setfield(L, LUA_REGISTRYINDEX, "doing");
      h.portals[point.id] = [&](lua_State* L) {
        mirror::TValue* slots = caller_slots(L, p.framesize);
        lua_pushinteger(L, 1);
        if (resume) {
          lua_getfield(L, LUA_REGISTRYINDEX, "resume");
          for (unsigned s : t.resume.live) push_slot(L, p, pc, slots, s);
        }
        lua_getfield(L, LUA_REGISTRYINDEX, "doing");
        for (int i = 0; i < nargs; ++i) push_slot(L, p, pc, slots, i);
        return lua_gettop(L);
      };
      lua_settop(L, 1);
      make_clone(L, 1, apply_patch(dump, {{point}}));
      lua_setglobal(L, "patched");
      lua_setglobal(L, "f");
      h.run(std::string("assert(show(f, ") + k.args + ") == show(patched, " + k.args + "))");
      CHECK(h.calls == 1);
    }
  }
}

TEST_CASE("frames that share a local with a closure are not resumed", "[portal][resume]") {
  PortalHarness h;
  h.run(
      "return function(a) local n, m = a, a; local f = function() n = n + 1; return n + m end; f(); return n + m end,\n"
      "function(a) local m = a; local f = function() return m end; return f() + m end");
  const bc::Dump shared = dump_function(h.L, 1), copied = dump_function(h.L, 2);
  CHECK(why_not_resumable(shared.top(), 6, ResumeMode::kAt) == "local 'n' is shared with a closure");
  CHECK_THROWS_AS(build_resume(shared, {6, ResumeMode::kAt, 0}), Error);
  CHECK(why_not_resumable(shared.top(), 2, ResumeMode::kAt) == "");
  CHECK(why_not_resumable(copied.top(), 4, ResumeMode::kAt) == "");
}

TEST_CASE("resume prototypes", "[portal][resume]") {
  PortalHarness h;
  std::string text;
  for (const char* code : {"function(n, x) local s = x; for i = 1, n do s = s * x; print(s) end return s end",
                           "function(t) local s = 0; for k, v in pairs(t) do s = s + v end return s end",
                           "function(a, ...) local b = f(a, ...); return b + select('#', ...) end"}) {
    h.run(std::string("return ") + code);
    const bc::Dump dump = dump_function(h.L, -1);
    for (Pc pc = 4; pc <= 7; ++pc) {
      if (!why_not_resumable(dump.top(), pc, ResumeMode::kAt).empty()) continue;
      text += std::string(code) + "\nat " + std::to_string(pc) + "\n";
      text += bc::print(build_resume(dump, {pc, ResumeMode::kAt, 0}).patched.dump.top()) + "\n";
      break;
    }
  }
  check_golden("portal/resume.txt", text);
}
