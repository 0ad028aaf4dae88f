-- Tests numbers that item() reads from a graph's tensors as sizes, indices, bounds and counts: the graph continues with
-- them. The run asserts what an op requires of them. If that does not hold, it raises eager's error at eager's line.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, breaks, outcome = h.test, h.equal, h.truthy, h.breaks, h.outcome

local function ids(n, dtype) return lt.tensor({n, 1}, {dtype = dtype or "int64"}) end

-- The function of (a tensor of two integers) gives what eager gives for all values; for those that fit in one graph
-- without a break.
local function one_graph(name, f, fits, others, dtype)
  test(name, function()
    lt.reset()
    local g = lt.compile(f)
    for _, n in ipairs(fits) do equal(outcome(g, ids(n, dtype)), outcome(f, ids(n, dtype)), n) end
    local found = {}
    for _, b in ipairs(lt._report(g).break_reasons) do found[#found + 1] = b.reason .. ": " .. b.hint end
    equal(#found, 0, table.concat(found, "; "))
    local graphs = lt.counters().stats.unique_graphs
    truthy(graphs <= 1, graphs .. " graphs")
    equal(#lt.recompiles(g), 0, "recompiles")
    for _ = 1, 3 do
      for _, n in ipairs(others or {}) do equal(outcome(g, ids(n, dtype)), outcome(f, ids(n, dtype)), n) end
      for _, n in ipairs(fits) do equal(outcome(g, ids(n, dtype)), outcome(f, ids(n, dtype)), n) end
    end
  end)
end

local x = lt.arange(60):view(20, 3):float()
local flat = lt.arange(64):float()
local inside, sizes = {5, 2, 3, 0, 1, 19, 7, 12, 18}, {5, 2, 3, 19, 7, 12}
local outside = {-1, -20, -21, 20, 100, 2 ^ 40, -2 ^ 40}

one_graph("an index", function(t)
  local i = (t + 0)[0]:item()
  return x[i] * 2, i
end, inside, outside)
one_graph("several indices", function(t)
  t = t + 0
  local i = t[0]:item()
  return x[i], x[{i, 1}], x:select(0, i) + 1, x:narrow(0, i, 1), x[{{i, i + 1}}]
end, inside, outside)
one_graph("an index of 32 bits, computed with", function(t)
  local i = (t:int() * 2)[0]:item() / 2
  return x[math.min(math.max(i, 0), 19)] + i, x[math.floor(i / 2)]
end, {5, 2, 3, 19, 7, 12}, outside)
one_graph("the place of the largest", function(t)
  local i = (t[0] - lt.arange(20)):abs():neg():argmax():item()
  return x[i] * 2, x:narrow(0, i, 1), x[{{i, nil}}]:sum()
end, inside)
one_graph("a size", function(t)
  local n = (t + 0)[0]:item()
  return lt.zeros(n, 2) + 1, lt.full({n}, 3), flat[{{0, n}}] * 2
end, sizes, {0, 1, -1, 21})
one_graph("arange, repeats, topk", function(t)
  local n = (t + 0)[0]:item()
  return lt.arange(n) * 2, flat:repeat_interleave(n), (flat * 2):topk(n), flat:tile {n}
end, sizes, {0, 1, -1, 65})
one_graph("a view", function(t)
  local n = (t + 0)[0]:item()
  return (flat * 2):view(n, -1), flat:reshape(-1, n) + 1
end, {8, 2, 4, 16, 32}, {0, 1, 3, -1, -2, 64, 128})
one_graph("a length of narrow and a bound of slices", function(t)
  local n = (t + 0)[0]:item()
  return x:narrow(0, 0, n) * 2, x[{{n - 2, n}}] + 1
end, sizes, {0, 1, -1, 21, 20})
one_graph("a write at a place", function(t)
  local i = (t + 0)[0]:item()
  local cache = lt.zeros(20, 3)
  cache[i] = 7
  cache[{{i, i + 1}}] = x[0]
  return cache * 2
end, inside, {-1, 20, 21, -21})
test("a write into a tensor that the caller has", function()
  local function make()
    local memory, log = lt.arange(64):float(), {}
    return function(t)
      memory:add_(1)
      local i = (t + 0)[0]:item()
      memory[i] = memory[i] * 2
      log[#log + 1] = i
      local j = memory:argmax():item()
      memory:mul_(0.5)
      return memory * 1, i, x[j - 44], #log
    end, memory
  end
  lt.reset()
  local f, want = make()
  local g, got = make()
  g = lt.compile(g)
  for _, n in ipairs {5, 2, 3, 0, 1, 63, 64, 5, -65, 2, -1, 50, 63, 64, 40} do
    equal(outcome(g, ids(n)), outcome(f, ids(n)), n)
    equal(h.text(got), h.text(want), n)
  end
end)
one_graph("a power, and functions of Lua's library", function(t)
  local n = (t + 0)[0]:item()
  return lt.zeros(n ^ 2) + 1, flat * math.exp(-n), lt.ones(bit.band(n, 6) + 2), n % 3, math.sqrt(n)
end, sizes, {-2, 0, 1})
one_graph("the whole part of a mean", function(t)
  local n = math.floor((t:double() * 3)[0]:item() / 3 + 0.25)
  return x[n] * 2, math.ceil(t:double():sum():item())
end, {5, 2, 3, 1, 19, 7}, {20, -1})
one_graph("in tables, texts and other functions", function(t)
  local n = (t + 0)[0]:item()
  local function pick(list) return list.rows[n] + 1 end
  return pick {rows = x}, {n = n, twice = n * 2}, "row " .. n, ("%d"):format(n)
end, inside, {-1, 20})
one_graph("an error is caught", function(t)
  local n = (t + 0)[0]:item()
  local ok, y = pcall(function() return x[n] * 2 end)
  return ok, ok and y
end, inside, {-1, 20, -21, 20})

one_graph("numbers of tolist", function(t)
  local i, n = unpack((t + 1):tolist())
  return x[i] * 2, lt.zeros(n, 2) + 1, x[{{0, i}}]:sum(0)
end, {5, 2, 3, 1, 18, 7}, {-1, -21, 100, 2 ^ 40, -2 ^ 40})
one_graph("numbers of tolist, of lists of lists", function(t)
  local rows = (t:int():view(1, 2) * 2):tolist()
  return x[rows[1][1] / 2] * 2, rows, #rows, #rows[1], lt.full({rows[1][2]}, rows[1][1])
end, {5, 2, 3, 0, 18, 7}, {-1, 20, -21})
one_graph("fractions and answers of tolist", function(t)
  local halves, large = (t:double() / 2):tolist(), t:gt(3):totable()
  return flat * halves[1], halves, large
end, {5, 2, 3, 0, 18, 7}, {-1, 2 ^ 40})
one_graph("an empty list of tolist", function(t)
  local y = t * 2
  return y, y:narrow(0, 0, 0):tolist(), y[{{0, 1}}]:tolist()
end, {5, 2, 3, 0})

local function facts(name, f, fits, others) one_graph(name, f, fits, others) end
facts("lt.check of such a number", function(t)
  local n = (t + 0)[0]:item()
  lt.check(n > 3, "few")
  if n > 2 then return lt.zeros(n) + 1 end
  return n
end, {5, 8, 20, 4}, {3, 0, 1, -7})
facts("assert of such a number", function(t)
  local n = (t:int() + 0)[0]:item()
  assert(n < 9 and n >= 2, "out of range")
  if n >= 9 then return n end
  return x:narrow(0, 0, n) * 2
end, {5, 8, 2, 4}, {9, 1, 0, -7})
facts("lt.check_is_size of such a number", function(t)
  local n = (t + 0)[0]:item()
  lt.check_is_size(n, {min = 2, max = 20})
  return x:narrow(0, 0, n) * 2
end, {5, 8, 20, 4}, {1, 0, -7, 21})

test("a break says which fact is missing", function()
  for want, f in pairs {
    ["n > 3"] = function(t) if (t + 0)[0]:item() > 3 then return t * 2 end return t end,
    ["n % 2 == 0"] = function(t) if (t:int() + 0)[0]:item() % 2 == 0 then return t * 2 end return t end,
    ["n == 4"] = function(t) if (t + 0)[0]:item() == 4 then return t * 2 end return t end,
  } do
    lt.reset()
    local g = lt.compile(f)
    for _, n in ipairs {5, 2, 4, 3} do equal(outcome(g, ids(n)), outcome(f, ids(n)), want) end
    local b = lt._report(g).break_reasons[1]
    truthy(b.hint:find("nothing says whether " .. want .. " before", 1, true), b.hint)
    equal(b.anchor, "docs/graph_breaks.md#needs_number")
  end
  lt.reset()
  local g = lt.compile(function(t)
    local y = t * 2
    for _ = 1, (t + 0)[0]:item() do y = y + 1 end
    return y
  end)
  equal(outcome(g, ids(4)), outcome(function(t) return t * 2 + 4 end, ids(4)))
  local b = lt._report(g).break_reasons[1]
  truthy(b.hint:find("nothing says which number n is", 1, true), b.hint)
end)

test("lists of int64 beyond 2^53, of many elements and of sizes that change are what tolist gives", function()
  local function f(t)
    local list = (t + 0):tolist()
    return list, type(list[1]), t * 2
  end
  lt.reset()
  local g = lt.compile(f)
  local large = lt.tensor({2, 2}, {dtype = "int64"}):pow(62)
  for _ = 1, 4 do
    for _, t in ipairs {ids(3), large, ids(5), large - 1, lt.arange(3), lt.arange(40), lt.arange(5), lt.zeros(3, 2)} do
      equal(outcome(g, t), outcome(f, t))
    end
  end
end)

test("int64 beyond 2^53 stay what item() gives", function()
  local function f(t)
    local n = (t + 0)[0]:item()
    return n, type(n), t * 2
  end
  lt.reset()
  local g = lt.compile(f)
  local large = lt.tensor({2, 2}, {dtype = "int64"}):pow(62)
  for _ = 1, 6 do
    for _, t in ipairs {ids(3), large, large - 1, lt.tensor({2, 2}, {dtype = "int64"}):pow(53), ids(-3), -large} do
      equal(outcome(g, t), outcome(f, t))
    end
  end
end)

test("fullgraph holds", function()
  local f = function(t) return x[(t + 0)[0]:item()] * 2 end
  local g = lt.compile(f, {fullgraph = true})
  for _, n in ipairs {5, 2, 0, 19, -1, 20, 3} do equal(outcome(g, ids(n)), outcome(f, ids(n)), n) end
end)

test("a train step with an index that an element tells", function()
  local function make()
    local w = lt.full({20, 3}, 0.5, {requires_grad = true})
    local opt = lt.optim.SGD({w}, {lr = 0.1, momentum = 0.9})
    return function(t)
      local i = (t + 0)[0]:item()
      local loss = (w[i] * x[i]):pow(2):mean()
      opt:zero_grad()
      loss:backward()
      opt:step()
      return loss:detach(), w:detach():clone()
    end
  end
  lt.reset()
  local f, g = make(), lt.compile(make())
  for _, n in ipairs {5, 2, 0, 19, 7} do equal(outcome(g, ids(n)), outcome(f, ids(n)), n) end
  equal(breaks(), 0)
end)

test("the backends agree", function()
  local f = function(t)
    local i = (t + 0)[0]:item()
    return x[i] * 2, lt.ones(i + 2) * 3, x:narrow(0, i, 2):exp()
  end
  for _, backend in ipairs {"native", "eager", "aot_eager"} do
    lt.reset()
    local g = lt.compile(f, {backend = backend})
    for _, n in ipairs {5, 2, 0, 1, 17, -1, 19, 20} do equal(outcome(g, ids(n)), outcome(f, ids(n)), backend .. n) end
  end
end)

h.finish()
