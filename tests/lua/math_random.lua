-- Tests math.random in captured frames: it draws the numbers of eager code, the generator's state advances as there,
-- and values that depend on them are guarded.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, breaks = h.test, h.equal, h.truthy, h.breaks

local function text(v)
  if type(v) == "userdata" then return table.concat(v:reshape(-1):totable(), " ") end
  return type(v) == "number" and ("%.17g"):format(v) or tostring(v)
end

-- Returns the results of `calls` calls, and the number drawn after each of them.
local function told(f, calls, x)
  math.randomseed(7)
  local all = {}
  for i = 1, calls do
    for _, v in ipairs {f(x, i)} do all[#all + 1] = text(v) end
    all[#all + 1] = text(math.random())
  end
  return table.concat(all, ", ")
end

-- Returns how many graphs and breaks that took.
local function compare(f, calls)
  local x = lt.tensor({1, 2, 3})
  local want = told(f, calls or 20, x)
  lt.reset()
  equal(told(lt.compile(f), calls or 20, x), want)
  return lt.counters().stats.unique_graphs, breaks()
end

test("a number that is drawn is a number of the graph", function()
  local graphs, broken = compare(function(x) return x * math.random() + math.random(), math.random() end)
  equal(broken, 0)
  equal(graphs, 1)
end)

test("math.randomseed with a number that changes", function()
  local graphs, broken = compare(function(x, i)
    local before = math.random()
    math.randomseed(i)
    local first = math.random(10)
    math.randomseed(i * 2.5 + 1)
    return x * before + first + math.random(), math.random(3)
  end)
  equal(broken, 0)
  equal(graphs, 1)
end)

test("math.randomseed with a constant, without a draw, and twice", function()
  local graphs, broken = compare(function(x)
    math.randomseed(3)
    local y = x * math.random()
    math.randomseed(-1e300)
    math.randomseed(x.shape[1])
    return y
  end)
  equal(broken, 0)
  equal(graphs, 1)
  for _, seed in ipairs {0, -0.0, 1 / 0, 0 / 0, 1e-320, 2 ^ 53} do
    graphs, broken = compare(function(x)
      math.randomseed(seed)
      return x * math.random(), math.random(-5, 5)
    end)
    equal(broken, 0)
  end
end)

test("math.randomseed of text, or in a body", function()
  local _, broken = compare(function(x)
    math.randomseed("7")
    return x * math.random()
  end)
  equal(broken, 1)
  compare(function(x)
    return lt.cond(x:sum():gt(0), function()
      math.randomseed(3)
      return x * math.random()
    end, function() return x end)
  end)
end)

test("with bounds", function()
  local graphs, broken = compare(function(x, i)
    local random = math.random
    return x * random(10) + random(-3, 3), random(5), random(2, i), random(0.5, 2.5), random(0), (x + random(2)):sum()
  end)
  equal(broken, 0)
  truthy(graphs <= 3, graphs)
end)

test("a whole number that is drawn is an index, a bound, a size", function()
  local data = lt.arange(100):float()
  local graphs, broken = compare(function(x)
    local top, at = math.random(0, 4), math.random(0, 90)
    local crop = data:view(10, 10)[{{top, top + 4}, {nil, -1}}]
    return crop * 2, data:narrow(0, at, 8) + 1, data[math.random(100) - 1] * x
  end)
  equal(broken, 0)
  equal(graphs, 1)
  graphs, broken = compare(function(x)
    local n = math.random(2, 9)
    return lt.zeros(n, 3) + x, data[{{nil, n}}]:sum() * x, x:sum() * n
  end)
  equal(broken, 0)
  equal(graphs, 1)
end)

test("a branch on a draw has an entry for each way", function()
  local graphs, broken = compare(function(x)
    x = x * 2
    if math.random() < 0.3 then return x + 1 end
    return x - math.random()
  end, 60)
  equal(broken, 0)
  equal(graphs, 2)
end)

test("ways of several callees are added up where they are too many to be multiplied", function()
  local function augment(x)
    x = x * 2 + 1
    if math.random() < 0.5 then x = (x - 1) * 3 end
    if math.random(2) == 1 then x = (x + 1):exp():log() end
    return x:sin() + x
  end
  local x = lt.tensor({1, 2, 3})
  local function step(y) return (augment(y) + augment(y * 2) * augment(y + 1)):sum() end
  local function run(f)
    math.randomseed(7)
    local all = {}
    for i = 1, 100 do all[i] = text(f(x)) end
    return table.concat(all, " ")
  end
  local want, compiled = run(step), lt.compile(step)
  lt.reset()
  equal(run(compiled), want)
  local made, hits = lt.counters().stats.unique_graphs, lt.counters().cache.hits
  equal(run(compiled), want)
  truthy(made <= 20, made .. " graphs")
  equal(lt.counters().stats.unique_graphs, made)
  truthy(lt.counters().cache.hits - hits >= 500, "hits of entries")  -- three callees, and what stands between them
  equal(lt.counters().graph_break["a function is called whose caller came to its recompile_limit"], 3)
end)

test("draws in loops and callees", function()
  local function noisy(x) return x + math.random() end
  local _, broken = compare(function(x)
    for i = 1, 5 do x = noisy(x) * i end
    return x
  end)
  equal(broken, 0)
  compare(function(x)
    local n = 0
    for i = 1, 100 do n = n + math.random(6) end
    return x * n
  end)
  compare(function(x)
    local list = {10, 20, 30}
    return x * list[math.random(#list)], math.random(3)
  end, 40)
end)

test("a break between draws", function()
  local kept = {}
  compare(function(x)
    x = x * math.random()
    lt.graph_break()
    kept[1] = math.random()
    x = x + kept[1]
    io.write("")
    return x * math.random(), math.random(4)
  end)
end)

test("an error leaves the draws that eager code has made", function()
  compare(function(x, i)
    local ok, why = pcall(function()
      local y = x * math.random()
      if i % 3 == 0 then y = y:view(7) end
      return y
    end)
    return ok, ok and why or tostring(why)
  end)
end)

test("seeds and replaced generators are seen", function()
  compare(function(x, i)
    x = x * math.random()
    if i % 4 == 0 then math.randomseed(i) end
    return x + math.random()
  end)
  local function f(x) return x * math.random() end
  local cf, random = lt.compile(f), math.random
  cf(lt.ones(1))
  math.random = function() return 3 end
  equal(cf(lt.ones(1)):item(), 3)
  math.random = random
  local _, n = pcall(lt.compile(function(x) return x * 2 + math.random({}) end), lt.ones(1))
  truthy(tostring(n):find "number expected", n)
end)

test("control flow of the graph draws as ordinary Lua", function()
  compare(function(x)
    return lt.cond(x:sum():gt(3), function(x) return x * math.random() end, function(x) return x end, x)
  end, 5)
end)

h.finish()
