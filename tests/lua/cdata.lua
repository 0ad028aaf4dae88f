-- Tests that 64-bit numbers which are constants of the program (1LL, 2ULL, 3i) are computed during capture.
local lt = require "lutra"
local h = require "harness"
local bit = require "bit"
local test, equal, breaks, text = h.test, h.equal, h.breaks, h.text

local x = lt.tensor({1.5, -2, 3})

local function one_graph(f, ...)
  lt.reset()
  local cf = lt.compile(f)
  for _ = 1, 3 do
    local want, got = {f(...)}, {cf(...)}
    for i = 1, #want do equal(text(got[i]), text(want[i]), "result " .. i) end
  end
  equal(breaks(), 0, "breaks")
  equal(lt.counters().stats.unique_graphs, 1, "graphs")
end

local mask = 0xffffffffffULL

test("arithmetic of constants", function()
  one_graph(function(x)
    local k = 3LL * 4LL - 1LL
    return x * tonumber(k), k, tonumber(10ULL / 3ULL), -k, k % 5LL, 2LL ^ 3LL, tostring(k), type(k)
  end, x)
  one_graph(function(x, n) return x * tonumber(2LL + n), n * 3LL end, x, 5)
end)

-- Two graphs and no break over a stream of calls; results as eager ones.
local function two_graphs_of_all(f, calls)
  lt.reset()
  local cf = lt.compile(f)
  for i, n in ipairs(calls) do
    local want, got = {f(x, n)}, {cf(x, n)}
    for k = 1, #want do equal(text(got[k]), text(want[k]), ("call %d, result %d"):format(i, k)) end
  end
  equal(breaks(), 0, "breaks")
  equal(lt.counters().stats.unique_graphs, 2, "graphs")
end

test("constants with numbers that change", function()
  local calls = {5, 6, 7, 100, 0, 12, 31}
  two_graphs_of_all(function(x, n) return x * tonumber(6LL + n), 6LL + n end, calls)
  two_graphs_of_all(function(x, n) return x * tonumber(3LL * n - 1LL), -(1LL * n), n - 1LL end, calls)
  two_graphs_of_all(function(x, n)
    return x * (1LL * n == 1LL * n and 2 or 3), (n + 0LL) % 8LL, (n + 16LL) / 4LL
  end, calls)
end)

test("int64_t made of numbers that change", function()
  local ffi = require "ffi"
  local int64 = ffi.typeof "int64_t"
  local calls = {5, 6, 7, 100, 0, 12, 31, -4}
  two_graphs_of_all(function(x, n) return x * tonumber(int64(n) + int64(3)), int64(n) end, calls)
  two_graphs_of_all(function(x, n) return x * tonumber(ffi.cast("int64_t", n) * 2), ffi.cast(int64, n) end, calls)
  two_graphs_of_all(function(x, n) return x * tonumber(ffi.new("int64_t", n)), ffi.new(int64, n) end, calls)
  -- what is no whole number, or none of a double's
  for _, n in ipairs {2.5, -0.5, 2 ^ 60, -2 ^ 62, -0} do
    local function f(x, n) return x * 2, int64(n), 6LL + int64(n) end
    lt.reset()
    local cf = lt.compile(f)
    for _, v in ipairs {1, 2, n, 3, n} do
      local want, got = {f(x, v)}, {cf(x, v)}
      for k = 1, #want do equal(text(got[k]), text(want[k]), v) end
    end
  end
end)

test("bits", function()
  one_graph(function(x)
    local k = bit.bxor(0x123456789LL, 7)
    k = bit.band(bit.rshift(k, 3), mask)
    return x * tonumber(bit.band(k, 255)), k, bit.tohex(k)
  end, x)
  one_graph(function(x, n) return x * tonumber(bit.band(6LL + n, 7)), (n + 1LL) ^ 2LL end, x, 5)
end)

test("comparisons", function()
  one_graph(function(x)
    local k = 7LL
    if k > 3LL and k == 7 and k ~= 8LL and 2 < k and k <= 7ULL then return x * 2 end
    return x * 3
  end, x)
end)

test("a loop over 64 bits", function()
  one_graph(function(x)
    local seed = 42LL
    for i = 1, 4 do
      seed = seed * 6364136223846793005LL + 1442695040888963407LL
      x = x + tonumber(bit.rshift(seed, 60))
    end
    return x, seed
  end, x)
end)

-- The functions are compiled in a state of their own, as eager ones are.
local function compare_states(make, ...)
  lt.reset()
  local eager, compiled = make(), lt.compile(make())
  for call = 1, 6 do
    local want, got = {eager(...)}, {compiled(...)}
    for i = 1, #want do equal(text(got[i]), text(want[i]), ("call %d, result %d"):format(call, i)) end
  end
end

test("a constant is one object", function()
  compare_states(function()
    local memo = {}
    return function(x)
      local n = 0
      memo[1LL] = true
      for _ in pairs(memo) do n = n + 1 end
      return x * 2, n
    end
  end, x)
  compare_states(function()
    local memo = {}
    return function(x)
      local k = 5LL
      if memo[k] then return x * 3, "seen" end
      memo[k] = 1
      return x * 2, "new"
    end
  end, x)
  local function last_one(breaks_there)
    return function()
      local last
      return function(x)
        local k = 5LL
        x = x * 2
        if breaks_there then lt.graph_break() end
        local same = rawequal(k, last)
        last = k
        return x * 2, tostring(same)
      end
    end
  end
  compare_states(last_one(false), x)
  compare_states(last_one(true), x)
end)

test("unsigned integers from outside that change break the graph", function()
  lt.reset()
  local ffi = require "ffi"
  local f = function(x, k) x = x * 2 return x * tonumber(k + 1) end
  local cf = lt.compile(f)
  for i = 1, 20 do equal(text(cf(x, ffi.cast("uint64_t", i))), text(f(x, ffi.cast("uint64_t", i)))) end
  equal(breaks() > 0, true)
  equal(#lt.recompiles(cf) <= 2, true, "recompiles")
end)

-- The first value is a constant, then int64_t are symbols.
local function changes(name, f, most)
  test("int64_t that change: " .. name, function()
    lt.reset()
    local ffi = require "ffi"
    local cf = lt.compile(f)
    local function same(n)
      local k = ffi.new("int64_t", n)
      local want, got = {pcall(f, x, k)}, {pcall(cf, x, k)}
      equal(#got, #want, "results")
      for i = 1, #want do equal(text(got[i]), text(want[i]), ("result %d of %s"):format(i, tostring(k))) end
    end
    for _, n in ipairs {5, 3, 0, 1, 7, 2, 0, 9, 1, 4, 6, 12, 0, 1, 2, 19, 3, 5, 8, 2} do same(n) end
    equal(breaks(), 0, "breaks")
    h.truthy(#lt.recompiles(cf) <= (most or 2), #lt.recompiles(cf) .. " recompiles")
    for _, n in ipairs {-1, -7, 2 ^ 40, 2 ^ 53, -2 ^ 53, 2 ^ 53 + 2, 2 ^ 62, -2 ^ 63, 3, 2 ^ 53, 4} do same(n) end
  end)
end
changes("tonumber", function(x, k) return x * tonumber(k), k end)
changes("sums", function(x, k) return x * tonumber(k + 1LL), k - 3, 5 - k, -k, k + k end)
changes("products", function(x, k) return x * tonumber(k * 3LL), 2 * k, k * k end)
changes("quotients", function(x, k) return x * tonumber(k % 5LL), k / 3LL, (k + 1) % 4 end)
changes("comparisons", function(x, k)
  if k < 100LL and k ~= 200 and 3LL + k <= 300 then return x * 2 end
  return x
end)
changes("an index", function(x, k) return x[tonumber(k % 3LL)] * 2, x[{{nil, tonumber(k) % 3}}] end)
changes("a size", function(x, k) return lt.zeros(math.min(tonumber(k), 20) % 20, 2) + 1 end)
changes("a bound of a loop", function(x, k)
  local y = x * 1
  for i = 1, math.min(tonumber(k), 20) do y = y + i end
  return y
end, 3)  -- which of the two math.min gives is asked
changes("texts", function(x, k) return x * 2, tostring(k), tostring(k + 1), type(k) end)
test("int64_t that change live on as objects", function()
  lt.reset()
  local ffi = require "ffi"
  local function f(x, k)
    local n = k + 1LL
    return x * tonumber(n), k, n, {n, k = k, [n] = true}
  end
  local cf = lt.compile(f)
  for i = 1, 8 do
    local k = ffi.new("int64_t", i)
    local y, same, n, t = cf(x, k)
    equal(text(y), text(x * (i + 1)))
    h.truthy(rawequal(same, k) and rawequal(t.k, k), "the object that came")
    h.truthy(rawequal(t[1], n) and t[n] and not rawequal(n, k), "one new object")
    equal(tostring(n), (i + 1) .. "LL")
    equal(ffi.istype("int64_t", n), true)
  end
  equal(breaks(), 0, "breaks")
end)

-- Integers that calls bring are guarded by their values: another object of the same value runs the same code, another
-- value does not.
local function brings(f, values, graphs)
  lt.reset()
  local cf = lt.compile(f)
  for _ = 1, 3 do
    for i, make in ipairs(values) do
      local want, got = {f(x, make())}, {cf(x, make())}
      equal(#got, #want, "results")
      for k = 1, #want do equal(text(got[k]), text(want[k]), ("result %d of value %d"):format(k, i)) end
    end
  end
  if graphs then
    equal(breaks(), 0, "breaks")
    equal(lt.counters().stats.unique_graphs, graphs, "graphs")
  end
end

local ffi = require "ffi"

test("ffi.istype", function()
  local int64 = ffi.typeof("int64_t")
  local function f(x, v)
    local n = 0
    for _, type in ipairs {"int64_t", "uint64_t", "int"} do n = n * 2 + (ffi.istype(type, v) and 1 or 0) end
    return x * 2, n, ffi.istype(int64, v)
  end
  local values = {5LL, 5ULL, 5, "5", lt.ones(1), {}, print, ffi.new("int", 5), ffi.new("int[2]"), 6LL, 7LL, 8LL, 5ULL}
  lt.reset()
  local cf = lt.compile(f)
  local x = lt.ones(2)
  for round = 1, 2 do
    for i, v in ipairs(values) do equal(text {cf(x, v)}, text {f(x, v)}, round .. ": " .. i) end
    local y, n, is = cf(x, nil)
    equal(n, 0)
    equal(is, false)
  end
  local wrong = lt.compile(function(y) return y * 2, pcall(ffi.istype, "no type", y) end)
  equal(select(2, wrong(x)), false)
end)

test("integers that calls bring", function()
  local function uses(x, k)
    return x * tonumber(k + 1LL), k * 2LL, -k, k % 5LL, k / 3LL, k ^ 2LL, tostring(k), type(k),
      tonumber(bit.band(k, 255)), k == 7LL, k < 8LL, k <= 6, ("%d"):format(tonumber(k))
  end
  brings(uses, {function() return ffi.new("int64_t", 7) end}, 1)
  brings(uses, {function() return ffi.new("uint64_t", 7) end}, 1)
  brings(uses, {function() return ffi.new("int64_t", -7) end, function() return ffi.new("int64_t", 2) * 4 end,
    function() return 7LL end, function() return 0x7fffffffffffffffLL + 0 end})
  brings(uses, {function() return 7LL end, function() return 7ULL end, function() return 7 end,
    function() return -1LL end, function() return 0xffffffffffffffffULL + 0 end})
  brings(function(x, o) return x * tonumber(o.k * 2LL), o.k end, {function() return {k = 3LL + 0} end}, 1)
end)

test("arange of integers that no double holds", function()
  local k = 2LL ^ 53
  local function range(from, to, by) return lt.arange(from, to, by) end
  local function check(f, from, to, by, n)
    local r = f(from, to, by)
    equal(r.dtype, "int64")
    equal(r:numel(), n)
    for i = 0, n - 1 do h.truthy(r:select(0, i):eq(from + i * (by or 1)):item()) end
  end
  local f = lt.compile(range)
  check(f, 3LL, 7LL, 1LL, 4)
  for _, g in ipairs {range, f, range, f} do
    check(g, k, k + 2, 1LL, 2)
    check(g, k + 1, k + 4, 1LL, 3)
    check(g, -k - 1, -k + 1, 1LL, 2)
    check(g, k * 512, k * 512 + 2, 1LL, 2)
    check(g, 0LL, k + 4, k + 1, 2)
    check(g, k + 5, k + 1, -2LL, 2)
    check(g, 5LL, 1LL, -2LL, 2)
    check(g, k, k + 1000, 1LL, 1000)
  end
  equal(lt.arange(k + 1, k + 4, {dtype = "int64"}):numel(), 3)
end)

test("integers that calls bring, beside others", function()
  local i = ffi.new("int64_t[1]", 3)
  local function reference() return ffi.cast("int64_t&", i) end
  local function uses(x, k) return x * tonumber(k) end
  brings(uses, {reference, function() return ffi.new("int32_t", 5) end, function() return ffi.new("double", 1.5) end})
  lt.reset()
  local f = lt.compile(uses)
  for n = 1, 12 do
    i[0] = n
    equal(text(f(x, reference())), text(uses(x, reference())), "a reference to " .. n)
    equal(text(f(x, 2LL * n)), text(uses(x, 2LL * n)), "value " .. n)
  end
  local keys = lt.compile(function(x, k, t) return x * tonumber(k), t[k], rawequal(k, t.k) end)
  for n = 1, 6 do
    local k = ffi.new("int64_t", 4)
    local t = {[k] = n, k = n % 2 == 0 and k or 4LL}
    local y, found, same = keys(x, k, t)
    equal(text(y), text(x * 4), "product")
    equal(found, n, "found by the object")
    equal(same, n % 2 == 0, "the same object")
  end
  local address = lt.compile(function(x, k) return x * tonumber(k), ("%p %5.1p"):format(k, k) end)
  for _ = 1, 4 do
    local k = ffi.new("int64_t", 4)
    equal(select(2, address(x, k)), ("%p %5.1p"):format(k, k), "address")
  end
end)

test("an integer that is computed is another object in each call", function()
  local function computes(x, k)
    local a, b = k + 1LL, 2LL * 3
    return x * 2, a, b, {[a] = b, a}, bit.bor(k, 6), 5LL
  end
  local function kinds(f)
    local objects, numbers = {}, {}
    for _ = 1, 4 do
      local _, a, b, t, c, constant = f(x, ffi.new("int64_t", 3))
      h.truthy(rawequal(t[1], a) and rawequal(t[a], b), "the table's")
      for i, v in ipairs {a, b, c, constant} do
        objects[i] = objects[i] or {}
        objects[i][v] = true
        numbers[#numbers + 1] = tostring(v)
      end
    end
    for i = 1, 4 do
      local n = 0
      for _ in pairs(objects[i]) do n = n + 1 end
      numbers[#numbers + 1] = n
    end
    return table.concat(numbers, " ")
  end
  equal(kinds(lt.compile(computes)), kinds(computes))
end)

test("a number and an integer take turns", function()
  local source = [[return function(x, v, w)
    local item = ({10, 20, 30})[v]
    return x:sum(), v + w, lt.tensor({v + 0, v * 1}), item
  end]]
  local calls = {{-1, "x"}, {0.5, 1}, {3LL, 4294967296}, {0.5, 0.5}, {2ULL, 2}, {0.25, 1}, {0LL, 0.5}, {0 / 0, 1},
    {2, 3LL}, {5LL, 1}, {0.5, 2}}
  for first = 1, #calls do
    local f = loadstring(source)()
    local c = lt.compile(f)
    for i = first, #calls do
      local want, got = {pcall(f, x, unpack(calls[i]))}, {pcall(c, x, unpack(calls[i]))}
      equal(#got, #want)
      for r = 1, want[1] and #want or 1 do equal(text(got[r]), text(want[r]), "result " .. r) end
    end
  end
end)

h.finish()
