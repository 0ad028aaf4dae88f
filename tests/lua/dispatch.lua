-- Tests points with many entries: each call finds the entry whose guards hold, whatever distinguishes the entries, and
-- fast. LUTRA_TEST_SEED=n runs one random function.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

lt.config.recompile_limit = 5000

local function text_of(v)
  return type(v) == "userdata" and tostring(v.dtype) .. tostring(v) or tostring(v)
end

-- f's results of all calls, compiled as in eager code; from the second round on nothing is captured.
local function check(f, calls, options, about)
  local want = {}
  for i, a in ipairs(calls) do want[i] = text_of(f(unpack(a, 1, a.n))) end
  lt.reset()
  local g = lt.compile(f, options)
  local misses
  for round = 1, 4 do
    if round == 3 then misses = lt.counters().cache.misses end
    for i, a in ipairs(calls) do equal(text_of(g(unpack(a, 1, a.n))), want[i], about) end
  end
  equal(lt.counters().cache.misses, misses, about)
  return lt.counters().stats.unique_graphs
end

local function call(...) return {n = select("#", ...), ...} end

test("sizes", function()
  local calls = {}
  for i = 1, 60 do calls[i] = call(lt.ones(i % 10 + 2, i + 1)) end
  equal(check(function(x) return (x * 2):sum() end, calls, {dynamic = false}), 60)
end)

test("functions, objects, what is in them", function()
  local calls, x = {}, lt.arange(4)
  for i = 1, 40 do
    local scale = lt.tensor(i)
    local object = {inner = {scale = scale, ["k" .. i] = true, f = function(y) return y * i end}}
    calls[i] = call(object, x)
  end
  check(function(o, y)
    for k in pairs(o.inner) do if #k > 5 then y = y + 1 end end
    return o.inner.f(y) * o.inner.scale
  end, calls)
end)

test("an object that is collected is no other", function()
  local x = lt.ones(2)
  local g = lt.compile(function(f, y) return f(y) end)
  for round = 1, 6 do
    for i = 1, 20 do
      local f = assert(loadstring(("return function(y) return y * %d + %d end"):format(i, round)))()
      equal(g(f, x):sum():item(), 2 * (i + round))
    end
    collectgarbage()
  end
end)

-- A function of a few values of any kind, each of which decides something.
local function random_calls(seed)
  math.randomseed(seed)
  local random = math.random
  local meta = {{__index = {kind = 1}}, {__index = {kind = 2}}, {__call = function(_, y) return y - 3 end}}
  local function value()
    local k = random(12)
    if k == 1 then return nil end
    if k == 2 then return random(2) == 1 end
    if k == 3 then return ({0, -0, 1, 2.5, 0 / 0, 1 / 0, -3})[random(7)] end
    if k == 4 then return "s" .. random(12) end
    if k == 5 then return {kind = random(5)} end
    if k == 6 then
      local list = {}
      for i = 1, random(0, 6) do list[i] = i end
      return list
    end
    if k == 7 then return setmetatable({}, meta[random(2)]) end
    if k == 8 then return setmetatable({}, meta[3]) end
    if k == 9 then return assert(loadstring("return function(y) return y + " .. random(9) .. " end"))() end
    if k == 10 then return lt.ones(random(4), random(4)) end
    if k == 11 then return lt.ones(random(5), {dtype = "int64"}) end
    return lt.ones(2, {requires_grad = random(2) == 1})
  end
  local calls, pool = {}, {}
  for i = 1, 30 do pool[i] = {value()} end
  for i = 1, 60 do calls[i] = call(lt.ones(2), pool[random(30)][1], pool[random(30)][1]) end
  return calls
end

local function of_any(x, a, b)
  for _, v in ipairs {a == nil and "nil" or a, b == nil and "nil" or b} do
    local kind = type(v)
    if kind == "boolean" then x = v and x * 2 or x / 2
    elseif kind == "number" then x = v == v and v > 0 and x + 1 or x - 1
    elseif kind == "string" then x = x + #v + (v == "s3" and 7 or 0)
    elseif kind == "function" then x = v(x)
    elseif kind == "table" then
      local m = getmetatable(v)
      if m and m.__call then x = v(x) else x = x * (v.kind or #v) end
    else
      x = x.shape[#x.shape - 1] == v.shape[#v.shape - 1] and x + v:detach():sum() or x * v:dim()
    end
  end
  return x
end

local only = tonumber(os.getenv("LUTRA_TEST_SEED") or "")
test("values of any kind", function()
  for seed = only or 1, only or 20 * h.scale do
    check(of_any, random_calls(seed), {dynamic = false}, "seed " .. seed)
  end
end)

-- Time of CPU, minima: a call among many entries beside one of a few.
test("a call does not ask all entries", function()
  local function fastest(n)
    local calls = {}
    for i = 1, n do calls[i] = lt.ones(i + 1) end
    local g = lt.compile(assert(loadstring("return function(x) return x + 1 end"))(), {dynamic = false})
    for _ = 1, 12 do
      for i = 1, n do g(calls[i]) end
    end
    local best, x = math.huge, calls[1]
    for _ = 1, 20 do
      local start = os.clock()
      for _ = 1, 500 do g(x) end
      best = math.min(best, os.clock() - start)
    end
    return best / 500
  end
  -- Sanitizers weigh the steps of the tree more than the rest of a call. Asking all would take 100 times as long.
  local few, many = fastest(1), fastest(300)
  truthy(many < (h.sanitized and 10 or 2) * few + 1e-6, ("%.2f us instead of %.2f us"):format(many * 1e6, few * 1e6))
end)

-- Past recompile_limit, of calls of which an entry serves one of `served`: how many asked in vain, how many were
-- served, how many could have been; then, of 300 that can all be served, how many are.
local function past_limit(ops, served)
  lt.config.recompile_limit = 8
  lt.reset()
  local body = "return function(x)" .. (" x = x + 1"):rep(ops) .. " return x end"
  local f = lt.compile(assert(loadstring(body))(), {dynamic = false})
  local one, calls = lt.ones(2), {}
  for i = 1, 100 do calls[i] = lt.ones(i + 20) end
  for i = 1, 12 do f(lt.ones(i + 1)) end
  local function go()
    local before, hits = lt.counters().cache, 0
    for i = 1, 2000 do
      local y = i % served == 0 and one or calls[i % 100 + 1]
      equal(f(y).shape[1], y.shape[1])
      if y == one then hits = hits + 1 end
    end
    local after = lt.counters().cache
    return after.misses - before.misses, after.hits - before.hits, hits
  end
  go()
  local misses, hits, all = go()
  local before = lt.counters().cache.hits
  for _ = 1, 300 do f(one) end
  local again = lt.counters().cache.hits - before
  lt.config.recompile_limit = 5000
  return misses, hits, all, again
end

test("past the limit calls that nothing serves rarely ask", function()
  for _, served in ipairs {math.huge, 16, 32, 33, 96} do
    local misses, _, _, again = past_limit(1, served)
    truthy(misses > 20 and misses < 250, ("1 of %g: %d misses"):format(served, misses))
    truthy(again > 200, ("1 of %g: %d hits of 300 afterwards"):format(served, again))
  end
end)

test("past the limit entries that seldom serve are given up, those that pay are not", function()
  for _, case in ipairs {{ops = 1, served = 16, asks = false}, {ops = 20, served = 8, asks = true}} do
    lt.config.recompile_limit = 8
    lt.reset()
    local body = "return function(x)" .. (" x = x + 1"):rep(case.ops) .. " return x end"
    local f, one, calls = lt.compile(assert(loadstring(body))(), {dynamic = false}), lt.ones(2), {}
    for i = 1, 100 do calls[i] = lt.ones(i + 20) end
    for i = 1, 12 do f(lt.ones(i + 1)) end
    for i = 1, 14000 do f(i % case.served == 0 and one or calls[i % 100 + 1]) end
    local before = lt.counters().cache.hits
    for _ = 1, 300 do equal(f(one):sum():item(), 2 * (case.ops + 1)) end
    equal(lt.counters().cache.hits - before, case.asks and 300 or 0)
    lt.config.recompile_limit = 5000
  end
end)

test("past the limit calls are served where that pays", function()
  for _, served in ipairs {1, 2, 3, 8} do
    local _, hits, all = past_limit(20, served)
    equal(hits, all, "1 of " .. served)
  end
end)

-- A function that another frame has gone over to may be too large to take results in slots where the newest one is not.
test("a frame follows to the newest function that takes results as it does", function()
  local verify = lt.config.verify
  lt.config.verify = 1
  local function make(temporaries)
    local lines = {"local yield = ... return function(x, more) local a = x * 2"}
    local function add(text, ...) lines[#lines + 1] = text:format(...) end
    for i = 1, 10 do add("local v%d = %d", i, i) end
    add('local _ = select("#"%s) yield() a = a * 2 + 1', (", 1"):rep(temporaries))
    for i = 1, 10 do add("v%d = x + %d", i, i) end
    add "if more then a = a + 2 yield() end a = a * 3 yield()"
    for i = 1, 10 do add("a = a + v%d", i) end
    add "return a end"
    return assert(loadstring(table.concat(lines, "\n")))(coroutine.yield)
  end
  for temporaries = 208, 220, 2 do
    lt.reset()
    local f = lt.compile(make(temporaries))
    local function start(more)
      local resume = coroutine.wrap(f)
      resume(lt.ones(2), more)
      return resume
    end
    local function complete(more)
      local resume = start(more)
      for _ = 1, 10 do if resume() then return end end
    end
    local first = start(false)
    for _ = 1, 3 do complete(false) end
    local second = start(true)
    complete(true)
    first()
    local runs = lt.counters().verify.calls
    second()
    equal(lt.counters().verify.calls - runs, 1, temporaries .. " temporaries")
  end
  lt.config.verify = verify
end)

test("past the limit large tensors are worth many misses", function()
  lt.config.recompile_limit = 8
  lt.reset()
  local f = lt.compile(function(x, then_) return then_(((x * 2 + 1) * x - 0.5) * x) end)
  local functions, x = {}, lt.ones(30000)
  for i = 1, 64 do functions[i] = assert(loadstring(("return function(y) return y + %d end"):format(i)))() end
  for _ = 1, 3 do
    for i = 1, 12 do f(x, functions[i]) end
  end
  local before = lt.counters().cache.hits
  for i = 1, 12000 do f(x, i % 10 == 0 and functions[2] or functions[13 + i % 50]) end
  local served = lt.counters().cache.hits - before
  truthy(served > 1100, served .. " of 1200 were served")
  before = lt.counters().cache.hits
  for _ = 1, 300 do f(x, functions[2]) end
  equal(lt.counters().cache.hits - before, 300)
  lt.config.recompile_limit = 5000
end)

test("lt.reset revives a function that was given up", function()
  lt.config.recompile_limit = 8
  lt.reset()
  local f = lt.compile(function(x) return x + 1 end, {dynamic = false})
  local calls = {}
  for i = 1, 100 do calls[i] = lt.ones(i + 1) end
  for i = 1, 12 do f(calls[i]) end
  for i = 1, 14000 do f(calls[13 + i % 80]) end
  local before = lt.counters().cache
  for i = 1, 100 do f(calls[i]) end
  equal(lt.counters().cache.misses - before.misses, 0)
  lt.reset()
  for _ = 1, 5 do equal(f(calls[1]):sum():item(), 4) end
  equal(lt.counters().stats.unique_graphs, 1)
  equal(lt.counters().cache.hits, 4)
  lt.config.recompile_limit = 5000
end)

h.finish()
