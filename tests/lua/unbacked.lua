-- Tests that data-dependent sizes (x[mask], nonzero, masked_select) are symbols of the graph, which continues.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, breaks, text = h.test, h.equal, h.truthy, h.breaks, h.text

local function randoms(n)
  lt.manual_seed(n)
  return lt.randn(n)
end

-- make()'s function gives what eager code does, call by call, on inputs of several sizes. Returns graphs and breaks.
local function compare(make, inputs)
  lt.reset()
  local eager, compiled = make(), lt.compile(make())
  for i, x in ipairs(inputs) do
    for _ = 1, 2 do
      local want, got = {eager(x)}, {compiled(x)}
      equal(#got, #want, "results")
      for k = 1, #want do equal(text(got[k]), text(want[k]), ("input %d, result %d"):format(i, k)) end
    end
  end
  return lt.counters().stats.unique_graphs, breaks()
end

local several = {randoms(8), randoms(9), randoms(30), randoms(70)}
-- Inputs of which no element, one, all and two elements are selected.
local ends = {lt.full({8}, -1), lt.tensor({1, -1, -1, -1, -1, -1, -1, -1}), lt.full({8}, 2), lt.tensor({1, 2, -1, -1})}

local function one_graph(f, inputs)
  local make = type(f(lt.ones(4))) == "function" and f or function() return f end
  local graphs, broken = compare(make, inputs or several)
  equal(broken, 0, "breaks")
  compare(make, ends)
  return graphs
end

test("a mask reads", function()
  one_graph(function(x) x = x * 2 return x[x:gt(0)] + 1 end)
  one_graph(function(x) x = x * 2 return x[x:gt(0)]:sum() + 1, x:masked_select(x:gt(0)):mean() end)
  one_graph(function(x)
    local y = lt.stack({x * 2, x, -x}, 1)
    return y[x:gt(0)] * 2, y[y:gt(0)]:exp(), y[{x:gt(0), 1}]
  end)
end)

test("positions of elements", function()
  one_graph(function(x) x = x * 2 return x:gt(0):nonzero() + 1 end)
  one_graph(function(x) x = x * 2 return x[lt.where(x:gt(0))[1]] + 1 end)
  one_graph(function(x) x = x * 2 return lt.argwhere(x:gt(0)):sum(), x:gt(0):nonzero {as_tuple = true} end)
end)

test("different elements and counts", function()
  one_graph(function(x)
    local y = (x * 2):round()
    local values, places, counts = lt.unique(y, {return_inverse = true, return_counts = true})
    return values + 1, values[places], counts:double() / 2, lt.unique(y):sum(), lt.unique_consecutive(y) * 2
  end)
  one_graph(function(x)
    local y = (x * 2):abs():long()
    return lt.bincount(y) + 1, lt.bincount(y, x), lt.bincount(y, {minlength = 20}):double()
  end)
end)

test("a mask reads and writes", function()
  one_graph(function(x)
    x = x * 2
    local m = x:gt(0)
    x[m] = x[m] * 2
    return x + 1
  end)
end)

test("several sizes", function()
  one_graph(function(x)
    x = x * 2
    local a, b = x[x:gt(0)], x[x:lt(0)]
    local c = lt.cat {a, b * 2}
    return c, a:sum() / b:numel(), c[c:gt(1)]
  end)
end)

test("sizes are numbers of Lua", function()
  one_graph(function(x)
    x = x * 2
    local y = x[x:gt(0)]
    local n = y:numel()
    return y / n, n, {n + 1, y.shape[1] * 2}, lt.zeros(n, 2) + y:view(n, 1), #y
  end)
  one_graph(function(x)
    x = x * 2
    local y = x[x:gt(0)]
    if y:numel() > 0 then return y + 1 end
    return x
  end)
end)

test("facts are stated", function()
  local function make(states)
    return function(x)
      x = x * 2
      local y = x[x:gt(0)]
      if states then lt.check_is_size(y.shape[1], {min = 2, max = 40}) end
      if y.shape[1] <= 40 then y = y + 1 end
      return y
    end
  end
  local graphs, broken = compare(function() return make(true) end, several)
  equal(broken, 0)
  equal(select(2, compare(function() return make(false) end, {several[4]})), 1)
  lt.reset()
  local f = lt.compile(make(true))
  f(several[3])
  h.raises("check_is_size", f, lt.full({50}, 1))
end)

test("only lt.check_is_size states facts", function()
  local f = assert(loadstring([[
    return function(x)
      local y = x[x:gt(0)]
      if y.shape[1] <= 40 then y = y + 1 end
      return y
    end]], "@my/checks.lua"))()
  equal(select(2, compare(function() return f end, {several[4] * 2})), 1)
end)

test("a train step", function()
  local step = function()
    local w = lt.full({1}, 0.5, {requires_grad = true})
    local opt = lt.optim.SGD({w}, {lr = 0.1, momentum = 0.9})
    return function(x)
      local y = x * w
      local loss = y[x:gt(0)]:pow(2):mean()
      opt:zero_grad()
      loss:backward()
      opt:step()
      return loss:detach(), w:detach():clone()
    end
  end
  local graphs, broken = compare(step, several)
  equal(broken, 0, "breaks")
  compare(step, ends)
end)

test("gradients that leave the function", function()
  local make = function()
    return function(x)
      local w = x:detach():requires_grad_()
      local y = w * 2
      local loss = y[y:gt(0)]:sum()
      loss:backward()
      return w.grad
    end
  end
  compare(make, several)
  local w = lt.full({30}, 0.5, {requires_grad = true})
  compare(function()
    local inner = lt.compile(function(x) local y = x * w return y[x:gt(0)]:exp() end)
    return function(x)
      w.grad = nil
      inner(x):sum():backward()
      return w.grad:clone()
    end
  end, {several[3]})
end)

test("fullgraph holds", function()
  local f = lt.compile(function(x) return x[x:gt(0)] * 2 end, {fullgraph = true})
  for _, x in ipairs(several) do equal(text(f(x)), text(x[x:gt(0)] * 2)) end
end)

local function first(n, most)
  local t = {}
  for i = 1, most do t[i] = i <= n and 3 or -1 end
  return lt.tensor(t)
end

test("there are only 0 or 1 elements at first", function()
  local ops = {
    nonzero = function(x) return x:nonzero() end,
    mask = function(x) return x[x:gt(0)] end,
    masked_select = function(x) return x:masked_select(x:gt(0)) end,
    unique = function(x) return x:unique() end,
    unique_consecutive = function(x) return (lt.unique_consecutive(x)) end,
    counts = function(x) return (select(-1, lt.unique(x, {return_counts = true}))) end,
    bincount = function(x) return lt.bincount(x:long():abs()) end,
    slices = function(x) return (lt.unique(x:view(-1, 1), {dim = 0})) end,
  }
  for name, op in pairs(ops) do
    for _, starts in ipairs {false, true} do
      local f = function(x)
        if starts then x = x * 1 end
        local y = op(x)
        return y, y * 2 + 1, y:numel(), y:dim(), y:stride(), y:is_contiguous(), y:sum(), y.shape[1] == 1
      end
      for _, sizes in ipairs {{0, 0, 1, 1, 2, 3, 7, 0, 1}, {1, 1, 0, 0, 5, 1}, {5, 1, 0, 4, 0, 1}} do
        local inputs = {}
        for i, n in ipairs(sizes) do inputs[i] = first(n - n % 2, n) end
        for i, n in ipairs(sizes) do inputs[#inputs + 1] = first(n, n) end
        compare(function() return f end, inputs)
      end
      if name == "mask" then starts = true end
      lt.reset()
      local g = lt.compile(function(x) return op(starts and x * 1 or x) * 2 end)
      for n = 1, 6 do
        local x = lt.arange(1, n + 1):float()
        equal(text(g(x)), text(op(x) * 2), name)
      end
      equal(breaks(), 0, name)
      local made = lt.counters().stats.unique_graphs
      truthy(made <= 2, name .. ": " .. made .. " graphs")
    end
  end
end)

test("a permutation of an unbacked size", function()
  local function shuffled(x)
    x = x * 2
    local y = x[x:gt(0)]
    return y[lt.randperm(y:size(0))] + 1, lt.randperm(5), lt.rand(2)
  end
  lt.reset()
  local f = lt.compile(shuffled)
  for _, x in ipairs(several) do
    lt.manual_seed(7)
    local want = text {shuffled(x)}
    lt.manual_seed(7)
    equal(text {f(x)}, want)
  end
  equal(breaks(), 0)
end)

test("a permutation has each number once", function()
  for _, n in ipairs {0, 1, 2, 100, 5000} do
    local p = lt.randperm(n)
    truthy(lt.equal(p:sort(), lt.arange(n)), n)
  end
  equal(lt.randperm(3, {dtype = "float32"}).dtype, "float32")
  local out = lt.empty(0, {dtype = "int32"})
  truthy(lt.randperm(4, {out = out}) == out and out.dtype == "int32")
  h.raises("n must not be negative", lt.randperm, -1)
end)

test("repetitions that a tensor tells", function()
  one_graph(function(x)
    local n = (x:abs() * 2):long()
    local y = lt.stack({x, -x}, 1)
    return x:repeat_interleave(n) + 1, y:repeat_interleave(n, 0) * 2, lt.repeat_interleave(n:int()) + 1,
      y:repeat_interleave(lt.tensor({2, 1}, {dtype = "int64"}), 1)
  end)
  local x, n = lt.arange(4):float(), lt.tensor({1, 0, 2, 1}, {dtype = "int64"})
  local graphs, broken = compare(function()
    return function(n) n = n + 0 return x:repeat_interleave(n, {dim = 0, output_size = 4}) + 1 end
  end, {n})
  equal(graphs, 1)
  equal(broken, 0)
end)

test("repetitions that are errors", function()
  local x = lt.arange(3):float()
  local function f(n) n = n + 0 return x:repeat_interleave(n) + 1 end
  local function g(n) n = n + 0 return lt.repeat_interleave(n, {output_size = 4}) + 1 end
  for _, f in ipairs {f, g} do
    lt.reset()
    local compiled = lt.compile(f)
    for _, n in ipairs {{1, 2, 1}, {1, -1, 4}, {2, 2, 1}, {0, 0, 0}, {2 ^ 53, 1, 2}, {1, 3, 0}} do
      n = lt.tensor(n, {dtype = "int64"})
      if n:max():item() < 2 ^ 50 then
        local ok, want = pcall(f, n)
        local compiled_ok, got = pcall(compiled, n)
        equal(compiled_ok, ok)
        equal(ok and text(got) or got, ok and text(want) or want)
      end
    end
  end
end)

test("gradients of repetitions", function()
  compare(function()
    return function(x)
      local w = x:detach():requires_grad_()
      local n = (x:abs() * 2):long()
      local loss = (w * 2):repeat_interleave(n):exp():sum()
      loss:backward()
      return w.grad
    end
  end, several)
end)

test("different slices", function()
  one_graph(function(x)
    local y = lt.stack({x, x * 2, x}, 1):round()
    local rows, places, counts = y:unique {dim = 0, return_inverse = true, return_counts = true}
    local columns, of = y:unique {dim = -1, return_inverse = true}
    return rows + 1, rows[places], counts:double() / 2, columns * 2, of + 1,
      lt.unique_consecutive(y, {dim = 1}) + 1, rows.shape, columns:is_contiguous()
  end)
end)

-- With few steps each step has its own sizes. With many steps the body is a segment that continues behind such a size.
test("a mask reads in a loop", function()
  local function steps(n)
    return function(x)
      x = x * 2
      local total = x:sum()
      for i = 1, n do total = total + x[x:gt(-i)]:sum() * i end
      return total
    end
  end
  one_graph(steps(3))
  lt.reset()
  local f = lt.compile(steps(200))
  for _, x in ipairs(several) do equal(text(f(x)), text(steps(200)(x))) end
  local graphs = lt.counters().stats.unique_graphs
  truthy(graphs <= 6, graphs .. " graphs")
end)

test("a mask reads in the body of a region", function()
  one_graph(function(x)
    return lt.scan(function(c, v)
      local y = c[c:gt(0)]
      return c + y:sum() * v, y:sum()
    end, x * 2, lt.tensor {1, 2, 3})
  end)
end)

test("a break says which number is not known", function()
  lt.reset()
  local f = lt.compile(function(x)
    x = x * 2
    return x[x:gt(0)]:split(2)[1] + 1
  end)
  f(lt.ones(7))
  local b = lt._report(f).break_reasons[1]
  truthy(b.hint:find("nothing says which number n is", 1, true), b.hint)
end)

test("any counts of several tellers fit", function()
  local w = lt.full({64, 3}, 0.1, {requires_grad = true})
  local v = lt.arange(64):float():view(-1, 1) + 1
  local cases = {
    function(x)
      local z = x[x:gt(0)]
      local y = z[z:gt(1)]
      return y * 2
    end,
    function(x)
      w.grad = nil
      local t, keep = x:abs():long() % 3, x:gt(0)
      lt.nn.functional.cross_entropy((w * v)[keep], t[keep]):backward()
      return w.grad
    end,
    function(x)
      local m = x:gt(0)
      return x:masked_select(m) - v:view(-1)[m], x[m] + v:view(-1):masked_select(m)
    end,
  }
  for i, f in ipairs(cases) do
    for _, backend in ipairs {"native", "eager"} do
      lt.reset()
      local c = lt.compile(f, {backend = backend})
      for n = 2, 64 do equal(text(c(first(n, 64))), text(f(first(n, 64))), i .. ": " .. n) end
      equal(breaks(), 0, i)
      equal(lt.counters().cache.lost_sizes, 0, i)
    end
  end
end)

test("sizes that miss break no fullgraph", function()
  lt.reset()
  local f = lt.compile(function(x) x = x * 2 return x[x:gt(0)] + 1 end, {fullgraph = true})
  for round = 1, 3 do
    equal(text(f(several[1])), text((several[1] * 2)[several[1]:gt(0)] + 1))
    for _ = 1, 20 do equal(text(f(ends[1])), text(ends[1]:new_zeros(0))) end
    equal(lt.counters().cache.lost_sizes, 20 * round)
  end
end)

test("sizes that miss often break the graph", function()
  lt.reset()
  local f = lt.compile(function(x) x = x * 2 return x[x:gt(0)] + 1 end)
  f(several[1])
  equal(breaks(), 0)
  for _ = 1, 20 do equal(text(f(ends[1])), text(ends[1]:new_zeros(0))) end
  equal(breaks(), 1)
end)

local function outcome(f, x)
  local r = {pcall(f, x)}
  for i = 2, #r do r[i] = r[1] and text(r[i]) or (tostring(r[i]):gsub("^.-:%d+: ", "")) end
  r[1] = tostring(r[1])
  return table.concat(r, " ")
end

-- Tests conditions that lt.check and assert state for unbacked sizes: one graph for sizes that fit, eager's errors for
-- all others.
local function stated(name, fits, make, most, breaks)
  test(name, function()
    lt.reset()
    local f, g = make(), lt.compile(make())
    local function call(ones)
      local x = lt.cat({lt.ones(ones), lt.zeros(60 - ones)})
      equal(outcome(g, x), outcome(f, x), ones .. " elements")
    end
    for _, ones in ipairs(fits) do call(ones) end
    local made = lt.counters().stats.unique_graphs
    truthy(made <= (most or 1), made .. " graphs")
    local found = {}
    for _, b in ipairs(lt._report(g).break_reasons) do found[#found + 1] = b.reason .. ": " .. b.hint end
    truthy(#found <= (breaks or 0), table.concat(found, "; "))
    for _, ones in ipairs {8, 6, 12, 4, 3, 2, 40, 0, 1, 7, 8} do call(ones) end
  end)
end
local function of(f) return function() return f end end
local function some(x) return x[x:gt(0)] end

stated("lt.check of a bound", {8, 6, 40}, of(function(x)
  local n = some(x):size(0)
  lt.check(n > 5, "few")
  if n >= 4 then return x[{{0, n}}] * 2, n end
  return x
end))
stated("lt.check of both bounds", {8, 3, 19}, of(function(x)
  local y = some(x)
  lt.check(y:size(0) >= 3 and y:size(0) < 20)
  if y:size(0) < 3 then return x end
  return y * 2, lt.ones(20):narrow(0, 0, y:size(0)) + y
end))
stated("lt.check of a remainder", {8, 6, 40}, of(function(x)
  local y = some(x)
  lt.check(y:size(0) % 2 == 0, function() return "odd" end)
  local n = y:size(0)
  if n % 2 == 0 then return y:view(-1, 2) * 2 end
  return y
end))
stated("lt.check of a size", {8, 8}, of(function(x)
  local y = some(x)
  lt.check(y:size(0) == 8, "not eight")
  return y + lt.arange(8)
end))
stated("lt.check that two differ", {8, 6, 40}, of(function(x)
  local y, z = some(x), some(x - 1 + x)
  lt.check(y:size(0) ~= 3)
  lt.check(not (z:size(0) > y:size(0)))
  if y:size(0) == 3 then return x end
  return y[{{0, z:size(0)}}] + z
end))
stated("assert of a bound, with a text", {8, 3, 40}, of(function(x)
  local y = some(x)
  local n = y:size(0)
  local ok = assert(n > 2, "only " .. n)
  if n <= 2 then return x end
  return y * 2, ok
end))
stated("lt.check of a number beyond the likely ones", {40, 36, 44}, of(function(x)
  local y = some(x)
  lt.check(y:size(0) > 35)
  lt.check(y:size(0) % 4 == 0, "not a multiple")
  return y:view(4, -1) * 2
end))
stated("lt.check that never holds", {8, 9}, of(function(x)
  local y = some(x)
  lt.check(y:size(0) > 100, "never")
  return y * 2
end), 1, 2)
stated("lt.check that is replaced", {8, 9}, function()
  local check = lt.check
  return function(x)
    local y = some(x)
    lt.check = function() return true end
    lt.check(y:size(0) > 5, "few")
    lt.check = check
    if y:size(0) > 5 then return y * 2 end
    return y * 3
  end
end, 9, 9)
stated("a condition that is no check's", {8, 9}, of(function(x)
  local y = some(x)
  local many = y:size(0) > 5
  local kind = type(y:size(0) > 5)
  return y * (many and 2 or 3), kind
end), 9, 9)

test("a break says what is not known", function()
  lt.reset()
  local f = lt.compile(function(x)
    local n = some(x):size(0)
    if n % 3 == 1 then return x * 2 end
    return x
  end)
  f(lt.ones(7))
  local b = lt._report(f).break_reasons[1]
  truthy(b.hint:find("n % 3 == 1", 1, true), b.hint)
end)

-- Comparisons with numbers that no size reaches, and with NaN, are Lua's. The size is 5, or 0 and 1.
test("bounds beyond all sizes", function()
  local bounds = {1e300, 2 ^ 63, 2 ^ 64, 2 ^ 53, 2 ^ 53 + 2, 1 / 0, 0 / 0, -0.0, 1.5, -1e300, -2 ^ 63, -2 ^ 53, -1 / 0}
  for _, bound in ipairs(bounds) do
    local function sides(x)
      local n = x[x:gt(0)]:size(0)
      return x * 2, n < bound, n <= bound, n > bound, n >= bound, n == bound, n ~= bound,
             bound < n, bound <= n, bound > n, bound >= n, not (n < bound), not (bound <= n)
    end
    local function double(x)
      local n = x[x:gt(0)]:size(0) * 1e290
      return x, n < bound, n >= bound, n == bound
    end
    local function fraction(x)
      local n = x[x:gt(0)]:size(0) / 3
      return x, n < bound, bound <= n, n == bound
    end
    for _, f in ipairs {sides, double, fraction} do
      for _, x in ipairs {lt.ones(5), lt.ones(1), -lt.ones(5)} do
        equal(h.text({lt.compile(f)(x)}), h.text({f(x)}), tostring(bound))
      end
    end
  end
end)

test("checks of bounds beyond all sizes", function()
  local function outcome(f, x)
    local ok, r = pcall(f, x)
    return ok and h.text({r}) or "raises"
  end
  for _, bound in ipairs {1e300, 2 ^ 63, 2 ^ 53, 0 / 0, -2 ^ 63, 1 / 0} do
    local checks = {
      function(x) local n = x[x:gt(0)]:size(0) lt.check(n < bound, "less") return x * n end,
      function(x) local n = x[x:gt(0)]:size(0) lt.check(n >= bound, "more") return x * n end,
      function(x) local n = x[x:gt(0)]:size(0) assert(n <= bound) return x * n end,
      function(x) local n = x[x:gt(0)]:size(0) assert(bound < n) return x * n end,
      function(x) local n = x[x:gt(0)]:size(0) assert(n ~= bound) return x * n end,
      function(x) local n = x[x:gt(0)]:size(0) assert(n == bound) return x * n end,
    }
    for i, f in ipairs(checks) do
      local g = lt.compile(f)
      for _ = 1, 2 do equal(outcome(g, lt.ones(5)), outcome(f, lt.ones(5)), i .. " " .. bound) end
    end
  end
end)

test("a number that is not equal to itself", function()
  local function f(x)
    local n = x[x:gt(0)]:size(0)
    local zero = n - n
    local nan = zero / zero
    return x * 2, nan == nan, nan ~= nan, nan <= nan, n == n
  end
  equal(h.text({lt.compile(f)(lt.ones(5))}), h.text({f(lt.ones(5))}))
end)

-- A run asserts the condition that an op needs for a size, though the likely size would be an error.
for fact, f in pairs {
  ["n % 2 == 0"] = function(x) return some(x):view(2, -1) end,
  ["n > 5"] = function(x) return some(x):narrow(0, 0, 6) end,
  ["n == 8"] = function(x) return some(x) + x end,
  ["n > 6"] = function(x) return some(x):unfold(0, 7, 1) end,
  ["n > 7"] = function(x) return some(x)[7] end,
} do
  test("an op that is an error unless " .. fact, function()
    for _, hot in ipairs {1, 56} do
      jit.opt.start("hotloop=" .. hot)
      lt.reset()
      local g = lt.compile(f)
      for call, n in ipairs {8, 8, 5, 6, 7, 8, 5, 6, 7, 8} do
        local x = lt.ones(8)
        x[{{n}}] = -1
        local ok, want = pcall(f, x)
        local compiled_ok, got = pcall(g, x)
        equal(compiled_ok, ok, fact)
        if ok then truthy(lt.equal(got, want), fact) else equal(got, want) end
        if call == 2 then equal(breaks() .. " " .. lt.counters().stats.unique_graphs, "0 1") end
      end
    end
    lt.reset()
    local whole = lt.compile(f, {fullgraph = true})
    truthy(lt.equal(whole(lt.ones(8)), f(lt.ones(8))))
    lt.reset()
    local other = lt.compile(function(x) return pcall(f, x) end)
    truthy(other(lt.ones(8)))
  end)
end

test("an error that depends on no size stays one", function()
  lt.reset()
  local f = lt.compile(function(x) return some(x):view(2, -1, -1) end)
  h.raises("view", f, lt.ones(8))
  equal(lt._report(f).break_reasons[1].kind, "error")
end)

h.finish()
