-- Tests lt.set_stance: what compiled functions do with and without code for a call.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, fails = h.test, h.equal, h.truthy, h.raises

local function compiled()
  lt.reset() -- closures of one function share code
  return lt.compile(function(x) return x * 2 end)
end

-- Returns the number of calls of f that ran compiled code.
local function hits(f)
  local n = 0
  for count in tostring(lt.guards(f)):gmatch("(%d+) hits?") do n = n + tonumber(count) end
  return n
end

-- Calls f, under a stance if there is one, with a tensor of n elements: whether compiled code ran.
local function is_compiled(f, n, stance)
  local before, y = hits(f), nil
  local function call() y = f(lt.ones(n)) end
  if stance then lt.set_stance(stance, call) else call() end
  equal(y:sum():item(), 2 * n)
  return hits(f) > before
end

test("force_eager runs the original code, before the first capture and after", function()
  local f = compiled()
  equal(is_compiled(f, 2, "force_eager"), false)
  equal(#lt.guards(f), 0)
  equal(is_compiled(f, 2), true)
  equal(is_compiled(f, 2, "force_eager"), false)
  equal(is_compiled(f, 2), true)
  equal(#lt.guards(f), 1)
end)

test("eager_on_recompile runs what is there", function()
  local f = compiled()
  equal(is_compiled(f, 2, "eager_on_recompile"), false)
  equal(is_compiled(f, 2), true)
  equal(is_compiled(f, 2, "eager_on_recompile"), true)
  equal(is_compiled(f, 4, "eager_on_recompile"), false)
  equal(#lt.guards(f), 1)
  equal(is_compiled(f, 4), true)
end)

test("fail_on_recompile names the guard", function()
  local f = compiled()
  lt.set_stance("fail_on_recompile")
  fails("set_stance: 'fail_on_recompile': stance.lua:8 has no code for this call", f, lt.ones(2))
  lt.set_stance("default")
  f(lt.ones(2))
  lt.set_stance("fail_on_recompile", function()
    equal(is_compiled(f, 2), true)
    fails("has no code for this call: x was float32{2} strides {1}, is f32[4]", f, lt.ones(4))
    equal(is_compiled(f, 2), true)
  end)
  f(lt.ones(4))
  equal(is_compiled(f, 5, "fail_on_recompile"), true)
end)

test("what follows a break, and what is patched", function()
  local function g(x)
    local y = x * 1
    lt.graph_break()
    return y * 2
  end
  local f = lt.compile(g)
  equal(is_compiled(f, 2), true)
  equal(is_compiled(f, 2, "force_eager"), false)
  equal(is_compiled(f, 2, "fail_on_recompile"), true)
  lt.patch(g)
  equal(is_compiled(g, 2), true)
  equal(is_compiled(g, 2, "force_eager"), false)
  lt.unpatch(g)
end)

test("the stance is the old one again after f, also after an error", function()
  local f = compiled()
  equal(select("#", lt.set_stance("force_eager", function() return nil, 2, nil end)), 3)
  fails("oh", lt.set_stance, "force_eager", function() error("oh") end)
  lt.set_stance("force_eager", function() lt.set_stance("fail_on_recompile", function() end) end)
  equal(is_compiled(f, 2), true)
  equal(lt.set_stance("force_eager"), nil)
  equal(is_compiled(f, 2), false)
  lt.set_stance("default")
  equal(is_compiled(f, 2), true)
end)

test("what lt.auto would compile fails no call", function()
  local function f(x) return x * 2 end
  local function calls() for _ = 1, 50 do equal(f(lt.ones(2))[0]:item(), 2) end end
  lt.reset()
  lt.config.profit = "always" -- 50 calls pay for no capture
  lt.auto {threshold = 2}
  lt.set_stance("fail_on_recompile", calls)
  equal(lt.counters().frames.total, 0, "captures")
  calls()
  truthy(lt.counters().frames.total > 0, "without the stance it is captured")
  lt.auto(false)
  lt.config.profit = nil
end)

test("wrong arguments", function()
  fails("set_stance: unknown stance 'eager' (known: default, force_eager, eager_on_recompile, fail_on_recompile)",
    lt.set_stance, "eager")
  fails("set_stance: argument 'stance' must be a name, got number 1", lt.set_stance, 1)
  fails("set_stance: argument 'f' must be a function", lt.set_stance, "default", 3)
  truthy(lt.set_stance("default", lt.nn.Linear(2, 2), lt.ones(1, 2)))
end)

h.finish()
