// Tests that dumps are parsed and written again byte for byte, and that broken ones are refused.
#include "ops/core/error.h"
#include "tests/bytecode/lua_state.h"
#include "vm/bytecode/analysis.h"

using namespace lutra;

namespace {

// Calls f(dump) for every function of the corpus, for its chunk and for stripped copies.
template <class F>
void each_dump(F f) {
  LuaState state;
  lua_State* L = state.L;
  f(std::string("chunk"), [&] {
    const std::string text = read_text("tests/bytecode/corpus.lua");
    REQUIRE(luaL_loadbuffer(L, text.data(), text.size(), "@corpus.lua") == 0);
    std::string d = state.dump(-1);
    lua_pop(L, 1);
    return d;
  }());
  state.run_file("tests/bytecode/corpus.lua");
  const int cases = lua_gettop(L);
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, cases)); ++i) {
    lua_rawgeti(L, cases, i);
    lua_rawgeti(L, -1, 1);
    const std::string name = lua_tostring(L, -1);
    lua_rawgeti(L, -2, 2);
    f(name, state.dump(-1));
    lua_getglobal(L, "string");
    lua_getfield(L, -1, "dump");
    lua_pushvalue(L, -3);
    lua_pushboolean(L, 1);
    REQUIRE(lua_pcall(L, 2, 1, 0) == 0);
    size_t n = 0;
    const char* s = lua_tolstring(L, -1, &n);
    f(name + " stripped", std::string(s, n));
    lua_settop(L, cases);
  }
}

}  // namespace

TEST_CASE("dumps come back byte for byte", "[bytecode]") {
  int count = 0;
  each_dump([&](const std::string& name, const std::string& bytes) {
    INFO(name);
    const bc::Dump dump = bc::parse(bytes);
    CHECK(bc::emit(dump) == bytes);
    CHECK(bc::parse(bc::emit(dump)) == dump);
    ++count;
  });
  CHECK(count > 40);
}

TEST_CASE("what LuaJIT's parser makes passes the verifier", "[bytecode]") {
  each_dump([&](const std::string& name, const std::string& bytes) {
    const bc::Dump dump = bc::parse(bytes);
    for (const bc::Proto& p : dump.protos) {
      INFO(name << "\n" << bc::print(p));
      CHECK(bc::verify(p, &dump) == "");
    }
  });
}

TEST_CASE("the corpus uses every opcode a dump can hold", "[bytecode]") {
  std::vector<bool> seen(static_cast<size_t>(bc::Op::kCount));
  each_dump([&](const std::string&, const std::string& bytes) {
    for (const bc::Proto& p : bc::parse(bytes).protos) {
      for (bc::Pc pc = 1; pc < p.size(); ++pc) seen[p.code[pc] & 0xff] = true;
    }
  });
  std::string missing;
  for (size_t o = 0; o < seen.size(); ++o) {
    if (!seen[o] && !(bc::kOps[o].traits & bc::kNever)) missing += std::string(bc::kOps[o].name) + " ";
  }
  CHECK(missing == "");
}

TEST_CASE("damaged dumps are refused or still well formed", "[bytecode]") {
  LuaState state;
  const std::string good = state.dump_text("function(a, b) local t = {1, x = 2.5}; return a + b, t, 'text', 5e300 end");
  for (size_t n = 0; n < good.size(); ++n) CHECK_THROWS_AS(bc::parse(good.substr(0, n)), Error);
  int refused = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (int flip : {1, 0x80, 0xff}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      try {
        const bc::Dump dump = bc::parse(bad);
        for (const bc::Proto& p : dump.protos) {
          if (!bc::verify(p, &dump).empty()) ++refused;
        }
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  CHECK(refused > 50);
}

TEST_CASE("names of locals and upvalues", "[bytecode]") {
  LuaState state;
  const bc::Dump dump = bc::parse(
      state.dump_text("(function(up) return function(first) local second = first + up; return second end end)(1)"));
  const bc::Proto& p = dump.top();
  CHECK(bc::local_name(p, 1, 0) == "first");
  CHECK(bc::local_name(p, 1, 1) == "");
  CHECK(bc::local_name(p, p.size() - 1, 1) == "second");
  CHECK(bc::upvalue_name(p, 0) == "up");
  CHECK(bc::upvalue_name(p, 1) == "");
}
