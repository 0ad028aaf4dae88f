-- Tests integers that change from call to call: as sizes, indices, bounds, counts and positions in lists they are
-- symbols from their second value on. So a stream of values costs few compilations. Results are eager's, bit for bit.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local function same(got, want, what)
  equal(type(got), type(want), what)
  if type(want) == "table" then
    for k, v in pairs(want) do same(got[k], v, what) end
  elseif type(want) == "userdata" then
    equal(got.dtype, want.dtype, what)
    equal(table.concat(got.shape, ","), table.concat(want.shape, ","), what)
    truthy(got:equal(want) or tostring(got) == tostring(want), what)
  elseif want == want then
    equal(string.format("%.17g", tonumber(want) or 0), string.format("%.17g", tonumber(got) or 0), what)
    equal(got, want, what)
  end
end

local graphs = h.graphs

-- f eager and compiled in n calls with arguments args(i): the same, errors included, in at most `most` graphs.
local function stream(name, most, n, f, args, options)
  test(name, function()
    lt.reset()
    local cf = lt.compile(f, options)
    for i = 1, n do
      local a = {args(i)}
      local want, got = {pcall(f, unpack(a, 1, 4))}, {pcall(cf, unpack(a, 1, 4))}
      equal(#got, #want, "results")
      for k = 1, #want do same(got[k], want[k], string.format("call %d, result %d", i, k)) end
    end
    truthy(graphs() <= most, string.format("%d graphs, at most %d wanted", graphs(), most))
  end)
end

local x = lt.arange(60):view(20, 3):to("float32")
local one, flat = lt.ones(1, 3), lt.arange(64):to("float32")

stream("a split by a list of sizes", 3, 30, function(a, b)
  local p = flat:split({a, b, 64 - a - b})
  return p[1]:sum() + p[2]:sum() * 2 - p[3]:sum()
end, function(i) return i % 7 + 2, i % 5 + 2 end)
stream("a split whose parts are joined, broadcast and written", 6, 60, function(a, b)
  local y = flat * 2
  local p = y:split({a, b, 64 - a - b})
  p[2]:add_(1)
  return lt.cat({p[3], p[1]}), p[1]:view(-1, 1) + p[2], p[1].shape[1], p[2]:stride(), p[3]:storage_offset(), y
end, function(i) return (i * 3) % 8, (i * 5) % 4 + 1 end)
stream("a split along another dim, of a tensor of another size", 5, 40, function(t, a)
  local p = t:split({a, t.shape[2] - a}, 1)
  return p[1]:sum(0), p[2] * 2, p[2]:is_contiguous()
end, function(i) return lt.ones(3, 6 + i % 5), i % 4 + 1 end)
stream("a split by wrong sizes", 8, 40, function(a, b)
  local p = flat:split({a, b})
  return p[1] * 2, p[2]:sum()
end, function(i) return i - 5, 64 - (i - 5) + (i % 6 == 0 and 1 or 0) end)

test("gradients through a split by a list of sizes", function()
  lt.reset()
  local w = lt.randn(12, {requires_grad = true})
  local function f(a, b)
    local p = w:split({a, b, 12 - a - b})
    return (p[1]:pow(2):sum() + p[2]:exp():sum() * 2 - p[3]:sum())
  end
  local cf = lt.compile(f)
  for i = 1, 12 do
    local a, b = i % 5 + 1, i % 4 + 2
    local want, got = lt.grad(f(a, b), {w}), lt.grad(cf(a, b), {w})
    truthy(got[1]:equal(want[1]), "gradient " .. i)
  end
end)

stream("an index", 3, 20, function(i) return x[i] * 2 end, function(i) return i - 1 end)
stream("an index from both ends", 4, 40, function(i) return x[i] * 2 end, function(i) return 20 - i end)
stream("an index that goes beyond", 4, 30, function(i) return x[i] * 2 end, function(i) return i end)
stream("two indices", 4, 30, function(i, j) return x[{i, j}] * 2 end, function(i) return i % 20, i % 3 end)
stream("select and narrow", 3, 19, function(i) return x:select(0, i) + x:narrow(0, i, 1):sum() end,
  function(i) return i end)
stream("a slice of changing bounds", 4, 17, function(a, b) return x[{{a, b}}]:sum(0) end,
  function(i) return i, i + 3 end)
stream("a slice of constant length", 4, 17, function(a) return x[{{a, a + 2}}] * one end, function(i) return i end)
stream("an index that is written", 3, 20, function(i)
  local y = x * 1
  y[i] = 7
  return y
end, function(i) return i - 1 end)
stream("a step of slices", 4, 9, function(s) return x[{{0, nil, s}}] * 2 end, function(i) return i end)
stream("sizes", 3, 20, function(n) return lt.zeros(n, 4) + lt.ones(n, 1), lt.full({2, n}, 3) end,
  function(i) return i - 1 end)
stream("arange", 3, 20, function(n) return lt.arange(n):sum(), lt.arange(n) * 2 end, function(i) return i - 1 end)
stream("arange from and to", 4, 20, function(a, b) return lt.arange(a, b) * 2 end,
  function(i) return i, 2 * i + 3 end)
stream("expand and tile", 3, 20, function(n) return one:expand(n, 3) * 2, one:tile({n, 2}) end,
  function(i) return i - 1 end)
stream("view with one size", 3, 20, function(n) return flat:view(n, -1):sum(1) end,
  function(i) return 2 ^ (i % 6) end)
stream("view with two sizes", 4, 20, function(n, m) return flat:view(n, m):sum(1) end,
  function(i) return 2 ^ (i % 7), 2 ^ (6 - i % 7) end)
stream("sizes by arithmetic", 4, 20, function(n)
  return lt.zeros(math.max(n, 3)), lt.ones(n % 4), lt.ones(math.floor(n / 2)), lt.ones(math.min(n, 5) + 1)
end, function(i) return i end)
stream("a size that is a quotient", 4, 12, function(y)
  local b, t = y:size(0), y:size(1)
  return y:view(b * t / 2, 2)
end, function(i) return lt.ones(i + 1, 4) end)
stream("a schedule of extremes", 2, 20, function(t) return one * math.min(1, t / 10) + math.max(0, t - 3) end,
  function(i) return i end)
stream("the length of a list as a size", 4, 12, function(list) return lt.zeros(#list, 3) + one end, function(i)
  local list = {}
  for j = 1, i do list[j] = j end
  return list
end)
stream("fractions, -0 and NaN among whole numbers", 8, 12, function(v) return one * v, one / v, lt.full({2}, v) end,
  function(i) return ({1, 2, -0.0, 3, 0.5, 0, 0 / 0, 4, 1 / 0, 5, -3, 2 ^ 60})[i] end)
stream("an index that is sometimes none", 6, 12, function(v) return x[v] end,
  function(i) return ({1, 2, 0.5, 3, 4, -0.0, 0, -1, -20, -21, 20, 2 ^ 53})[i] end)

test("a cache is filled by position", function()
  lt.reset()
  local function decoder()
    local cache = lt.zeros(1, 2, 1000, 4)
    return function(k, position)
      cache[{":", ":", {position, position + 1}}] = k
      local seen = cache[{":", ":", {0, position + 1}}]
      return (seen * k):sum({2}), cache:narrow(2, position, 1)
    end
  end
  local eager, compiled = decoder(), lt.compile(decoder())
  for position = 0, 999 do
    local k = lt.full({1, 2, 1, 4}, position % 7 + 1)
    local want, want_row = eager(k, position)
    local got, got_row = compiled(k, position)
    if position < 10 or position % 100 == 0 then
      truthy(got:allclose(want), "position " .. position)
      truthy(got_row:equal(want_row), "row " .. position)
    end
  end
  truthy(graphs() <= 3, graphs() .. " graphs")
end)

test("a loop of changing length is not unrolled", function()
  lt.reset()
  local function f(y, n)
    for i = 1, n do y = y * 1.5 + i end
    return y
  end
  local cf = lt.compile(f)
  for n = 1, 20 do truthy(cf(one, n):equal(f(one, n)), "n = " .. n) end
  truthy(graphs() <= 3, graphs() .. " graphs")
  lt.reset()
  local x, first = lt.arange(24):view(12, 2):float(), nil
  local function sum(n)
    local s = x[0] * 0
    for i = 0, n - 1 do s = s + x[i] end
    return s
  end
  cf = lt.compile(sum)
  for _, n in ipairs {2, 3, 0, 1, 4, 12, 7, 1, 0, 9} do
    truthy(cf(n):equal(sum(n)), "n = " .. n)
    first = first or graphs()
  end
  truthy(graphs() - first <= 2, graphs() .. " graphs")
  lt.reset()
  local rounds = {n = 4}  -- of two models, say
  local function each(y)
    for i = 1, rounds.n do y = (y * 0.5):exp() + i end
    return y
  end
  cf = lt.compile(each)
  for _, n in ipairs {4, 6, 4, 6} do
    rounds.n = n
    truthy(cf(one):equal(each(one)), "n = " .. n)
  end
  truthy(graphs() == 2, graphs() .. " graphs")
end)

test("a list is read at a place that changes", function()
  lt.reset()
  local nets, tensors = {}, {}
  for i = 1, 20 do nets[i], tensors[i] = lt.nn.Linear(3, 3), lt.full({3}, i) end
  local function f(y, n) return nets[n](y) + tensors[n] end
  local cf = lt.compile(f)
  for i = 1, 60 do truthy(cf(one, i % 20 + 1):equal(f(one, i % 20 + 1)), "call " .. i) end
  truthy(graphs() <= 3, graphs() .. " graphs")
end)

test("a list that is read at two places, which may be one", function()
  lt.reset()
  local function make()
    local cells = {}
    for i = 1, 6 do cells[i] = {value = i} end
    return function(y, a, b)
      cells[a].value = cells[a].value + 1
      return y * cells[b].value
    end
  end
  local f, cf = make(), lt.compile(make())
  for i = 1, 40 do
    local a, b = i % 6 + 1, (i * i) % 6 + 1
    truthy(cf(one, a, b):equal(f(one, a, b)), "call " .. i)
  end
end)

test("a list that grows ends the segment, not the compiling", function()
  lt.reset()
  local function make()
    local cache = {}
    return function(k)
      local y = k * 2
      cache[#cache + 1] = y
      return (lt.cat(cache, 0):sum() * 2):exp():log()
    end
  end
  local f, cf = make(), lt.compile(make())
  for i = 1, 20 do
    local k = lt.full({1, 2}, 0.001 * i)
    truthy(cf(k):equal(f(k)), "call " .. i)
  end
  truthy(graphs() <= 10, graphs() .. " graphs")
end)

test("a number that is written into a text ends the segment there", function()
  lt.reset()
  local function f(y, n)
    local z = y * n
    local text = "step " .. n
    return (z + 1):sum(), text
  end
  local cf = lt.compile(f)
  for n = 1, 20 do
    local got, text = cf(one, n)
    truthy(got:equal((f(one, n))))
    equal(text, "step " .. n)
  end
  truthy(graphs() <= 6, graphs() .. " graphs")
end)

test("a string that is no constant one may be any other", function()
  lt.reset()
  local function f(y, mode)
    if mode == "double" then return y * 2 end
    return y + 1
  end
  local cf = lt.compile(f)
  for i = 1, 20 do truthy(cf(one, "mode " .. i):equal(one + 1)) end
  truthy(cf(one, "double"):equal(one * 2))
  truthy(cf(one, "mode 3"):equal(one + 1))
  equal(graphs(), 2)
end)

test("a text that grows ends the segment; a table is read by a name that changes", function()
  lt.reset()
  local function make()
    local log, layers = "", {}
    for i = 1, 12 do layers["layer " .. i] = lt.full({3}, i) end
    return function(y, name)
      local z = y * layers[name]
      log = log .. "."
      return z + 1, log
    end
  end
  local f, cf = make(), lt.compile(make())
  for i = 1, 24 do
    local name = "layer " .. i % 12 + 1
    local want, want_log = f(one, name)
    local got, got_log = cf(one, name)
    truthy(got:equal(want), name)
    equal(got_log, want_log)
  end
  truthy(graphs() <= 6, graphs() .. " graphs")
end)

-- A Lua number that is also a size or a count stays a number for ops; it does not become an int64.
local function numbers(x, n)
  local filled = lt.full({2}, n)
  return lt.zeros(n), filled, lt.full({n}, n + 1):pow(31), lt.where(x:gt(1), n, n + 1):mean(), filled:mul_(0.5),
    lt.full({2}, x.shape[1]):pow(31)
end
local function sizes(i) return lt.ones(i % 7 + 1, 3) * i, i % 5 + 1 end
stream("numbers that are sizes, too, are numbers to ops", 4, 20, numbers, sizes)
stream("likewise, dynamic from the first call on", 3, 20, numbers, sizes, {dynamic = true})

-- Lua's remainder of doubles is not that of integers next to 2^53.
local large = {1, 2, 3, 2 ^ 53, 2 ^ 53 - 1, -2 ^ 53, -2 ^ 53 + 1, 2 ^ 52 + 1, -2 ^ 52 - 3, 2 ^ 52 - 1, 2 ^ 51 + 7,
  2 ^ 54, 5}
stream("remainders of large numbers", 8, 60, function(v, w)
  return x[v % 3], x[(0 - v) % 3], x[(w - v) % 7], x[math.floor(v / 3) % 20], x[(v * 3) % 5]
end, function(i) return large[i * 5 % #large + 1], large[i * 7 % #large + 1] end)

test("sizes and numbers are learned though other things change from call to call", function()
  local function counted(n, want, f, args)
    lt.reset()
    local g = lt.compile(f)
    for i = 2, 12 do
      for k = 1, n do equal(g(args(i, k)):equal(f(args(i, k))), true) end
    end
    equal(#lt.guards(g) <= want, true, ("%d entries, at most %d"):format(#lt.guards(g), want))
    return lt.recompiles(g)
  end
  local dtypes, modes = {"float32", "float64", "int64"}, {"double", "triple", "same"}
  local why = counted(2, 4, function(x) return (x * 2):sum() end, function(i, k)
    return lt.ones({i + 20 * k, 3}, {dtype = dtypes[k]})
  end)
  equal(why[1].kind .. " " .. why[2].kind .. " " .. why[3].kind, "dtype size size")
  counted(3, 6, function(x, mode)
    if mode == "double" then return x * 2 elseif mode == "triple" then return x * 3 end
    return x + 0
  end, function(i, k) return lt.ones(i + 20 * k, 3), modes[k] end)
  counted(2, 4, function(x, n) return x:narrow(0, 0, n) end, function(i, k)
    return lt.ones({20, 3}, {dtype = dtypes[k]}), i + k
  end)
  counted(2, 4, function(x) return x.requires_grad and x * 3 or x * 2 end, function(i, k)
    return lt.ones({i + k, 3}, {requires_grad = k == 2})
  end)
  counted(2, 5, function(x, options) return x * options.by end, function(i, k)
    return lt.ones(i + k, 3), {by = k == 1 and i or lt.ones(1)}
  end)
end)

test("past the limit calls go on rightly", function()
  lt.reset()
  local limit = lt.config.recompile_limit
  lt.config.recompile_limit = 2
  local tables = {}
  for i = 1, 5 do tables[i] = {[i] = true} end
  local function f(y, t)
    for k in pairs(t) do y = y * k end
    return y
  end
  local cf = lt.compile(f)
  for i = 1, 2000 do truthy(cf(one, tables[i % 5 + 1]):equal(f(one, tables[i % 5 + 1]))) end
  for i = 1, 9000 do truthy(cf(one, tables[3 + i % 3]):equal(one * (3 + i % 3))) end
  truthy(cf(one, tables[1]):equal(one))
  lt.config.recompile_limit = limit
end)

h.finish()
