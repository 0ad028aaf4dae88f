-- lt.auto: hot frames are compiled by themselves, a prototype a few times at most, and what it costs does not grow with
-- what else lives.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

-- f's results with lt.auto, each step's.
local function auto(f, ...)
  lt.reset()
  lt.auto(true)
  local results = {pcall(f, ...)}
  lt.auto(false)
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2)
end

test("a hot function is compiled", function()
  local function f(x) return (x * 2 + 1):tanh() end
  local x = lt.ones(4)
  local want = f(x)
  auto(function()
    for _ = 1, 400 do truthy(f(x):equal(want)) end
  end)
  equal(#lt.guards(f), 1)
end)

test("a long frame is left alone, whatever its prototype's heat", function()
  local function loop(n)
    local acc = 0
    for i = 1, n do
      local a = lt.tensor({i, 1})
      acc = acc + (a * 2):sum():item()
    end
    return acc
  end
  local want = loop(20000)
  equal(auto(loop, 20000), want)
  truthy(lt.counters().frames.total <= 8, lt.counters().frames.total) -- those that the test is called by
end)

-- Time of CPU: other programs that run at the same time add nothing.
test("what a long frame costs does not grow with the heap", function()
  local function loop(n)
    local acc, x = 0, lt.ones(2)
    for i = 1, n do acc = acc + (x * i):sum():item() end
    return acc
  end
  local heap = {}
  for i = 1, 300000 do heap[i] = {i} end
  local function timed(run)
    local start = os.clock()
    local value = run(loop, 20000)
    return os.clock() - start, value
  end
  timed(function(f, n) return f(n) end)
  local eager, want = timed(function(f, n) return f(n) end)
  local compiled, got = timed(auto)
  equal(got, want)
  truthy(compiled < 2 * eager + 0.3, ("%.3f s instead of %.3f s"):format(compiled, eager))
  equal(#heap, 300000)
end)

test("the first call of a compiled function does not walk the heap", function()
  local warm = lt.compile(function(x) return x * 2 end)
  warm(lt.ones(3))
  local heap = {}
  for i = 1, 1000000 do heap[i] = {i} end
  collectgarbage()
  collectgarbage("stop")
  local start, x = os.clock(), lt.ones(3)
  for i = 1, 40 do
    local f = lt.compile(function(y) return y * 2 end)
    f(x)
  end
  local each = (os.clock() - start) / 40
  collectgarbage("restart")
  truthy(each < 0.003, ("%.1f ms"):format(each * 1e3))
  equal(#heap, 1000000)
end)

test("patch and unpatch walk what was allocated since, once", function()
  local heap = {}
  for i = 1, 1000000 do heap[i] = {i} end
  collectgarbage()
  collectgarbage("stop")
  local x = lt.ones(3)
  lt.patch(function(y) return y end)
  local start = os.clock()
  for i = 1, 40 do
    local function f(y) return y * 2 + 1 end
    lt.patch(f)
    f(x)
    lt.unpatch(f)
  end
  local each = (os.clock() - start) / 40
  collectgarbage("restart")
  truthy(each < 0.003, ("%.1f ms"):format(each * 1e3))
  equal(#heap, 1000000)
end)

test("closures of a hot prototype are patched, ever more seldom", function()
  local function make(k)
    return function(x) return x * k + 1 end
  end
  local x, sum, want = lt.ones(2), 0, 0
  auto(function()
    for i = 1, 4000 do
      local f = make(i % 7)
      for _ = 1, 3 do sum = sum + f(x):sum():item() end
      want = want + 3 * 2 * (i % 7 + 1)
    end
  end)
  equal(sum, want)
  truthy(lt.counters().frames.total < 40, lt.counters().frames.total)
end)

test("frames of a patched function that coroutines hold go on right", function()
  local function f(x, n)
    local acc = x
    for i = 1, n do
      acc = acc * 0.5 + i
      if i % 3 == 0 then coroutine.yield(acc:sum():item()) end
    end
    return acc:sum():item()
  end
  local function run()
    local out, threads = {}, {}
    for round = 1, 120 do
      if round % 10 == 1 then threads[#threads + 1] = coroutine.create(f) end
      for k, co in ipairs(threads) do
        if coroutine.status(co) ~= "dead" then
          local ok, v = coroutine.resume(co, lt.ones(2) * k, 40)
          truthy(ok, v)
          out[#out + 1] = v
        end
      end
      if round % 25 == 0 then collectgarbage() end
    end
    return table.concat(out, " ")
  end
  local want = run()
  equal(auto(run), want)
  equal(run(), want)
end)

test("what the user has unpatched stays so", function()
  local function f(x) return x * 3 end
  local x = lt.ones(2)
  auto(function()
    for _ = 1, 300 do f(x) end
    truthy(lt.counters().stats.unique_graphs >= 1)
    lt.unpatch(f)
    local captured = lt.counters().frames.total
    for _ = 1, 3000 do f(x) end
    equal(lt.counters().frames.total, captured)
  end)
end)

test("captures that do not repay end", function()
  local w = lt.ones(4) * 0.1
  local function policy(s) return (lt.tensor(s) * w):sum():item() end
  local function run()
    local total = 0
    for i = 1, 4000 do total = total + policy({i * 0.1, i, 1, 2}) end
    return total
  end
  local want = run()
  equal(auto(run), want)
  truthy(lt.counters().frames.total <= 14, lt.counters().frames.total)
end)

test("profit = always keeps code that does not repay", function()
  local w = lt.ones(4) * 0.1
  local captures, want = {}, nil
  for _, profit in ipairs {"auto", "always"} do
    local function policy(s) return (lt.tensor(s) * w):sum():item() end
    local function run()
      local total = 0
      for i = 1, 4000 do total = total + policy({i * 0.1, i, 1, 2}) end
      return total
    end
    want = want or run()
    lt.config.profit = profit
    equal(auto(run), want)
    captures[profit] = lt.counters().frames.total
  end
  lt.config.profit = nil
  truthy(captures.always > captures.auto, ("%d captures, not more than %d"):format(captures.always, captures.auto))
end)

test("a portal in a loop that has nothing to run goes", function()
  local function step(x, k)
    local s = 0
    for i = 1, 5000 do s = s + (i * k) % 7 end
    return (x * s):sum()
  end
  local x = lt.ones(4)
  local function run()
    local start, total = os.clock(), 0
    for k = 1, 400 do total = total + step(x, k):item() end
    return os.clock() - start, total
  end
  local eager, want = run()
  local compiled, got = auto(run)
  equal(got, want)
  truthy(compiled < 2 * eager + 0.15, ("%.3f s instead of %.3f s"):format(compiled, eager))
end)

h.finish()
