-- Tests long loops of functions that lt.auto compiles: their bodies are compiled once, not once for each round. It
-- tests every kind of loop, in the function itself and in its callees.
local lt = require "lutra"
local h = require "harness"
local test, truthy = h.test, h.truthy

local kRounds = 300
local numbers, named = {}, {}
for i = 1, kRounds do numbers[i], named["k" .. i] = i, i end

local function step(x, i) return (x * 1.01 + i):sin():tanh():exp() end

local loops = {}
function loops.counted(x, n)
  for i = 1, n do x = step(x, i) end
  return x
end
loops["while"] = function(x, n)
  local i = 0
  while i < n do
    i = i + 1
    x = step(x, i)
  end
  return x
end
loops["repeat"] = function(x, n)
  local i = 0
  repeat
    i = i + 1
    x = step(x, i)
  until i >= n
  return x
end
function loops.iterated(x, n)
  for _, i in ipairs(numbers) do
    if i > n then break end
    x = step(x, i)
  end
  return x
end
function loops.pairs(x)
  for _, i in pairs(named) do x = step(x, i) end
  return x
end
loops["while in while"] = function(x, n)
  local i = 0
  while i < n do
    local k = 0
    while k < 3 do
      k, i = k + 1, i + 1
      x = step(x, k)
    end
    x = x - i
  end
  return x
end
loops["while at the end of a while"] = function(x, n)
  local i = 0
  while i < n do
    i = i + 1
    local k = 0
    while k < 4 do
      k = k + 1
      x = step(x, k)
    end
  end
  return x
end
loops["while that breaks at the end of a while"] = function(x, n)
  local i = 0
  while i < n do
    i = i + 1
    local k = 0
    while true do
      k = k + 1
      x = step(x, k)
      if k >= 4 then break end
    end
  end
  return x
end
loops["goto"] = function(x, n)
  local i = 0
  ::again::
  i = i + 1
  x = step(x, i)
  if i < n then goto again end
  return x
end

for name, loop in pairs(loops) do
  test("a loop by " .. name, function()
    local function f(x)
      local y = loop(x * 2, kRounds)
      return y + 1
    end
    local x = lt.ones(3)
    local want = f(x)
    lt.reset()
    lt.config.profit = "always" -- it is too short to pay for its captures
    lt.auto(true)
    for _ = 1, 40 do
      local y = f(x)
      truthy(y:equal(want))
    end
    lt.wait_compiled()
    for _ = 1, 3 do truthy(f(x):equal(want)) end
    lt.auto(false)
    lt.config.profit = nil
    local ops = lt.counters().stats.calls_captured
    truthy(ops >= 4, ops .. " ops") -- a step's
    truthy(lt.counters().cache.hits > kRounds, lt.counters().cache.hits .. " hits")
    if name ~= "goto" then truthy(ops < 200, ops .. " ops") end
  end)
end

h.finish()
