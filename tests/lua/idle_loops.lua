-- Tests loops of compiled functions whose rounds run no ops: LuaJIT compiles them, because portals stand where ops are,
-- not in each round. If rounds get ops later, portals come back.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local x = lt.ones(3)
local function hits() return lt.counters().cache.hits end
local function same(got, want, what) equal(h.text(got), h.text(want), what) end

local loops = {
  ["pop by nil"] = function(y, n)
    local q, s = {}, 0
    for i = 1, n do q[i] = i end
    while #q > 0 do s = s + q[#q] q[#q] = nil end
    return y * s
  end,
  ["pop by remove"] = function(y, n)
    local q, s = {}, 0
    for i = 1, n do q[i] = i end
    while #q > 0 do s = s + table.remove(q) end
    return (y * s):exp() + 1
  end,
  ["a queue that halves"] = function(y, n)
    local q, s = {n}, 0
    while #q > 0 do
      local first = table.remove(q)
      s = s + first
      if first > 1 then q[#q + 1] = math.floor(first / 2) end
    end
    return y * s
  end,
  ["a walk over a tree"] = function(y, n)
    local q, s = {n}, 0
    while #q > 0 do
      local first = table.remove(q)
      s = s + first
      if first > 1 then
        q[#q + 1] = math.floor(first / 2)
        q[#q + 1] = first - math.floor(first / 2)
      end
    end
    return (y * s):exp() + 1
  end,
  ["a loop in a loop"] = function(y, n)
    local s = 0
    for k = 1, 2 do
      local q = {}
      for i = 1, n do q[i] = i * k end
      while #q > 0 do s = s + q[#q] q[#q] = nil end
    end
    return y * s
  end,
  ["repeat"] = function(y, n)
    local q, s = {}, 0
    for i = 1, n do q[i] = i end
    repeat s = s + q[#q] q[#q] = nil until #q == 0
    return y * s
  end,
  ["an op in few rounds"] = function(y, n)
    local q = {}
    for i = 1, n do q[i] = i end
    while #q > 0 do
      local last = q[#q]
      q[#q] = nil
      if last % 100 == 0 then y = y * 0.5 + last end
    end
    return y
  end
}

for name, f in pairs(loops) do
  test(name, function()
    lt.reset()
    local g = lt.compile(f)
    for i = 1, 4000 do
      local n = i * 17 % 40 + 1
      same(g(x, n), f(x, n), "call " .. i)
    end
    for _, n in ipairs {200, 201} do
      same(g(x, n), f(x, n), "n " .. n)
      local before = hits()
      for _ = 1, 50 do g(x, n) end
      truthy(hits() - before <= 50 * 8, ("%d rounds: %d hits of 50 calls"):format(n, hits() - before))
    end
  end)
end

test("under lt.auto", function()
  lt.config.profit = "always" -- they are too short to pay for their captures
  for name, f in pairs(loops) do
    lt.reset()
    lt.auto(true)
    for i = 1, 3000 do f(x, i * 17 % 40 + 1) end
    local before, took = hits(), math.huge
    for _ = 1, 4 do -- such loops are tried once more now and then, for more than 50 calls
      for i = 1, 1000 do f(x, i * 17 % 40 + 1) end
      local start = hits()
      for _ = 1, 50 do f(x, 200) end
      took = math.min(took, hits() - start)
    end
    lt.auto(false)
    if name ~= "an op in few rounds" then -- that one runs no op at all before
      truthy(lt.counters().stats.calls_captured > 0, name .. ": nothing was captured")
      truthy(before > 100, ("%s: %d hits of the calls before"):format(name, before))
    end
    truthy(took <= 50 * 8, ("%s: %d hits of 50 calls"):format(name, took))
  end
  lt.config.profit = nil
end)

test("rounds that get ops later are compiled", function()
  local function f(y, n, list)
    local q, s = {}, 0
    for i = 1, n do q[i] = list[i] end
    while #q > 0 do s = s * 0.5 + q[#q] q[#q] = nil end
    return (y * s):exp() + 1
  end
  local numbers, tensors = {}, {}
  for i = 1, 20 do numbers[i], tensors[i] = i, x * i end
  lt.reset()
  local g = lt.compile(f)
  for i = 1, 3000 do g(x, i % 20 + 1, numbers) end
  local before = hits()
  for i = 1, 20 do g(x, i, numbers) end
  truthy(hits() - before <= 100, hits() - before)
  for i = 1, 12000 do g(x, i % 20 + 1, tensors) end
  for n = 1, 20 do
    same(g(x, n, tensors), f(x, n, tensors), n)
    same(g(x, n, numbers), f(x, n, numbers), n)
  end
  before = hits()
  for _ = 1, 10 do g(x, 20, tensors) end
  truthy(hits() - before >= 10 * 20, hits() - before)
end)

h.finish()
