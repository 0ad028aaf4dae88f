-- Tests lt.auto: it compiles hot frames without a request, and a prototype only a few times. Its cost does not grow
-- with the number of other live objects.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

lt.config.async = false -- compiled code is to run at once

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
  lt.config.profit = "always" -- a capture takes as long as all these calls
  auto(function()
    for _ = 1, 400 do truthy(f(x):equal(want)) end
  end)
  lt.config.profit = nil
  truthy(lt.counters().cache.hits > 100, lt.counters().cache.hits) -- f's own code, or that of the loop around it
end)

-- The rounds so far do not pay for a capture. Only with the rounds that are left does the loop pay for it.
test("a loop that counts pays for a capture with the rounds that it has left", function()
  local function loop(x)
    for i = 1, 1e8 do
      x = (x * 0.5 + i):sin()
      if i == 3000 then return x end
    end
  end
  local x = lt.ones(4)
  local want = loop(x)
  truthy(auto(loop, x):equal(want))
  truthy(lt.counters().cache.hits > 2000, lt.counters().cache.hits)
end)

test("a long frame is captured a few times at most", function()
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
  truthy(lt.counters().frames.total <= 16, lt.counters().frames.total) -- those that the test is called by, too
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
  lt.config.profit = "always" -- whatever a capture costs
  auto(function()
    for i = 1, 4000 do
      local f = make(i % 7)
      for _ = 1, 3 do sum = sum + f(x):sum():item() end
      want = want + 3 * 2 * (i % 7 + 1)
    end
  end)
  lt.config.profit = nil
  equal(sum, want)
  truthy(lt.counters().cache.hits > 1000, lt.counters().cache.hits)
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
  lt.config.profit = "always" -- whatever a capture costs
  auto(function()
    for _ = 1, 300 do f(x) end
    lt.config.profit = nil
    truthy(lt.counters().stats.unique_graphs >= 1)
    lt.unpatch(f)
    local dump, captured = string.dump(f), lt.counters().frames.total
    for _ = 1, 3000 do f(x) end
    truthy(lt.counters().frames.total <= captured + 1, "this loop itself, which calls f")
    equal(string.dump(f), dump)
  end)
end)

-- Called from C, so that no loop around it takes it in.
local function often(times, f) string.gsub(("x"):rep(times), ".", f) end

-- The second closure of a prototype runs the stub where its portals are left out, as in what lt.checkpoint runs again.
test("a frame of a stub is not taken for one of the patched bytecode", function()
  local seed = 1
  local function random(n)
    seed = (seed * 1103515245 + 12345) % 2147483648
    return math.floor(seed / 65536) % n + 1
  end
  local names = {"sin_", "neg_", "tanh_", "exp_", "abs_", "cos_"}
  local list = table.concat(names, ", ")
  local functions = {}
  for i, name in ipairs(names) do functions[i] = lt.ones(1)[name] end
  local function maker()
    local lines = {"local " .. list .. " = ... return function() return function(x, n) local y = x * 1"}
    for i = 1, random(6) do lines[#lines + 1] = ("local p%d = %d"):format(i, i) end
    lines[#lines + 1] = "for i = 1, n do"
    for _ = 1, 6 + random(10) do lines[#lines + 1] = names[random(#names)] .. "(y)" end
    lines[#lines + 1] = "end return y end end"
    return loadstring(table.concat(lines, "\n"))(unpack(functions))
  end
  local x, w = lt.ones(3), lt.ones(3, {requires_grad = true})
  lt.unpatch(lt.patch(lt.checkpoint))
  lt.config.profit = "always"
  for variant = 1, 30 do
    local make = maker()
    local a, b = make(), make()
    local want = a(x, 9)
    local function first() truthy(lt.allclose(a(x, 9), want), variant) end
    local function again() truthy(lt.allclose(lt.checkpoint(b, w, 9), want), variant) end
    lt.unpatch(lt.patch(first))
    lt.unpatch(lt.patch(again))
    lt.auto {threshold = 1}
    often(60, first)
    often(60, again)
    lt.auto(false)
  end
  lt.config.profit = nil
end)

test("the loop of a function that the user has unpatched or disabled is not entered", function()
  lt.config.profit = "always"
  for name, leave in pairs {unpatch = function(f) lt.unpatch(lt.patch(f)) end, disable = lt.disable} do
    local function f(x)
      for _ = 1, 200 do x = (x * 1.01 + 1):sin() end
      return x
    end
    local function drive() f(lt.ones(3)) end
    leave(f)
    lt.unpatch(lt.patch(drive))
    local dump = string.dump(f)
    auto(often, 5, drive)
    equal(string.dump(f), dump)
    local before = lt.counters().cache.hits
    f(lt.ones(3))
    equal(lt.counters().cache.hits, before, name)
    truthy(before < 20, before .. " calls of portals: " .. name)
  end
  lt.config.profit = nil
end)

-- Disabled: no compiled frame takes in the calls that are counted.
test("lt.patch takes back what the user has unpatched", lt.disable(function()
  local function f(x) return x * 3 + 1 end
  local x = lt.ones(2)
  lt.unpatch(lt.patch(f))
  lt.patch(f)
  f(x)
  local before = lt.counters().cache.hits
  truthy(f(x):equal(x * 3 + 1))
  equal(lt.counters().cache.hits, before + 1)
  lt.unpatch(f)
end))

-- A chunk's own loop, as scripts have it.
local function chunk(text) return assert(loadstring("local lt, out = ... " .. text .. " return out", "=chunk")) end

-- Runs the chunk with lt.auto, whatever it costs; its results are those without. Returns how many calls ran compiled
-- code.
local function entered(text)
  text = "lt.manual_seed(1) " .. text
  local want = chunk(text)(lt, {})
  lt.config.profit = "always"
  local got = auto(chunk(text), lt, {})
  lt.config.profit = nil
  equal(table.concat(got, " "), table.concat(want, " "))
  return lt.counters().cache.hits, lt.counters().frames.total
end

test("the loop of a frame that runs is entered at its head", function()
  local hits, captures = entered [[
    local w = lt.ones(4)
    local last
    for i = 1, 600 do
      local x = (w * i):tanh()
      last = (x + w):relu()
      w = w + last * 0.001
    end
    out[1] = last:sum():item()]]
  truthy(hits > 500, hits)
  truthy(captures <= 6, captures)
end)

test("loops of all kinds, and what is around them", function()
  local heads = {
    "for i = 1, 600 do", "for i = 600, 1, -1 do", "for i = 0.5, 300, 0.5 do",
    "local i = 0 while i < 600 do i = i + 1", "local t = {} for i = 1, 600 do t[i] = i end for _, i in ipairs(t) do",
    "local t = {} for i = 1, 600 do t[i] = i end for i in pairs(t) do",
    "local function list(n, i) if i < n then return i + 1 end end for i in list, 600, 0 do",
    "for e = 1, 30 do for i = 1, 20 do",
  }
  for _, head in ipairs(heads) do
    local tail = head:find "for e" and " end end" or " end"
    local hits = entered(([[
      local w, acc, seen = lt.ones(4), 0, {}
      local function count(v) acc = acc + v return acc end
      %s
        w = (w * 0.5 + i):sin()
        local v = i
        if i %% 100 == 0 then seen[#seen + 1] = function() v = v + 1 return v + acc end end
        if i %% 7 == 3 then count(1) end
      %s
      out[1], out[2] = w:sum():item(), acc
      for _, f in ipairs(seen) do out[#out + 1] = f() end]]):format(head, tail))
    truthy(hits > (head:find "for e" and 20 or 300), ("%s: %d"):format(head, hits)) -- that inner loop is unrolled
  end
end)

test("a function that is called once, in a coroutine, is entered, too", function()
  local hits = entered [[
    local function train(n)
      local w = lt.ones(4)
      for i = 1, n do
        local ok, y = pcall(function(x) return (x * 2):tanh() end, w)
        w = y + w * 0.25
        if i % 100 == 0 then coroutine.yield(w:sum():item()) end
      end
      return w:sum():item()
    end
    local co = coroutine.create(train)
    while coroutine.status(co) ~= "dead" do
      local ok, v = coroutine.resume(co, 900)
      out[#out + 1] = v
    end]]
  truthy(hits > 500, hits)
end)

-- The callers are compiled, and so take in what they call, the loop, too.
test("the loop of a callee is entered at its head, however it is called", function()
  local callers = {
    pcall = function(f, x, n) local ok, y = pcall(f, x, n) truthy(ok, y) return y end,
    xpcall = function(f, x, n) local ok, y = xpcall(f, debug.traceback, x, n) truthy(ok, y) return y end,
    call = function(f, x, n) local y = f(x, n) return y end,
    deep = function(f, x, n)
      local function inner(...) local ok, y = pcall(f, ...) truthy(ok, y) return y * 1 end
      return inner(x, n) * 1
    end,
    ["tail call"] = function(f, x, n) return f(x, n) end,
  }
  for name, call in pairs(callers) do
    local function loop(x, n)
      for i = 1, n do x = ((x * 0.5 + i):sin() + 1):relu() * 2 end
      return x
    end
    local function warm(x, n) return x + n end
    local x = lt.ones(4)
    local want, before = loop(x, 600), nil
    lt.config.profit = "always"
    auto(function()
      often(300, function() call(warm, x, 1) end)
      before = lt.counters()
      truthy(call(loop, x, 600):equal(want), name)
    end)
    lt.config.profit = nil
    local hits = lt.counters().cache.hits - before.cache.hits
    local ops = lt.counters().stats.calls_captured - before.stats.calls_captured
    truthy(hits > 500, ("%s: %d calls, %d ops"):format(name, hits, ops))
    truthy(ops < 200, ("%s: %d ops"):format(name, ops))
  end
end)

test("the loops of closures of one prototype are entered, each at its only call", function()
  local function make(k)
    return function(x, n)
      for i = 1, n do x = ((x * 0.5 + i):sin() + k):relu() * 2 end
      return x
    end
  end
  local x, wants = lt.ones(4), {}
  for k = 1, 4 do wants[k] = make(k)(x, 600) end
  lt.config.profit = "always"
  local before, last
  auto(function()
    for k = 1, 4 do
      if k == 4 then before = lt.counters().cache.hits end
      often(1, function() last = make(k)(x, 600) end)
      truthy(last:equal(wants[k]), k)
    end
  end)
  lt.config.profit = nil
  local hits = lt.counters().cache.hits - before
  truthy(hits > 200, hits)
end)

test("a loop of layers is part of the loop around it", function()
  local hits, captures = entered [[
    local layers = {}
    for i = 1, 6 do layers[i] = lt.nn.Linear(4, 4) end
    local opt = lt.optim.SGD(lt.nn.Sequential(unpack(layers)):parameters(), {lr = 0.01})
    local data = lt.ones(2, 4)
    for step = 1, 200 do
      local x = data
      for _, layer in ipairs(layers) do x = layer(x):tanh() end
      local loss = (x * x):sum()
      opt:zero_grad() loss:backward() opt:step()
      if step % 50 == 0 then out[#out + 1] = loss:item() end
    end]]
  truthy(hits > 100 and hits < 250, hits)
  truthy(captures < 30, captures)
end)

test("an error in a loop that was entered names its line and variable", function()
  local text = [[
    local w, t = lt.ones(2), {}
    for i = 1, 500 do
      w = w * 0.5 + i
      if i == 450 then t = nil end
      out[1] = t.x
    end]]
  local _, want = pcall(chunk(text), lt, {})
  local _, got = pcall(auto, chunk(text), lt, {})
  equal(got, want)
  truthy(tostring(want):find "chunk:5: attempt to index local 't'", want)
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
  local hits, want = {}, nil
  for _, profit in ipairs {"auto", "always"} do
    local run = chunk [[
      local w, total, policies = lt.ones(4) * 0.1, 0, {}
      for k = 1, 8 do
        policies[k] = loadstring("local lt, w = ... "
          .. "return function(s) return (lt.tensor(s) * w):sum():item() end")(lt, w)
      end
      for i = 1, 4000 do total = total + policies[i % 8 + 1] {i * 0.1, i, 1, 2} end
      out[1] = total]]
    want = want or run(lt, {})[1]
    lt.config.profit = profit
    equal(auto(run, lt, {})[1], want)
    hits[profit] = lt.counters().cache.hits
  end
  lt.config.profit = nil
  truthy(hits.always > hits.auto, ("%d calls, not more than %d"):format(hits.always, hits.auto))
end)

-- Calls f for so many seconds of CPU, or until it says so.
local function busy(seconds, f)
  local start = os.clock()
  repeat
    for _ = 1, 20 do
      if f() then return true end
    end
  until os.clock() - start > seconds
end

test("a capture waits until a small part of the time pays for it", function()
  local function f(x) return (x * 2 + 1):tanh() end
  local x = lt.ones(4)
  auto(function()
    busy(0.03, function() f(x) end)
    equal(lt.counters().frames.total, 0, "captures of a short program")
    truthy(busy(20, function()
      f(x)
      return lt.counters().cache.hits > 0
    end), "a long one is compiled")
  end)
end)

test("a capture that is too dear now is given up, and made later", function()
  local function long(lines)
    local text = {"return function(x)"}
    for i = 1, lines do text[#text + 1] = "x = (x + 1):relu()" end
    text[#text + 1] = "return x end"
    return assert(loadstring(table.concat(text, "\n")))()
  end
  local x, lines, later = lt.ones(4), 10, nil
  repeat -- so many lines that a capture takes a little too long, on each machine another number
    lines = math.floor(lines * 1.5)
    local f = long(lines)
    local want = f(x)
    auto(function()
      local frames, stats
      truthy(busy(20, function()
        f(x)
        frames, stats = lt.counters().frames, lt.counters().stats
        return frames.total > frames.ok or stats.unique_graphs > 0
      end), "a capture is tried")
      if stats.unique_graphs > 0 then return end -- it took not too long
      truthy(f(x):equal(want))
      equal(next(lt.counters().graph_break), nil, "breaks")
      later = busy(100, function()
        truthy(f(x):equal(want))
        return lt.counters().stats.unique_graphs > 0
      end)
      truthy(later, lines .. " lines are captured later")
      truthy(f(x):equal(want))
    end)
  until later
end)

test("after lt.reset what lt.auto has patched waits until it is hot again", function()
  local function f(x) return (x * 2 + 1):tanh() end
  local x = lt.ones(4)
  auto(function()
    truthy(busy(20, function()
      f(x)
      return lt.counters().cache.hits > 0
    end))
    lt.reset()
    for _ = 1, 8 do f(x) end
    equal(lt.counters().cache.misses, 0, "calls of portals")
  end)
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

test("under stress LuaJIT compiles long loops with calls", function()
  if not jit.status() then return end
  local info = require("jit.util").traceinfo
  local function step(s, i) return s + i % 8 end
  local loops = 0
  local function count(what, trace) loops = loops + (what == "stop" and info(trace).linktype == "loop" and 1 or 0) end
  lt.config.stress = "capture"
  local s = 0
  for i = 1, 100 do s = step(s, i) end
  jit.attach(count, "trace")
  for i = 1, 2e6 do s = step(s, i) end
  jit.attach(count)
  lt.config.stress = nil
  truthy(loops > 0)
end)

test("under stress a function that comes late is captured", function()
  local function step(s, i) return s + i % 8 end
  lt.reset()
  lt.config.stress = "capture"
  local s = 0
  for i = 1, 1e5 do s = step(s, i) end
  local function late(x) return x + 1 end
  local x = lt.ones(3)
  for _ = 1, 2e5 do late(x) end
  lt.config.stress = nil
  truthy(lt.counters().stats.unique_graphs > 0)
end)

h.finish()
