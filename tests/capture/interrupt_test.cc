// Tests that an interrupt stops a compilation at any stage and leaves nothing behind: the next call compiles again.
#include "ops/core/interrupt.h"
#include "tests/host/lutra_state.h"
#include "vm/host/modes.h"

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

constexpr int64_t kNever = int64_t(1) << 60;

// Runs the program, which is to stop when this thread has looked `looks` times whether it is; says whether it did.
bool is_stopped(lua_State* L, int64_t looks, const char* program) {
  looks_to_pass = looks;
  stop_reason = "pressed";
  const bool failed = luaL_dostring(L, program);
  const bool was = stop_reason;
  stop_reason = nullptr;
  if (failed) {
    INFO(lua_tostring(L, -1));
    CHECK(std::string(lua_tostring(L, -1)).find("pressed") != std::string::npos);
    CHECK_FALSE(was);
  }
  lua_settop(L, 0);
  return failed;
}

}  // namespace

TEST_CASE("a compile that is interrupted leaves nothing behind", "[capture][interrupt]") {
  LutraState s(kProgram);
  s.run("y, g = eager() f = fresh() f(lt.ones(4, 4)) f = fresh()");
  REQUIRE_FALSE(is_stopped(s.L, kNever, "f(lt.ones(4, 4))"));
  const int64_t all = kNever - looks_to_pass;
  CHECK(all > 100);
  constexpr int kRounds = 40;
  for (int i = 0; i < kRounds; i++) {
    INFO("round " << i << " of " << kRounds << ", " << all << " looks");
    s.run("f = fresh()");
    CHECK(is_stopped(s.L, all * i / kRounds, "f(lt.ones(4, 4))"));
    s.run("lt.reset() f = fresh()");
    CHECK(is_stopped(s.L, all * i / kRounds, "f(lt.ones(4, 4))"));
    CHECK(s.number("local w = f(lt.ones(4, 4)) return w:item() == y and 1 or 0") == 1);
    CHECK(s.number("return lt.is_grad_enabled() and 1 or 0") == 1);
  }
}

// How often they look says how long one can be kept waiting: some million elements lie between two looks.
TEST_CASE("ops of many elements look within", "[capture][interrupt]") {
  struct Row {
    const char *program, *again;
    int64_t least;
  };
  static const Row rows[] = {
      {"lt.randperm(2e6)", "lt.randperm(5)", 40},
      {"x:sort()", "assert(lt.tensor({2, 1}):sort()[0]:item() == 1)", 100},
      {"x:view(2, -1):sort(1)", "assert(lt.tensor({2, 1}):sort()[0]:item() == 1)", 100},
      {"return x[i]", "assert(x[i[{{0, 3}}]]:numel() == 3)", 3},
      {"return x:gather(0, i)", "x:gather(0, i[{{0, 3}}])", 3},
      {"x:topk(5)", "assert(lt.tensor({1, 2}):topk(1)[0]:item() == 2)", 100},
      {"x:topk(1000000)", "assert(lt.tensor({1, 2}):topk(1)[0]:item() == 2)", 150},
      {"x:view(2, -1):topk(5)", "assert(lt.tensor({1, 2}):topk(1)[0]:item() == 2)", 50},
      {"x:cumsum(0)", "assert(lt.ones(3):cumsum(0)[2]:item() == 3)", 100},
      {"x:logcumsumexp(0)", "lt.ones(3):logcumsumexp(0)", 100},
      {"x:cummax(0)", "lt.ones(3):cummax(0)", 100},
      {"x:histc(10)", "lt.ones(3):histc(10)", 200},
      {"x:isin(x)", "assert(lt.ones(1):isin(lt.ones(1)):item())", 1000},
      {"b:bincount()", "assert(lt.tensor({1, 1}, {dtype = 'int64'}):bincount()[1]:item() == 2)", 300},
      {"x:scatter_add(0, i[{{0, 1e7}}], x)", "assert(x:scatter(0, i[{{0, 3}}], 1):numel() == 1e7)", 200},
      {"x:index_add(0, i[{{0, 1e7}}], x)", "x:index_add(0, i[{{0, 3}}], x[{{0, 3}}])", 200},
      {"b:unique_consecutive()", "assert(lt.ones(3):unique_consecutive():numel() == 1)", 300},
      {"x:repeat_interleave(b)", "assert(lt.ones(2):repeat_interleave(2):numel() == 4)", 300},
      {"lt.conv1d(x:view(1, 4, -1), lt.ones(4, 4, 9))", "lt.conv1d(lt.ones(1, 4, 20), lt.ones(4, 4, 9))", 20},
      {"x:view(1, -1):softmax(1)", "assert(lt.ones(1, 1):softmax(1):item() == 1)", 100},
      {"x:view(1, -1):argmax(1)", "assert(lt.tensor({1, 2}):argmax(0):item() == 1)", 20},
      {"f(x:view(1, -1))", "x:uniform_() f(x:view(1, -1)) assert(math.abs(x:sum():item() - 1) < 1e-4)", 100},
      {"x:lgamma_()", "x:uniform_() x:sin_()", 6},
      {"lt.save('lutra-interrupt-test.npy', x)", "assert(not io.open 'lutra-interrupt-test.npy')", 5},
  };
  LutraState s(
      "lt = require 'lutra' x = lt.rand(1e7) i = lt.arange(2e7) % 1e7 b = lt.arange(1e7) % 3 "
      "f = lt.compile(function(x) x:copy_(x:softmax(1)) end)");
  for (const Row& row : rows) {
    INFO(row.program);
    // Another thread's looks would not be counted.
    const std::string program = std::string("lt.limits({threads = 1})(function() ") + row.program + " end)";
    s.run(program.c_str());  // what it compiles is no part of what is counted
    CHECK_FALSE(is_stopped(s.L, kNever, program.c_str()));
    const int64_t looks = kNever - looks_to_pass;
    CHECK(looks >= row.least);
    s.run("os.remove 'lutra-interrupt-test.npy'");
    CHECK(is_stopped(s.L, looks / 2, program.c_str()));
    s.run(row.again);
  }
}

TEST_CASE("memory that grows is left half cleared", "[capture][interrupt]") {
  LutraState s("lt = require 'lutra' x = lt.ones(2) z = lt.ones(2e7)");
  modes_of(s.L)->account->cleared = true;
  for (const char* program : {"x:resize_(2e7)", "x:set_(x, 0, {2e7}, {1})", "z:resize_(2e7 + 1)"}) {
    CHECK_FALSE(is_stopped(s.L, kNever, program));
    const int64_t looks = kNever - looks_to_pass;
    CHECK(looks >= 15);
    s.run("x, z = lt.ones(2), lt.ones(2e7)");
    CHECK(is_stopped(s.L, looks / 2, program));
    CHECK(s.number("return x:numel() == 2 and z:numel() == 2e7 and x:sum():item()") == 2);
    s.run(program);
    CHECK(s.number("return x:sum():item()") == 2);
    s.run("x, z = lt.ones(2), lt.ones(2e7)");
  }
}

// A press on Control-C, which any thread may see first, stops it too.
TEST_CASE("a press before a compile stops it", "[capture][interrupt]") {
  LutraState s(kProgram);
  s.run("y = eager() f = fresh()");
  interrupt_wanted = true;
  CHECK(luaL_dostring(s.L, "f(lt.ones(4, 4))"));
  CHECK(std::string(lua_tostring(s.L, -1)).find("interrupted!") != std::string::npos);
  CHECK_FALSE(interrupt_wanted);
  lua_settop(s.L, 0);
  CHECK(s.number("return f(lt.ones(4, 4)):item() == y and 1 or 0") == 1);
}

}  // namespace lutra
