// Tests that lists of hooks do not keep removed hooks.
#include <catch2/catch.hpp>

#include "ops/grad/tape.h"
#include "tests/host/lutra_state.h"
#include "vm/bind/tensor_userdata.h"

using namespace lutra;

namespace {

// How many hooks there are of a tensor and of the node that made it, after `t` got many that were removed.
size_t left(const char* tensor, const char* then = "") {
  LutraState state;
  state.run(std::string("local lt = require 'lutra' x = lt.ones({2}, {requires_grad = true}) t = ") + tensor + R"(
    for _ = 1, 100 do t:register_hook(function() end).remove() end
    for _ = 1, 50 do
      local one, two = t:register_hook(function() end), t:register_hook(function() end)
      two.remove()
      one.remove()
    end )" + then);
  lua_getglobal(state.L, "t");
  const AutogradMeta& meta = autograd_meta(*to_tensor(state.L, -1));
  return meta.hooks.size() + (meta.grad_fn ? meta.grad_fn->hooks.size() : 0);
}

}  // namespace

TEST_CASE("removed hooks leave their lists", "[bind]") {
  CHECK(left("x") <= 2);
  CHECK(left("x * 2") <= 4);
  CHECK(left("x", "for _ = 1, 3 do t:register_hook(function() end) end") == 3);
  CHECK(left("x * 2", "for _ = 1, 3 do t:register_hook(function() end) end t:retain_grad()") <= 8);
}

TEST_CASE("hooks that stay run in order when others are removed", "[bind]") {
  LutraState state;
  for (const char* tensor : {"x", "x * 2"}) {
    state.run(std::string("local lt = require 'lutra' local x = lt.ones({2}, {requires_grad = true}) local t = ") +
              tensor + R"(
      calls = {}
      local function note(name) return function() calls[#calls + 1] = name end end
      local a, b, c = t:register_hook(note 'a'), t:register_hook(note 'b'), t:register_hook(note 'c')
      b.remove()
      t:register_hook(note 'd')
      t:register_hook(function() calls[#calls + 1] = 'e' a.remove() t:register_hook(note 'f') end)
      t:sum():backward {retain_graph = true}
      t:sum():backward()
      local all = table.concat(calls)
      assert(all == 'acdecdef', all))");
  }
}
