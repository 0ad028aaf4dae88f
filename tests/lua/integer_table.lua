-- Tests each use of an integer that changes from call to call, with a stream of 30 legal values including 0 and 1: at
-- most two recompiles, and no break. Then values that are not integers: eager's outcome. `--table` prints the counts.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, outcome = h.test, h.equal, h.truthy, h.outcome
local wants_table = arg and arg[1] == "--table"
local rows = {}

local WHOLE = {2, 3, 0, 1, 5, 7, 4, 19, 18, 8, 9, 10, 11, 12, 13, 6, 15, 16, 17, 14, 3, 2, 0, 1, 19, 5, 11, 8, 4, 16}
local SIGNED = {2, 3, 0, 1, 5, -1, 4, 19, -20, 8, 9, 10, -7, 12, 13, 6, 15, -16, 17, 14, 3, 2, 0, 1, 19, 5, -11, 8, 4,
  -2}
local POSITIVE = {2, 3, 1, 5, 7, 4, 19, 18, 8, 9, 10, 11, 12, 13, 6, 15, 16, 17, 14, 3, 2, 1, 19, 5, 11, 8, 4, 16, 20,
  1}
local POWERS = {2, 4, 1, 8, 64, 16, 32, 2, 1, 4, 8, 64, 32, 16, 2, 4, 1, 8, 64, 16, 32, 2, 1, 4, 8, 64, 32, 16, 1, 2}
local BEYOND = {-1, -20, -21, 20, 21, 64, 65, 100, 0.5}
local HUGE = {2 ^ 31, 2 ^ 53, -2 ^ 53, 1 / 0}

-- most: how many recompiles, where it is more than two, and why.
local function row(name, values, make, most, why)
  test(name, function()
    lt.reset()
    local f, g = make(), lt.compile(make())
    local function same(v, i) equal(outcome(g, v, i), outcome(f, v, i), ("%s of %s, call %d"):format(name, v, i)) end
    for i, v in ipairs(values) do same(v, i) end
    local breaks = lt._report(g).break_reasons
    local recompiles, graphs = #lt.recompiles(g), lt.counters().stats.unique_graphs
    rows[#rows + 1] = ("%-44s %2d graphs, %d recompiles, %d breaks"):format(name, graphs, recompiles, #breaks)
    equal(#breaks, 0, breaks[1] and breaks[1].reason)
    equal(#values, 30)
    truthy(recompiles <= (most or 2), recompiles .. " recompiles")
    truthy(not most or why)
    if type(values[1]) ~= "number" then return end
    for i, v in ipairs(BEYOND) do same(v, i) end
    for i, v in ipairs(name:find "^x%[" and HUGE or {}) do same(v, i) end
  end)
end
local function of(f) return function() return f end end

local x, flat, one = lt.arange(60):view(20, 3):float(), lt.arange(64):float(), lt.ones(1, 3)
row("x[i]", SIGNED, of(function(i) return x[i] * 2 end))
row("x[{i, j}]", SIGNED, of(function(i, j) return x[{i, j % 3}] * 2 end))
row("x:select(0, i)", SIGNED, of(function(i) return x:select(0, i) * 2 end))
row("K[{':', ':', {pos, pos + 1}}] = k", WHOLE, function()
  local cache, k = lt.zeros(1, 2, 64, 4), lt.ones(1, 2, 1, 4)
  return function(pos)
    cache[{":", ":", {pos, pos + 1}}] = k * pos
    return cache:sum()
  end
end)
row("x[{{0, i}}]", WHOLE, of(function(i) return x[{{0, i}}]:sum(0) end))
row("x[{{i, i + 1}}]", WHOLE, of(function(i) return x[{{i, i + 1}}] * 2 end))
row("x:narrow(0, i, 1)", WHOLE, of(function(i) return x:narrow(0, i, 1) * 2 end))
row("x:narrow(0, 0, n)", WHOLE, of(function(n) return x:narrow(0, 0, n) * 2 end))
row("lt.zeros(n, 2)", WHOLE, of(function(n) return lt.zeros(n, 2) + 1 end))
row("lt.arange(n)", WHOLE, of(function(n) return lt.arange(n) * 2 end))
row("lt.arange(0, n, 2)", WHOLE, of(function(n) return lt.arange(0, n, 2) * 2 end))
row("lt.arange(3, n + 3, 5)", WHOLE, of(function(n) return lt.arange(3, n + 3, 5) * 2, lt.arange(n, -1, -3) + n end))
row("lt.linspace(0, 1, n)", WHOLE, of(function(n) return lt.linspace(0, 1, n) * 2 end))
row("x:view(n, -1)", POWERS, of(function(n) return (flat * 2):view(n, -1) end))
row("x:reshape(-1, n)", POWERS, of(function(n) return (flat * 2):reshape(-1, n) end))
row("x:topk(k)", WHOLE, of(function(k) return (flat * 2):topk(k) end))
row("x:expand(n, 3)", WHOLE, of(function(n) return one:expand(n, 3) * 2 end))
row("x:tile({n})", WHOLE, of(function(n) return flat:tile {n} * 2 end), 3, "a view of no elements has its own rule")
row("x:repeat_interleave(n)", WHOLE, of(function(n) return flat:repeat_interleave(n) * 2 end))
row("x:roll(n)", SIGNED, of(function(n) return flat:roll(n) * 2 end))
local both = "an output's strides ask whether n is 1, its sum whether it is 0"
row("lt.ones(n, n):tril()", WHOLE, of(function(n) return (lt.ones(n, n):tril() * 2):sum(0) end), 3, both)
row("x:unfold(0, n, 1)", WHOLE, of(function(n) return (flat:unfold(0, n, 1) * 2):sum(1) end), 3, both)
row("lt.ones(n, n):tril() of n > 0", POSITIVE, of(function(n) return (lt.ones(n, n):tril() * 2):sum(0) end))
row("x:unfold(0, n, 1) of n > 0", POSITIVE, of(function(n) return (flat:unfold(0, n, 1) * 2):sum(1) end))
row("x:unfold(0, 3, n)", POSITIVE, of(function(n) return flat:unfold(0, 3, n):sum(0) end))
row("x:tril(n)", SIGNED, of(function(n) return x:tril(n) * 2 end))
row("math.max(n, m)", WHOLE, of(function(n, m) return lt.zeros(math.max(n, m)) + math.max(n, m) end))
row("math.min(n, 5)", WHOLE, of(function(n) return lt.zeros(math.min(n, 5)) + 1 end))
row("math.floor(n / 2)", WHOLE, of(function(n) return lt.zeros(math.floor(n / 2)) + 1 end))
row("n % 4", WHOLE, of(function(n) return lt.zeros(n % 4) + 1 end))
row("n ^ 2", WHOLE, of(function(n) return lt.zeros(n ^ 2) + 1, flat * n ^ 2 end))
row("bit.band(n, 3)", WHOLE, of(function(n) return lt.zeros(bit.band(n, 3)) + 1 end))
row("a factor", SIGNED, of(function(n) return flat * n + n end))
row("a text", SIGNED, of(function(n) return flat * 2, "step " .. n, ("%d of %g"):format(n, n) end))
row("a text at a break", SIGNED, of(function(n) return lt.ones(3) * 2, tostring(n) end))

local lists, tensors = {}, {}
for i, n in ipairs(WHOLE) do
  lists[i], tensors[i] = {}, lt.ones(n, 2)
  for k = 1, n do lists[i][k] = k end
end
row("#t", lists, of(function(t) return lt.zeros(#t, 2) + #t end))
row("x.shape[1]", tensors, of(function(y)
  local z = y * 2
  return lt.zeros(z.shape[1], 2) + z.shape[1]
end), 3, "sizes 0 and 1 of a tensor have an entry each")
row("cache[#cache + 1] = k", WHOLE, function()
  local cache = {}
  return function(n)
    cache[#cache + 1] = flat * n
    return flat + #cache
  end
end)
local nets, places = {}, {}
for i = 1, 20 do nets[i] = lt.nn.Linear(64, 2) end
row("nets[n](x)", POSITIVE, of(function(n) return nets[n](flat) end))
row("for i = 1, n", WHOLE, of(function(n)
  local y = flat * 2
  for i = 1, n do y = y * 1.5 + i end
  return y
end))
row("for i = 0, n - 1 over x[i]", WHOLE, of(function(n)
  local y = x[0] * 2
  for i = 0, n - 1 do y = y + x[i] end
  return y
end))

row("for i = 0, n, 0.5", WHOLE, of(function(n)
  local y = flat * 2
  for i = 0, n, 0.5 do y = y * 1.5 + i end
  return y + 1
end))
row("for i = n / 2, n", WHOLE, of(function(n)
  local y = flat * 2
  for i = n / 2, n do y = y + i end
  return y + 1
end))
row("for k = 1, i within for i = 1, n", WHOLE, of(function(n)
  local y = flat * 2
  for i = 1, n do
    for k = 1, i do y = y + i * k end
  end
  return y + 1
end))
row("list[#list + 1] = y in for i = 1, n", WHOLE, of(function(n)
  local list = {}
  for i = 1, n do list[#list + 1] = flat * i end
  return #list, list
end))
row("a loop with a break", WHOLE, of(function(n)
  local y = flat * 2
  for i = 1, n do
    if i > 4 then break end
    y = y + i
  end
  return y + 1
end), 3, "each way of a branch has a graph")

-- Other loops than `for`: how they count and end; each body is a segment.
local function counts(name, values, make, most, why)
  row(name, values, of(make), most, why)
end
counts("while i <= n", WHOLE, function(n)
  local y, i = flat * 2, 1
  while i <= n do
    y = y * 1.5 + i
    i = i + 1
  end
  return y + 1
end)
counts("while n > 0", WHOLE, function(n)
  local y = flat * 2
  while n > 0 do
    y = y * 1.5 + n
    n = n - 1
  end
  return y + 1
end)
counts("while i ~= n", POSITIVE, function(n)
  local y, i = flat * 2, 0
  while i ~= n and i < 200 do
    y = y * 1.5 + i
    i = i + 1
  end
  return y + 1
end)
counts("while true with a break", WHOLE, function(n)
  local y, i = flat * 2, 1
  while true do
    y = y * 1.5 + i
    i = i + 1
    if i > n then break end
  end
  return y + 1
end)
counts("while more", WHOLE, function(n)
  local y, i, more = flat * 2, 1, n >= 1
  while more do
    y = y * 1.5 + i
    i = i + 1
    more = i <= n
  end
  return y + 1
end)
counts("while i <= n or i < 3", WHOLE, function(n)
  local y, i = flat * 2, 1
  while i <= n or i < 3 do
    y = y * 1.5 + i
    i = i + 1
  end
  return y + 1
end)
counts("repeat until i > n", WHOLE, function(n)
  local y, i = flat * 2, 1
  repeat
    y = y * 1.5 + i
    i = i + 1
  until i > n
  return y + 1
end)
counts("goto back", WHOLE, function(n)
  local y, i = flat * 2, 1
  ::top::
  y = y * 1.5 + i
  i = i + 1
  if i <= n then goto top end
  return y + 1
end)
counts("while j <= i within while i <= n", WHOLE, function(n)
  local y, i = flat * 2, 1
  while i <= n do
    local j = 1
    while j <= i do
      y = y + i * j
      j = j + 1
    end
    i = i + 1
  end
  return y + 1
end)
counts("while x[i]", WHOLE, function(n)
  local y, i = x[0] * 2, 0
  while i < n do
    y = y + x[i]
    i = i + 1
  end
  return y + 1
end)
counts("while list[#list + 1] = y", WHOLE, function(n)
  local list, i = {}, 1
  while i <= n do
    list[#list + 1] = flat * i
    i = i + 1
  end
  return #list, list
end)
counts("while nets[i]", WHOLE, function(n)
  local y, i = flat * 2, 1
  while i <= n do
    y = y + nets[i](flat):sum()
    i = i + 1
  end
  return y + 1
end, 3, "what takes no gradients has an entry of its own")
local tolerances = {}
for i, n in ipairs(WHOLE) do tolerances[i] = 0.7 ^ n * 1.01 end
counts("while err > tol", tolerances, function(tol)
  local y, err = flat * 2, 1
  while err > tol and err > 1e-4 do
    y = y * 1.5 + err
    err = err * 0.7
  end
  return y + 1
end)
test("a size and the bound of a loop change in one call", function()
  for _, make in ipairs {function(t, n)
    local y = t
    for i = 1, n do y = y * 0.5 + i end
    return y
  end, function(t, n)
    local y, i = t, 1
    while i <= n do
      y = y * 0.5 + i
      i = i + 1
    end
    return y
  end} do
    lt.reset()
    local g = lt.compile(make)
    for i = 2, 30 do
      local t, n = lt.ones(i, 4), 33 - i
      equal(h.text(g(t, n)), h.text(make(t, n)), "call " .. i)
    end
    local graphs = lt.counters().stats.unique_graphs
    truthy(graphs <= 3, graphs .. " graphs")
    equal(#lt._report(g).break_reasons, 0)
  end
end)

-- Bounds and keys that a graph cannot hold: it breaks there, and what is behind is one graph for all values.
local keys, ways = {}, {}
for i = 1, 80 do
  keys[i] = i * 1.5
  ways[i] = function(y) return y * i end
end
local breaking = {
  ["for i = 1, t:sum():item()"] = function(t)
    local y = flat
    for i = 1, t:sum():item() do y = y * 0.5 + i end
    return y
  end,
  ["while i <= t:sum():item()"] = function(t)
    local y, i, n = flat, 1, t:sum():item()
    while i <= n do
      y = y * 0.5 + i
      i = i + 1
    end
    return y
  end,
  ["for i = 1, #t:nonzero()"] = function(t)
    local y = flat
    for i = 1, #t:nonzero() do y = y * 0.5 + i end
    return y
  end,
  ["for i = 1, t:tolist()[1]"] = function(t)
    local y = flat
    for i = 1, t:sum():view(1):tolist()[1] do y = y * 0.5 + i end
    return y
  end,
  ["keys[t:sum():item()]"] = function(t) return flat * keys[t:sum():item()] end,
  ["keys[#t:nonzero()]"] = function(t) return flat * keys[#t:nonzero()] end,
  ["keys[#t]"] = function(t) return t:float() * keys[#t] end,
  ["keys[t.shape[1] + 1]"] = function(t) return t:float() * keys[t.shape[1] + 1] end,
  ["ways[#t]"] = function(t) return ways[#t](flat) + t:sum() end,
}
for name, f in pairs(breaking) do
  test(name, function()
    lt.reset()
    local g = lt.compile(f)
    for i = 2, 40 do
      local t = lt.ones(i, {dtype = "int64"})
      equal(h.text(g(t)), h.text(f(t)), "call " .. i)
    end
    local graphs, breaks = lt.counters().stats.unique_graphs, #lt._report(g).break_reasons
    rows[#rows + 1] = ("%-44s %2d graphs, %d recompiles, %d breaks"):format(name, graphs, #lt.recompiles(g), breaks)
    truthy(graphs <= 5, graphs .. " graphs")
  end)
end

-- Sizes of tensors as bounds: streams begin with a size, with 0, with 1.
local function of_sizes(first)
  local list = {}
  for i, n in ipairs(WHOLE) do list[i] = lt.arange(n * 3):view(n, 3):float() + 1 end
  for i, n in ipairs(first) do list[i] = lt.arange(n * 3):view(n, 3):float() + 1 end
  return list
end
for _, first in ipairs {{5, 3, 0, 1}, {0, 1, 2, 3}, {1, 0, 5, 3}, {2, 0, 1, 3}, {2, 1, 0}, {0, 3, 5, 1},
  {3, 3, 1, 0, 5}} do
  local name, tensors_first = " from " .. table.concat(first, ", "), of_sizes(first)
  row("for i = 1, x.shape[1]" .. name, tensors_first, of(function(t)
    local y = t * 2
    for i = 1, t.shape[1] do y = y * 1.5 + i end
    return y + 1
  end))
  row("for i = 0, #x - 1 over x[i]" .. name, tensors_first, of(function(t)
    local y = one * 2
    for i = 0, #t - 1 do y = y + t[i] end
    return y + 1
  end))
  row("while i <= x.shape[1]" .. name, tensors_first, of(function(t)
    local y, i = t * 2, 1
    while i <= t.shape[1] do
      y = y * 1.5 + i
      i = i + 1
    end
    return y + 1
  end))
  row("repeat until i >= #x" .. name, tensors_first, of(function(t)
    local y, i = one * 2, 0
    repeat
      y = y + i
      i = i + 1
    until i >= #t
    return y + 1
  end))
end

-- 200 relations over a sum of which each step has the last two: walked without regard to that, they have 2^200 parts.
test("relations that share their parts", function()
  local function f(t, k)
    local a, b = k, 0.25
    for _ = 1, 200 do
      if not (math.abs(a) < 1e9) then a = k end
      a, b = b, a + b
    end
    return t * a, b
  end
  local g = lt.compile(f)
  for _, k in ipairs {2, 3.7, 1e8, -5} do equal(outcome(g, one, k), outcome(f, one, k), "of " .. k) end
end)

test("a decode loop over a cache of 1000 positions", function()
  lt.reset()
  local function make()
    local keys, values = lt.zeros(1, 2, 1000, 8), lt.zeros(1, 2, 1000, 8)
    return function(q, pos)
      keys[{":", ":", {pos, pos + 1}}] = q * 0.5
      values[{":", ":", {pos, pos + 1}}] = q + 1
      local k, v = keys[{":", ":", {0, pos + 1}}], values[{":", ":", {0, pos + 1}}]
      return lt.nn.functional.scaled_dot_product_attention(q, k, v)
    end
  end
  local f, g = make(), lt.compile(make())
  lt.manual_seed(4)
  for pos = 0, 999 do
    local q = lt.randn(1, 2, 1, 8)
    local want, got = f(q, pos), g(q, pos)
    if pos < 20 or pos % 50 == 0 then equal(h.text(got), h.text(want), "position " .. pos) end
  end
  local graphs, recompiles = lt.counters().stats.unique_graphs, #lt.recompiles(g)
  rows[#rows + 1] = ("%-44s %2d graphs, %d recompiles, %d breaks"):format("a decode loop, 1000 positions", graphs,
    recompiles, #lt._report(g).break_reasons)
  truthy(graphs <= 3, graphs .. " graphs")
  if not wants_table then return end
  local q = lt.randn(1, 2, 1, 8)
  local function us(position)
    local best = math.huge
    for _ = 1, 5 do
      local t = os.clock()
      for i = 0, 999 do g(q, position(i)) end
      best = math.min(best, (os.clock() - t) * 1000)
    end
    return best
  end
  local in_turn, alone = us(function(i) return i end), us(function() return 500 end)
  rows[#rows + 1] = ("a step of all positions in turn %.2f us, at position 500 alone %.2f us"):format(in_turn, alone)
end)

if wants_table then print(table.concat(rows, "\n")) end
h.finish()
