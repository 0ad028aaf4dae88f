// Tests liveness and listings by golden texts, and that the verifier refuses broken prototypes.
#include "vm/bytecode/analysis.h"
#include "tests/bytecode/lua_state.h"

using namespace lutra;
using bc::op;
using bc::Op;
using bc::op_a;

namespace {

std::string listing(const bc::Slots& s) {
  std::string out;
  for (unsigned i = 0; i < s.size(); ++i) {
    if (s[i]) out += (out.empty() ? "" : ",") + std::to_string(i);
  }
  return "{" + out + "}";
}

// Each instruction with its live slots, then hidden and open ones where there are any, and "-" where code may not go.
std::string liveness_text(const bc::Proto& p) {
  const bc::Liveness live = bc::liveness(p);
  std::string out;
  for (bc::Pc pc = 1; pc < p.size(); ++pc) {
    std::string line = bc::print_instruction(p, pc);
    line.resize(std::max<size_t>(line.size() + 1, 48), ' ');
    line += (bc::insertable(p, pc) ? " " : "-") + listing(live.before[pc]);
    if (live.hidden[pc].any()) line += " hidden" + listing(live.hidden[pc]);
    if (live.open[pc].any()) line += " open" + listing(live.open[pc]);
    out += line + "\n";
  }
  return out;
}

const char* const kFunctions[] = {
    "function(a, b) if a then b = a + 1 end return b end",
    "function(n) local s = 0; for i = 1, n do s = s + i end return s end",
    "function(t) local s = 0; for k, v in pairs(t) do s = s + v end return s end",
    "function(t, f) for k, v in f(t) do t[k] = v end end",
    "function(n) local fs = {}; for i = 1, n do local k = i; fs[i] = function() k = k + 1; return k end end return fs "
    "end",
    "function(x) local f; local c = x; f = function() return c end; c = 2; return f(), c end",
    "function(...) local a, b = ...; return select('#', ...), {a, b, ...} end",
    "function(a, b) local c = a and b or 3; local d = not c; return d and a, 'x' .. a .. b end",
    "function(n) local function r(k) if k == 0 then return n end return r(k - 1) end return r(n) end",
    "function(i) while i > 0 do i = i - 1; if i == 5 then goto out end end ::out:: return i end",
};

}  // namespace

TEST_CASE("liveness", "[bytecode]") {
  LuaState state;
  std::string text;
  for (const char* function : kFunctions) {
    const bc::Dump dump = bc::parse(state.dump_text(function));
    text += std::string(function) + "\n" + liveness_text(dump.top()) + "\n";
  }
  check_golden("bytecode/liveness.txt", text);
}

TEST_CASE("the listing names constants, locals and upvalues", "[bytecode]") {
  LuaState state;
  const bc::Dump dump =
      bc::parse(state.dump_text("(function(up) return function(self, n, ...) local t = {1, 2, x = 'y'}; for i = 1, n "
                                "do t[i] = self.field + up end; "
                                "up = 2.5; G = {...}; return t, 'a\\0\"', 5LL, function() return t end end end)(1)"));
  check_golden("bytecode/print.txt", bc::print(dump.top()));
}

TEST_CASE("loops are found with their parts", "[bytecode]") {
  LuaState state;
  const bc::Dump dump =
      bc::parse(state.dump_text("function(t) for i = 1, 3 do for k in pairs(t) do t = k end end while t do t = t.x end "
                                "for a in t.iter, t do t = a end end"));
  const auto found = bc::loops(dump.top());
  REQUIRE(found.size() == 4);
  const bc::Proto& p = dump.top();
  CHECK(found[0].kind == bc::Loop::Kind::kFor);
  CHECK(op(p.code[found[0].end]) == Op::FORL);
  CHECK(found[1].kind == bc::Loop::Kind::kIterN);
  CHECK(op(p.code[found[1].head]) == Op::ISNEXT);
  CHECK(op(p.code[found[1].end]) == Op::ITERL);
  CHECK(found[2].kind == bc::Loop::Kind::kLoop);
  CHECK(op(p.code[found[2].end]) == Op::JMP);
  CHECK(found[3].kind == bc::Loop::Kind::kIterC);
  CHECK(op(p.code[found[3].head]) == Op::JMP);
}

TEST_CASE("the verifier refuses broken prototypes", "[bytecode]") {
  LuaState state;
  const bc::Dump dump = bc::parse(
      state.dump_text("function(a, ...) local t = {}; for i = 1, 3 do t[i] = a end; for k in pairs(t) do a = k end; "
                      "if a < 3 then a = 'x' end; t = {f(...)}; return function() return t end, a + 1.5, 3 ^ a end"));
  const bc::Proto good = dump.top();
  REQUIRE(bc::verify(good, &dump) == "");
  auto find = [&](Op o) {
    for (bc::Pc pc = 1; pc < good.size(); ++pc) {
      if (op(good.code[pc]) == o) return pc;
    }
    FAIL("no such instruction");
    return bc::Pc{0};
  };
  int cases = 0;
  auto broken = [&](auto change, const std::string& text) {
    bc::Proto p = good;
    change(p);
    INFO(text << "\n" << bc::print(p));
    CHECK_THAT(bc::verify(p, &dump), Catch::Contains(text));
    ++cases;
  };
  auto set = [&](Op o, bc::Ins with, const std::string& text) {
    broken([&](bc::Proto& p) { p.code[find(o)] = with; }, text);
  };
  broken([&](bc::Proto& p) { p.framesize = 3; }, "slot");
  broken([&](bc::Proto& p) { p.framesize = 255; }, "framesize");
  broken([&](bc::Proto& p) { p.code.resize(1); }, "no instructions");
  broken(
      [&](bc::Proto& p) {
        p.code.pop_back();
        p.lines.pop_back();
      },
      "");
  broken([&](bc::Proto& p) { p.lines.pop_back(); }, "line");
  broken([&](bc::Proto& p) { p.lines[3] = 5000; }, "line");
  broken([&](bc::Proto& p) { p.code[1] = 250; }, "opcode");
  broken([&](bc::Proto& p) { p.kgc.clear(); }, "constant");
  broken([&](bc::Proto& p) { p.knum.clear(); }, "number");
  broken([&](bc::Proto& p) { p.num_params = 0; }, "");
  broken([&](bc::Proto& p) { p.flags = 0; }, "varargs");
  set(Op::FORL, bc::ins_ad(Op::JFORL, 1, 1), "no dump holds");
  set(Op::FORL, bc::ins_jump(Op::FORL, op_a(good.code[find(Op::FORL)]), find(Op::FORL), 1), "FORI");
  set(Op::FORI, bc::ins_jump(Op::FORI, op_a(good.code[find(Op::FORI)]), find(Op::FORI), find(Op::FORL)), "FORL");
  set(Op::ISNEXT, bc::ins_jump(Op::ISNEXT, op_a(good.code[find(Op::ISNEXT)]), find(Op::ISNEXT), 1), "ITERN");
  set(Op::ITERL, bc::ins_ad(Op::KSHORT, 0, 0), "ITERL");
  set(Op::JMP, bc::ins_ad(Op::JMP, 250, 0xffff), "jumps out");
  set(Op::JMP, bc::ins_ad(Op::MOV, 0, 1), "no JMP follows");
  set(Op::TSETM, bc::ins_ad(Op::KSHORT, 0, 1), "nothing takes");
  set(Op::VARG, bc::ins_abc(Op::VARG, 3, 0, 0), "parameters");
  set(Op::CALLM, bc::ins_ad(Op::KSHORT, 0, 1), "");
  set(Op::FNEW, bc::ins_ad(Op::FNEW, 0, 0), "no prototype");
  set(Op::RET, bc::ins_ad(Op::RET, 0, 0), "result count");
  set(Op::KSTR, bc::ins_ad(Op::KSTR, 0, 99), "no string");
  set(Op::TNEW, bc::ins_ad(Op::MOV, 200, 0), "slot");
  broken([&](bc::Proto& p) { p.code[find(Op::KSTR)] = bc::ins_ad(Op::MOV, 0, 7); }, "");
  CHECK(cases == 26);
}
