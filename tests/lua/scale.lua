-- Tests programs of any size: chains and shared expressions of numbers, chains of ops, views, tables; capture costs.
local h = require "harness"
local test, equal, truthy, deep = h.test, h.equal, h.truthy, h.deep
local scale = h.scale

-- f eagerly and compiled, twice: the same numbers, bit for bit.
local function same(f, ...)
  local want = f(...):totable()
  local compiled = lt.compile(f)
  for _ = 1, 2 do deep(compiled(...):totable(), want) end
  return compiled
end

local function seconds(f)
  local start = os.clock()
  f()
  return os.clock() - start
end

test("a sum of 20,000 terms", function()
  local f = function(x, k)
    local s = 0
    for i = 1, 20000 do s = s + i * k end
    return x * s
  end
  local compiled = same(f, lt.ones(2), 2)
  equal(compiled(lt.ones(2), 3):totable()[1], f(lt.ones(2), 3):totable()[1])
  truthy(#tostring(lt.guards(compiled)) < 20000, "the text of guards")
  truthy(#tostring(lt.explain(f)(lt.ones(2), 2)) < 4e6, "the text of the graph")
end)

test("numbers that are used twice at each step", function()
  local logistic = function(x, r)
    local p = 0.3
    for _ = 1, 300 do p = r * p * (1 - p) end
    return x * p
  end
  same(logistic, lt.ones(1), 3.7)
  local fibonacci = function(x, k)
    local a, b = k, k
    for _ = 1, 100 do a, b = b, a + b end
    return x * b
  end
  same(fibonacci, lt.ones(1), 1.5)
  local asked = function(x, k)
    local p = k
    for _ = 1, 60 do
      p = p * p + p
      if p > 1e30 then p = p / 1e30 end
    end
    return x * p
  end
  local compiled = same(asked, lt.ones(1, {dtype = "float64"}), 0.5)
  truthy(#tostring(lt.guards(compiled)) < 60000, "the text of guards")
end)

test("sizes that are used twice at each step", function()
  local f = function(x)
    local a, b = x.shape[1], 1
    for _ = 1, 40 do a, b = b, a + b end
    return x * b
  end
  local compiled = lt.compile(f, {dynamic = true})
  for n = 2, 5 do deep(compiled(lt.ones(n)):totable(), f(lt.ones(n)):totable()) end
end)

test("15,000 ops in a chain", function()
  same(function(x)
    for i = 1, 15000 do x = x + i % 3 end
    return x
  end, lt.ones(2))
end)

test("a chain of ops and its backward", function()
  local function step(w, n)
    w.grad = nil
    local x = w
    for i = 1, n do x = (x * 0.999):tanh() + 0.01 end
    x:sum():backward()
    return w.grad
  end
  for _, n in ipairs {100, 2000} do
    local w = lt.tensor({0.5, -1, 2}, {requires_grad = true})
    local want = step(w, n):totable()
    local compiled = lt.compile(step)
    deep(compiled(w, n):totable(), want)
    deep(compiled(w, n):totable(), want)
  end
end)

test("the time of a compile grows with its ops", function()
  local function once(n)
    return seconds(function()
      local f = lt.compile(function(x)
        for i = 1, n do x = x * 0.5 + i end
        return x
      end)
      f(lt.ones(2))
    end)
  end
  once(100)
  local small, large = once(1000), once(8000)
  truthy(large < 30 * small + 0.2, ("1,000 steps %.3f s, 8,000 steps %.3f s"):format(small, large))
end)

test("the time of a backward through parts of a tensor grows with their number", function()
  local forms = {
    select = function(x) local s = 0 for i = 0, x.shape[1] - 1 do s = s + x[i] * i end return s end,
    unbind = function(x) local s = 0 for i, p in ipairs(x:unbind()) do s = s + p * i end return s end,
    columns = function(x) local s = 0 for i, p in ipairs(x:t():unbind(1)) do s = s + p * i end return s end,
    split = function(x) local s = 0 for i, p in ipairs(x:split(1)) do s = s + p * i end return s end,
  }
  for name, form in pairs(forms) do
    local function once(n)
      local loss = form(lt.ones(n, 64, {requires_grad = true})):sum()
      return seconds(function() loss:backward() end)
    end
    once(100)
    local small, large = once(500), once(4000)
    truthy(large < 20 * small + 0.05 * h.patience,
      ("%s: 500 parts %.3f s, 4,000 parts %.3f s"):format(name, small, large))
    local function compiled(n)
      lt.reset()  -- a loop that has come round other numbers of times is not unrolled
      local f, x = lt.compile(function(x) return form(x):sum() end), lt.ones(n, 64, {requires_grad = true})
      f(x):backward()
      local loss = f(x)
      return seconds(function() loss:backward() end)
    end
    small, large = compiled(200), compiled(1600)
    truthy(large < 20 * small + 0.002 * h.patience,
      ("%s, compiled: 200 parts %.4f s, 1,600 parts %.4f s"):format(name, small, large))
  end
end)

test("a chain of views", function()
  same(function(x)
    for _ = 1, 10001 do x = x:t() end
    return x + 1
  end, lt.arange(6):view(2, 3))
  same(function(x)
    local y = x * 2
    for _ = 1, 5001 do y = y:t() end
    return y + 1
  end, lt.arange(6):view(2, 3))
  -- A view is made again after a write to what it is a view of.
  same(function(x)
    local y = x * 2
    local v = y
    for _ = 1, 4000 do v = v:t() end
    y:add_(1)
    return v + 1
  end, lt.arange(6):view(2, 3))
end)

test("ops that only a part of a join reads", function()
  same(function(x, y)
    for i = 1, 2000 do x = x + i end
    return lt.cat {x, y}
  end, lt.ones(2), lt.ones(3))
end)

test("a loop over a list that is too long to be unrolled is one segment", function()
  local list = {}
  for i = 1, 16000 do list[i] = i end
  local function f(list, x)
    local s = x
    for _, v in ipairs(list) do s = s + v end
    return s
  end
  local g, x = lt.compile(f), lt.ones(4)
  local want = f(list, x)
  for _ = 1, 2 do truthy(g(list, x):equal(want), "the sum") end
  truthy(#lt.guards(g) <= 2, #lt.guards(g) .. " entries")
end)

test("an optimiser of many parameters", function()
  local function seconds(n)
    local p = {}
    for i = 1, n do p[i] = lt.ones(1, {requires_grad = true}) end
    local opt = lt.optim.SGD(p, {lr = 0.1})
    local step = lt.compile(function()
      local sum = 0
      for i = 1, n do sum = sum + p[i] end
      opt:zero_grad()
      sum:sum():backward()
      opt:step()
    end)
    local start = os.clock()
    step()
    return os.clock() - start
  end
  seconds(10)
  local small, large = seconds(100), seconds(400)
  truthy(large < 8 * small + 0.2, ("400 parameters %.3f s, 100 %.3f s:"):format(large, small))
end)

test("copies of copies", function()
  local f = lt.compile(function(x)
    for _ = 1, 8000 do x = x:clone() end
    return x + 1
  end)
  local start = os.clock()
  equal(f(lt.ones(2)):sum():item(), 4)
  truthy(os.clock() - start < 10, "8,000 copies took " .. os.clock() - start .. " s:")
end)

test("as many combinations as there is memory for", function()
  equal(lt.combinations(lt.arange(20000), 20000):equal(lt.arange(20000):view(1, -1)), true)
  equal(lt.combinations(lt.ones(1), 20000, true).shape[2], 20000)
  equal(lt.combinations(lt.ones(0), 2, true).shape[1], 0)
  equal(lt.combinations(lt.ones(3), 4).shape[1], 0)
  local ok, message = pcall(lt.combinations, lt.arange(200), 100)
  truthy(not ok and message:find("combinations: 100 of 200 are too many", 1, true), tostring(message))
end)

test("few iterations of an outermost loop, each of which takes long", function()
  local f
  local function check(height, width)
    local x = lt.rand(1, 2, height, width)
    local h, w = height - 1, width - 1
    local eager = lt.im2col(x, {2, 2})
    equal(f(x):equal(eager), true)
    local y = eager:view(2, 2, 2, h, w)
    for i = 0, 1 do
      for j = 0, 1 do
        equal(y:select(1, i):select(1, j):equal(x[0]:narrow(1, i, h):narrow(2, j, w)), true)
      end
    end
  end
  local isa = lt.config.isa
  for _, other in ipairs {isa, "interp"} do
    lt.config.isa = other
    f = lt.compile(function(x) return lt.im2col(x, {2, 2}) end)
    check(730, 740)
  end
  lt.config.isa = isa
  check(750, 730)
end)

test("few long rows that lie apart", function()
  local rows = lt.rand(2, 2 ^ 22 + 8):narrow(1, 3, 2 ^ 22 + 2)
  equal((rows * 2):equal(lt.stack({rows[0] * 2, rows[1] * 2})), true)
  local kept = rows:clone()
  equal(rows:mul_(3):equal(kept * 3), true)
end)

-- The last write stays, for any number of threads.
test("long writes that overlap themselves", function()
  local n, threads = 2 ^ 16, lt.get_num_threads()
  local src = (lt.arange(2 * 64 * n) % 251):to("uint8"):view(2, 64, n)
  local function copied(s, outer, size, stride)
    local b = lt.zeros(outer * (n + 64), {dtype = "uint8"})
    b:as_strided(size, stride, 0):copy_(s)
    return b
  end
  local function last_of(rows)
    local kept = {}
    for i, row in ipairs(rows) do
      for k, v in ipairs(row) do kept[i + 2 * (k - 1)] = v end
    end
    return kept
  end
  local function check(f)
    for t = 1, 2 do
      lt.set_num_threads(t)
      for _ = 1, 3 do
        local apart = f(src, 2, {2, 64, n}, {n + 64, 1, 1}):view(2, n + 64)
        equal(apart:narrow(1, 0, 63):equal(src:select(2, 0):narrow(1, 0, 63)), true)
        equal(apart:narrow(1, 63, n):equal(src:select(1, 63)), true)
        local one = f(src[0], 1, {64, n}, {1, 1})
        equal(one:narrow(0, 0, 63):equal(src[0]:select(1, 0):narrow(0, 0, 63)), true)
        equal(one:narrow(0, 63, n):equal(src[0][63]), true)
        -- The order is that of the indices, not that of the strides.
        local few = src[0]:narrow(0, 0, 40):narrow(1, 0, 64)
        deep(f(few, 1, {40, 64}, {1, 2}):narrow(0, 0, 166):totable(), last_of(few:totable()))
      end
    end
    lt.set_num_threads(threads)
  end
  check(copied)
  check(lt.compile(copied))
  check(function(s, outer, size, stride)
    return lt.zeros(outer * (n + 64), {dtype = "uint8"}):as_strided_scatter(s, size, stride, 0)
  end)
  local x = lt.arange(6)
  x:as_strided({2, 4}, {2, 1}, 0):mul_(10)
  equal(x:equal(lt.tensor {0, 10, 20, 30, 40, 50}), true)
end)

test("a list of 5,000 tables as a result", function()
  local f = lt.compile(function(x)
    local list
    for i = 1, 5000 do list = {next = list, value = i} end
    return list, x + 1
  end)
  for _ = 1, 2 do
    local list = f(lt.ones(1))
    local n = 0
    while list do
      equal(list.value, 5000 - n)
      list, n = list.next, n + 1
    end
    equal(n, 5000)
  end
end)

test("a list of 2,000 tables as an argument", function()
  local list
  for i = 1, 2000 do list = {next = list, value = i} end
  local f = lt.compile(function(x, l)
    local s = 0
    while l do s, l = s + l.value, l.next end
    return x * s
  end)
  equal(f(lt.ones(1), list):item(), 2001000)
  list.next.next.value = 0
  equal(f(lt.ones(1), list):item(), 2001000 - 1998)
  truthy(#tostring(lt.guards(f)) < 4e6)
end)

-- -- what capture may cost

local function breaks(f, ...)
  lt.reset()
  local compiled = lt.compile(f)
  local result = compiled(...)
  local reasons = {}
  for reason in pairs(lt.counters().graph_break) do reasons[#reasons + 1] = reason end
  return result, table.concat(reasons, "; ")
end

test("a segment of too many ops ends with a graph break that says so", function()
  local f = function(x)
    x = x + 1 x = x + 1 x = x + 1 x = x + 1 x = x + 1 x = x + 1 x = x + 1 x = x + 1 x = x + 1 x = x + 1 x = x + 1
    x = x * 2 x = x * 2 x = x * 2 x = x * 2 x = x * 2
    return x
  end
  local before = lt.config.capture_budget_ms
  equal(before, 2000)
  lt.config.capture_budget_ms = 1
  local ok, why = pcall(function()
    local got, reasons = breaks(f, lt.ones(2))
    deep(got:totable(), f(lt.ones(2)):totable())
    truthy(reasons:find("the segment is too long", 1, true), reasons)
    local report = lt.explain(f)(lt.ones(2))
    truthy(report.break_reasons[1].hint:find("capture_budget_ms", 1, true), report.break_reasons[1].hint)
  end)
  lt.config.capture_budget_ms = before
  truthy(ok, why)
end)

test("work of builtins counts", function()
  local f = function(x, n)
    local q = {}
    for i = 1, n do q[i] = i end
    local s = 0
    for _ = 1, n do s = s + table.remove(q, 1) end
    return x * s
  end
  local n = 2500
  local got
  local took = seconds(function() got = breaks(f, lt.ones(1), n) end)
  equal(got:item(), n * (n + 1) / 2)
  truthy(took < 30, ("%.1f s"):format(took))
end)

test("a backward that makes a segment too large has one of its own", function()
  local before = lt.config.capture_budget_ms
  lt.config.capture_budget_ms = 10  -- 100 ops
  local ok, why = pcall(function()
    local function step(w)
      w.grad = nil
      local x = w
      for i = 1, 30 do x = (x * 0.999):tanh() + 0.01 end
      x:sum():backward()
      return w.grad
    end
    local w = lt.tensor({0.5, -1, 2}, {requires_grad = true})
    local want = step(w):totable()
    local got, reasons = breaks(step, w)
    deep(got:totable(), want)
    truthy(reasons:find("too long", 1, true), reasons)
  end)
  lt.config.capture_budget_ms = before
  truthy(ok, why)
end)

-- -- random chains: eager = compiled, bit for bit

test("random expressions of numbers", function()
  local seed = tonumber(os.getenv("LUTRA_TEST_SEED")) or 1
  local programs = math.max(4, math.floor(12 * scale))
  for program = seed, seed + programs - 1 do
    local state = program * 7919 % 2147483647
    local function random(n)
      state = state * 48271 % 2147483647
      return state % n + 1
    end
    local length = ({100, 1000, 10000})[random(3)]
    local lines = {"local x, a, b, n = ...", "local v = {a, b, n, x.shape[1], 0.5, -3}", "local s = 0", "local m = #v"}
    local forms = {
      "v[%d] = v[%d] + v[%d]", "v[%d] = v[%d] - v[%d]", "v[%d] = v[%d] * v[%d]", "v[%d] = v[%d] / (v[%d] + 2)",
      "v[%d] = v[%d] %% 7 + v[%d]", "v[%d] = -v[%d] * 0.5 + v[%d]", "v[%d] = math.floor(v[%d] / 3) + v[%d]",
      "if v[%d] > 1e6 then v[%d] = v[%d] / 1e9 end", "v[%d] = math.abs(v[%d]) ^ 0.5 - v[%d]",
    }
    lines[#lines + 1] = ("for i = 1, %d do"):format(length / 100)
    for _ = 1, 100 do
      local form = forms[random(#forms)]
      local into, p, q = random(6), random(6), random(6)
      lines[#lines + 1] = form:format(into, p, q)
      if random(10) == 1 then
        lines[#lines + 1] = ("if not (math.abs(v[%d]) < 1e9) then v[%d] = %d end"):format(into, into, random(9))
      end
    end
    lines[#lines + 1] = "end"
    lines[#lines + 1] = "return x * v[1] + v[2], v[3], v[4], v[5], v[6]"
    local text = table.concat(lines, "\n")
    local f = assert(loadstring(text, "=random"))
    local compiled = lt.compile(f, {dynamic = program % 2 == 0})
    for _, given in ipairs {{3, 0.25, -1.5, 7}, {4, 0.25, -1.5, 7}, {3, -0.0, 1e10, 2}} do
      local x = lt.ones(given[1], {dtype = "float64"})
      local want, got = {f(x, given[2], given[3], given[4])}, {compiled(x, given[2], given[3], given[4])}
      local function bits(list)
        local out = {}
        for _, v in ipairs(list[1]:totable()) do out[#out + 1] = ("%.17g"):format(v) end
        for i = 2, 5 do out[#out + 1] = ("%.17g"):format(list[i]) end
        return table.concat(out, " ")
      end
      equal(bits(got), bits(want), ("seed %d"):format(program))
    end
  end
end)

h.finish()
