-- Coroutines whose bodies run tensor ops: what lies between yields is compiled, in loops and under calls, and gives
-- what eager code gives.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

-- What three coroutines of the body yield, each resumed with half of what it gave last.
local function drive(body)
  local out = {}
  for _ = 1, 3 do
    local co, x = coroutine.create(body), lt.tensor({1, 2, 3})
    while x and coroutine.status(co) ~= "dead" do
      local ok, v = coroutine.resume(co, x)
      out[#out + 1] = ok and h.text(v) or tostring(v)
      x = ok and v * 0.5
    end
  end
  return table.concat(out, "\n")
end

-- The same compiled and patched; at least so many calls run compiled code, in so many graphs at most.
local function between_yields(body, hits, graphs)
  local want = drive(body)
  for _, wrap in ipairs {lt.compile, lt.patch} do
    lt.reset()
    equal(drive(wrap(body)), want)
    local c = lt.counters()
    truthy(c.cache.hits >= hits, c.cache.hits .. " hits")
    truthy(c.stats.unique_graphs <= graphs, c.stats.unique_graphs .. " graphs")
  end
  lt.unpatch(body)
end

test("straight code between yields", function()
  between_yields(function(x)
    local y = coroutine.yield((x * 2 + 1):tanh())
    local z = coroutine.yield((y * 3 - 1):tanh())
    return (z + 1) * 2
  end, 6, 3)
end)

test("loops that yield", function()
  between_yields(function(x)
    for i = 1, 20 do x = coroutine.yield((x * i + 1):sin()) end
    return x * 2
  end, 55, 2)
  between_yields(function(x)
    local i = 0
    while i < 20 do
      i = i + 1
      x = coroutine.yield((x * 2 + i):sin())
    end
    return x * 2
  end, 55, 3)
end)

test("callees that yield", function()
  between_yields(function(x)
    local function emit(v) return coroutine.yield(v * 2 + 1) end
    for i = 1, 10 do x = emit((x * i):sin()) end
    return x
  end, 25, 2)
  between_yields(function(x)
    local function steps(v, n)
      for i = 1, n do v = coroutine.yield((v + i):cos() * 2) end
      return v
    end
    for _ = 1, 3 do x = steps(x * 2, 5) end
    return x + 1
  end, 45, 4)
end)

test("protected calls between yields", function()
  between_yields(function(x)
    for i = 1, 10 do
      local ok, y = pcall(function(v) return (v * i + 1):sin() end, x)
      x = coroutine.yield(ok and y)
    end
    return x
  end, 25, 2)
end)

test("an error behind a yield", function()
  between_yields(function(x)
    local y = coroutine.yield(x * 2 + 1)
    local z = (y * 3):exp()
    return z:view(7)
  end, 3, 2)
end)

test("a generator's tensors in a compiled loop", function()
  local function generator(n)
    return coroutine.wrap(function() for i = 1, n do coroutine.yield(lt.ones(3) * i) end end)
  end
  local function sum(x, steps)
    for v in steps do x = x + v * 2 end
    return x
  end
  local want = sum(lt.ones(3), generator(4))
  lt.reset()
  local f = lt.compile(sum)
  for _ = 1, 3 do truthy(f(lt.ones(3), generator(4)):equal(want)) end
  truthy(lt.counters().cache.hits >= 8, lt.counters().cache.hits)
end)

h.finish()
