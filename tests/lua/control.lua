-- Tests lt.cond, while_loop, scan, map, associative_scan: their results, gradients and errors, eager and compiled.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises

-- f eager and compiled on the same arguments, three times each; results are tensors.
local function both(f, ...)
  local cf, results = lt.compile(f), {f(...)}
  for call = 1, 3 do
    local got = {cf(...)}
    equal(#got, #results)
    for i = 1, #got do truthy(got[i]:equal(results[i]), "call " .. call .. ", result " .. i) end
  end
  return unpack(results)
end

test("cond runs one of two functions", function()
  local x = lt.tensor({1, -2, 3})
  local function f(x, p) return lt.cond(p, function(a) return a * 2 end, function(a) return a - 1 end, x) end
  truthy(both(f, x, lt.tensor(true)):equal(x * 2))
  truthy(both(f, x, lt.tensor({false})):equal(x - 1))
  truthy(both(f, x, true):equal(x * 2))
  truthy(both(f, x, lt.tensor(0)):equal(x - 1))
  local a, b = lt.cond(true, function(t) return t.a, {t.b} end, error, {a = x, b = x + 1})
  truthy(a:equal(x) and b[1]:equal(x + 1))
end)

test("while_loop carries values", function()
  local function f(n, x)
    return lt.while_loop(function(i) return i:lt(n) end, function(i, v) return i + 1, {v[1] * 2, at = v.at + i} end,
      lt.tensor(0), {x, at = lt.zeros(2)})
  end
  local i, v = f(5, lt.ones(2))
  equal(i:item(), 5)
  truthy(v[1]:equal(lt.full({2}, 32)) and v.at:equal(lt.full({2}, 10)))
  local function count(n, x)
    return lt.while_loop(function(k) return k:lt(n) end, function(k, y) return k + 1, y * 0.5 + 1 end, lt.tensor(0), x)
  end
  both(count, lt.tensor(7), lt.randn(4))
  both(count, lt.tensor(0), lt.randn(4))
end)

test("scan goes through slices, in both directions, along any dimension", function()
  local function sums(c, x) local n = c + x return n, n * 2 end
  for _, dtype in ipairs {"float32", "float64", "int64"} do
    local x = lt.arange(12, {dtype = dtype}):view(4, 3)
    local from = {dtype = dtype}
    local carry, ys = both(function(x) return lt.scan(sums, lt.zeros({3}, from), x) end, x)
    truthy(carry:equal(x:sum(0)) and ys:equal(x:cumsum(0) * 2))
    carry, ys = both(function(x) return lt.scan(sums, lt.zeros({3}, from), x, {reverse = true}) end, x)
    truthy(carry:equal(x:sum(0)) and ys:equal(x:flip(0):cumsum(0):flip(0) * 2))
    carry, ys = both(function(x) return lt.scan(sums, lt.zeros({4}, from), x, {dim = -1}) end, x)
    truthy(carry:equal(x:sum(1)) and ys:equal((x:cumsum(1) * 2):t()))
  end
  local x = lt.randn(3, 2)
  local carry, ys = lt.scan(function(c, v) return {n = c.n + 1, s = c.s + v.b} end, {n = lt.zeros(2), s = lt.zeros(2)},
    {b = x})
  equal(ys, nil)
  truthy(carry.n:equal(lt.full({2}, 3)) and carry.s:equal(x[0] + x[1] + x[2]))
end)

test("numbers that functions read may change", function()
  lt.reset()
  local w = lt.randn({4}, {requires_grad = true})
  for _, dtype in ipairs {"float32", "float64"} do
    local function loop(xs, decay, most)
      local limit = most * 2 + 0.1
      local c, ys = lt.scan(function(c, x)
        local n = (c * decay + 1 / (x:abs() + decay) - (limit - w) / limit):sin()
        local inner = lt.cond(n:sum():lt(limit), function() return n * most end, function() return n - decay end)
        return inner, n:gt(decay)
      end, xs[0] * 0, xs)
      return c, ys
    end
    local function newton(a, tolerance)
      return lt.while_loop(function(x) return (x * x - a):abs():max():gt(tolerance) end,
        function(x) return x - (x * x - a) / (x * 2) + tolerance * 1e-3 end, a)
    end
    local both_of = {lt.compile(loop, {fullgraph = true}), lt.compile(newton, {fullgraph = true})}
    local before
    for i, scale in ipairs {0.1, 0.3, -2.7, 1e300, 0.7, 11} do
      local xs, a = lt.randn({20, 4}, {dtype = dtype}), lt.rand({3}, {dtype = dtype}) + 0.5
      local c, ys = both_of[1](xs, scale, i / 7)
      local want, want_ys = loop(xs, scale, i / 7)
      truthy(c:equal(want) or c:isnan():any():item() and c:nan_to_num():equal(want:nan_to_num()), i)
      truthy(ys:equal(want_ys), i)
      w.grad = nil
      c:sum():backward()
      local g = w.grad
      w.grad = nil
      want:sum():backward()
      truthy(g:nan_to_num():equal(w.grad:nan_to_num()), i)
      truthy(both_of[2](a, i * 1e-3):equal(newton(a, i * 1e-3)), i)
      if i == 3 then before = lt.counters().stats.unique_graphs end
    end
    equal(lt.counters().stats.unique_graphs, before)
  end
end)

test("functions of a graph may give nil beside tensors", function()
  local function last(xs) return (lt.scan(function(c, x) return (c + x):tanh(), nil end, xs[0], xs)) end
  local function some(x)
    local a, none = lt.cond(x:sum():gt(0), function() return x * 2, nil end, function() return x + 1, nil end)
    return none == nil and a
  end
  both(last, lt.randn(20, 3))
  both(some, lt.randn(3))
  truthy(tostring(lt.explain(last)(lt.randn(20, 3))):find("= scan%("))
  truthy(tostring(lt.explain(some)(lt.randn(3))):find("= cond%("))
end)

test("a segment that ends at its budget within what makes a loop part of the graph", function()
  local before = lt.config.capture_budget_ms
  lt.config.capture_budget_ms = 1  -- some ten ops
  local c, xs = lt.ones(4), lt.arange(80):view(20, 4):float()
  for length = 0, 24 do
    lt.reset()
    local function f(c, xs)
      for _ = 1, length do c = c + 1 end
      return lt.scan(function(c, x) return c * 0.5 + x, c - x end, c, xs)
    end
    local carry, ys = lt.compile(f)(c, xs)
    local want, all = f(c, xs)
    truthy(carry:equal(want) and ys:equal(all), length .. " ops before it")
    truthy(lt.counters().stats.unique_graphs > 0, "the compiler failed")
  end
  lt.config.capture_budget_ms = before
end)

test("an RNN by scan: one graph, the gradients of a loop", function()
  lt.manual_seed(3)
  local w = lt.randn({4, 4}, {requires_grad = true})
  local u = lt.randn({3, 4}, {requires_grad = true})
  local xs, h0 = lt.randn(6, 2, 3), lt.zeros(2, 4)
  local function cell(c, x)
    local n = (c:mm(w) + x:mm(u)):tanh()
    return n, n
  end
  local function loss(xs)
    local last, ys = lt.scan(cell, h0, xs)
    return ys:sum() + last:square():sum()
  end
  local function by_hand(xs)
    local c, ys = h0, {}
    for i = 0, 5 do
      c = cell(c, xs[i])
      ys[#ys + 1] = c
    end
    return lt.stack(ys, 0):sum() + c:square():sum()
  end
  local function gradients(f)
    w.grad, u.grad = nil, nil
    f(xs):backward()
    return w.grad, u.grad
  end
  local gw, gu = gradients(by_hand)
  local compiled = lt.compile(loss, {fullgraph = true})
  for _, f in ipairs {loss, compiled, compiled} do
    local a, b = gradients(f)
    truthy(a:equal(gw) and b:equal(gu))
  end
end)

-- Returns the number of graphs and of breaks of f for these arguments.
local function graphs(f, ...)
  local report = lt.explain(f)(...)
  return report.graph_count, report.graph_break_count
end

test("branches and loops are part of the graph", function()
  local w = lt.randn(3, 3)
  local x = lt.randn(2, 3)
  local function branch(x)
    return lt.cond(x:sum():gt(0), function(a) return a:mm(w), {b = a + 1} end,
      function(a) return a:mm(w) * 2, {b = a - 1} end, x)
  end
  local f = lt.compile(branch, {fullgraph = true})
  for _, s in ipairs {1, -1} do
    local y = x:abs() * s
    local a, b = f(y)
    local c, d = branch(y)
    truthy(a:equal(c) and b.b:equal(d.b))
  end
  local function loop(n, y)
    return lt.while_loop(function(i) return i:lt(n) end, function(i, v) return i + 1, v:mm(w):tanh() end, lt.tensor(0),
      y)
  end
  local g = lt.compile(loop, {fullgraph = true})
  for _, n in ipairs {0, 1, 2, 7, 30} do
    local i, v = g(lt.tensor(n), x)
    local _, want = loop(lt.tensor(n), x)
    truthy(i:item() == n and v:equal(want), n)
  end
  for _, reverse in ipairs {false, true} do
    for _, dim in ipairs {0, 1} do
      local xs = dim == 0 and lt.randn(40, 2, 3) or lt.randn(2, 40, 3)
      local function s(xs)
        return lt.scan(function(c, x)
          local n = (c.h:mm(w) + x):tanh()
          return {h = n}, {n * 2, n:sum(), n:t()}
        end, {h = x}, xs, {dim = dim, reverse = reverse})
      end
      local c, ys = lt.compile(s, {fullgraph = true})(xs)
      local want, wants = s(xs)
      truthy(c.h:equal(want.h))
      for i = 1, 3 do truthy(ys[i]:equal(wants[i]), i) end
    end
  end
  local n, breaks = graphs(loop, lt.tensor(3), x)
  equal(n, 1)
  equal(breaks, 0)
end)

test("control flow within control flow", function()
  local function collatz(n)
    return lt.while_loop(function(n) return n:gt(1) end, function(n, steps)
      local next = lt.cond((n % 2):eq(0), function(n) return n:floor_divide(2) end, function(n) return n * 3 + 1 end, n)
      return next, steps + 1
    end, n, lt.zeros({}, {dtype = "int64"}))
  end
  local f = lt.compile(collatz, {fullgraph = true})
  for _, n in ipairs {1, 6, 27} do
    local _, steps = f(lt.tensor(n, {dtype = "int64"}))
    local _, want = collatz(lt.tensor(n, {dtype = "int64"}))
    equal(steps:item(), want:item())
  end
end)

test("Newton's iteration to a tolerance, and an ODE by steps of the solver's choice", function()
  local function root(a)
    return (lt.while_loop(function(x) return (x * x - a):abs():gt(1e-9) end, function(x) return (x + a / x) / 2 end,
      lt.ones({}, {dtype = "float64"})))
  end
  local f = lt.compile(root, {fullgraph = true})
  for _, a in ipairs {2, 9, 1234} do
    local t = lt.tensor(a, {dtype = "float64"})
    truthy(f(t):equal(root(t)) and math.abs(f(t):item() - math.sqrt(a)) < 1e-8)
  end
  -- y' = -y to time 1: half the step where two half steps differ by more than the tolerance.
  local function decay(y0, tolerance)
    local function body(t, y, h)
      local whole = y - h * y
      local half = y - h / 2 * y
      half = half - h / 2 * half
      return lt.cond((whole - half):abs():max():gt(tolerance), function() return t, y, h / 2 end,
        function() return t + h, half, h * 1.5 end)
    end
    local _, y = lt.while_loop(function(t) return t:lt(1) end, body, lt.zeros({}), y0, lt.full({}, 0.5))
    return y
  end
  local y0, tolerance = lt.tensor({1, 2, 3}), lt.tensor(1e-3)
  truthy(lt.compile(decay, {fullgraph = true})(y0, tolerance):equal(decay(y0, tolerance)))
end)

test("what is no function of the graph is ordinary Lua", function()
  local x = lt.randn(3)
  local seen = 0
  local function effect(x)
    return lt.cond(x:sum():gt(-1e9), function(a) seen = seen + 1 return a * 2 end, function(a) return a end, x)
  end
  local cf = lt.compile(effect)
  for i = 1, 3 do
    truthy(cf(x):equal(x * 2))
    equal(seen, i)
  end
  local kept = {}
  local function grows(x)
    return lt.while_loop(function(i) return i:lt(3) end, function(i) kept[#kept + 1] = 1 return i + 1 end, lt.tensor(0))
  end
  lt.compile(grows)(x)
  equal(#kept, 3)
  local function same(a) return a end
  local function writes(x)
    return lt.cond(x:sum():gt(-1e9), function(a) a:add_(1) return a * 1 end, same, x)
  end
  local a, b = x:clone(), x:clone()
  truthy(lt.compile(writes)(a):equal(writes(b)) and a:equal(b))
  local function draws(x) return lt.cond(x:sum():gt(-1e9), function(a) return a + lt.rand(3) end, same, x) end
  local cd = lt.compile(draws)
  for _ = 1, 2 do
    lt.manual_seed(4)
    local want = draws(x)
    lt.manual_seed(4)
    truthy(cd(x):equal(want))
  end
  local function shapes(x, p) return lt.cond(p, function(a) return a:sum() end, function(a) return a end, x) end
  local cs = lt.compile(shapes)
  truthy(cs(x, lt.tensor(true)):equal(x:sum()) and cs(x, lt.tensor(false)):equal(x))
  raises("cond: g's results: tensor 0 is f32{3} strides {1}, not f32{} strides {}",
    lt.compile(shapes, {fullgraph = true}), x, lt.tensor(true))
end)

test("what is no part of the graph is told with both sides and their lines", function()
  local x, yes = lt.ones(3), lt.tensor(true)
  local line = debug.getinfo(1, "l").currentline
  local function single(a) return a * 2 end
  local function pair(a) return a, {a, last = a + 1} end
  local function nothing() end
  local function double(a) return a:double() end
  local function whole(f) return lt.compile(f, {fullgraph = true}) end
  local function place(name, at) return ("%s (control.lua:%d)"):format(name, line + at) end
  local function cond(f, g)
    return whole(function(x, p) return lt.cond(p, f, g, x) end)
  end
  local f, g = place("f", 1), place("g", 2)
  raises(f .. " gives tensor, but " .. g .. " tensor, {tensor, last = tensor}", cond(single, pair), x, yes)
  raises("strides {1}, not f32{3} strides {1}; " .. f .. ", " .. place("g", 4), cond(single, double), x, yes)
  raises("it gives nothing", cond(single, nothing), x, yes)
  raises(place("body", 2) .. " gives tensor, {tensor, last = tensor}, but it takes tensor", whole(function(x)
    return lt.while_loop(function(v) return v:sum():lt(100) end, pair, x)
  end), x)
  local function first(c, v) return c[1] + v end
  raises("the carry that " .. place("f", 17) .. " gives has 1 tensors, but init has 2", whole(function(x)
    return lt.scan(first, {x, x}, lt.ones(40, 3))
  end), x)
  raises("strides {1}; " .. place("cond", 22) .. ", " .. place("body", 4), whole(function(x)
    return lt.while_loop(function(v) return v:sum():lt(100) end, double, x)
  end), x)
  raises(place("f", 4) .. " gives is float64 of {3}, but that of init", whole(lt.scan), double, x, lt.ones(9, 3))
  local function writes(a) line = line return a end
  raises("it changes what is older than it in " .. place("f", 25) .. ", at control.lua:" .. line + 25, cond(writes,
    single), x, yes)
end)

test("gradients go through cond and while_loop", function()
  local x = lt.tensor({1.5, -2}, {requires_grad = true})
  local function f(x)
    local y = lt.cond(x:sum():gt(0), function(a) return a * 3 end, function(a) return a * a end, x)
    local _, z = lt.while_loop(function(i) return i:lt(3) end, function(i, v) return i + 1, v * x end, lt.tensor(0), y)
    return z:sum()
  end
  local want = lt.grad((x * x * x * x * x):sum(), x)
  truthy(lt.grad(f(x), x):allclose(want))
  local cf = lt.compile(f)
  for _ = 1, 3 do truthy(lt.grad(cf(x), x):equal(lt.grad(f(x), x))) end
end)

test("a scan of another length, and a long map", function()
  local function f(xs)
    local c, ys = lt.scan(function(c, x) return c + x, {c * x, x:sum()} end, lt.zeros(3), xs)
    return c, ys[1], ys[2], lt.map(function(x, k) return x:exp() * k end, xs, 2)
  end
  local cf = lt.compile(f, {fullgraph = true})
  for _, n in ipairs {17, 18, 40, 19, 100, 17} do
    local xs = lt.randn(n, 3)
    local got, want = {cf(xs)}, {f(xs)}
    for i = 1, 4 do truthy(got[i]:equal(want[i]), n) end
  end
  local report = lt.explain(function(xs) return lt.map(function(x) return x:sin() end, xs) end)(lt.randn(500, 3))
  equal(report.graph_count, 1)
  truthy(report.op_count < 10, report)
end)

test("short sequences of many lengths share two graphs", function()
  lt.reset()
  local gru = lt.nn.GRU(3, 4)
  local function f(x)
    gru:zero_grad()
    local y = gru(x)
    y:square():sum():backward()
    return y
  end
  local cf = lt.compile(f)
  for n = 2, 20 do
    local x = lt.randn(n, 2, 3)
    local y = cf(x)
    local g = gru.weight_hh_l0.grad:clone()
    truthy(y:equal(f(x)) and g:equal(gru.weight_hh_l0.grad), n)
  end
  truthy(lt.counters().cache.misses <= 5, lt.counters().cache.misses)
end)

test("results are tensors of their own, or the graph says no", function()
  local function same(x) return x end
  local function branch(x) return (lt.cond(x:sum():gt(0), same, same, x)) end
  local function loop(x)
    local _, y = lt.while_loop(function(i) return i:lt(0) end, function(i, y) return i + 1, y * 2 end, lt.tensor(0), x)
    return y
  end
  local function carry(x) return (lt.scan(function(c, v) return c, v end, x, lt.ones(20, 2))) end
  local function view(x)
    return (lt.while_loop(function(y) return y:sum():lt(3) end, function(y) return y:view(2) + 1 end, x))
  end
  for _, f in ipairs {branch, loop, carry, view} do
    local a, b = lt.ones(2), lt.ones(2)
    f(a):add_(1)
    local cf = lt.compile(f)
    for _ = 1, 2 do
      b:fill_(1)
      cf(b):add_(1)
      truthy(a:equal(b))
    end
    equal(rawequal(f(a), a), rawequal(cf(b), b))
  end
  local function twice(x)
    return lt.cond(x:sum():gt(0), function(a) a = a + 1 return a, a end, function(a) a = a * 2 return a, a end, x)
  end
  for _, f in ipairs {twice, lt.compile(twice)} do
    local a, b = f(lt.ones(2))
    a:add_(1)
    truthy(b:equal(lt.full({2}, 2)))
  end
end)

test("map stacks what f gives", function()
  local x = lt.randn(4, 3)
  local function f(x, k) return lt.map(function(v, k) return v:sum(), {d = v * k} end, x, k) end
  local a, b = f(x, 3)
  truthy(a:equal(lt.stack({x[0]:sum(), x[1]:sum(), x[2]:sum(), x[3]:sum()}, 0)) and b.d:equal(x * 3))
  both(function(x) return lt.map(function(v) return v:softmax(-1) end, x) end, x)
end)

test("associative_scan equals the scan of one element after the other", function()
  for n = 1, 17 do
    local x = lt.randint(-3, 4, {2, n})
    local function f(x, o) return lt.associative_scan(function(a, b) return a + b end, x, 1, o) end
    truthy(both(f, x):equal(x:cumsum(1)), n)
    lt.reset()
    truthy(f(x, {reverse = true}):equal(x:flip(1):cumsum(1):flip(1)), n)
  end
  -- A linear recurrence: (a, b) then (c, d) is (a c, b c + d).
  local a, b = lt.rand(9, {dtype = "float64"}), lt.rand(9, {dtype = "float64"})
  local got = lt.associative_scan(function(l, r) return {a = l.a * r.a, b = l.b * r.a + r.b} end, {a = a, b = b}, -1)
  local y = lt.zeros({}, {dtype = "float64"})
  for i = 0, 8 do
    y = y * a[i] + b[i]
    truthy(got.b[i]:allclose(y))
  end
end)

test("errors name both sides", function()
  local x = lt.zeros(3)
  local function first(c) return c end
  raises("cond: argument 'pred' must be a boolean or a tensor of one element, got number 1", lt.cond, 1, first, first)
  raises("cond: argument 'pred' must have one element, has shape {3}", lt.cond, x, first, first)
  raises("cond: argument 'g' must be a function or a module, got nil", lt.cond, true, first)
  local function always() return true end
  raises(" gives is float64 of {3}, but that of the carried values is float32 of {3}", lt.while_loop, always,
    function(v) return v:double() end, x)
  raises("gives 2 values, but 1 are carried", lt.while_loop, always, function(v) return v, v end, x)
  raises("while_loop: there is nothing to carry", lt.while_loop, first, first)
  raises("while_loop: carried value 1 must be a tensor or a table of tensors, got number 3", lt.while_loop, first,
    first, 3)
  raises(" gives is float32 of {}, but that of init is float32 of {3}", lt.scan, function(c) return c:sum() end, x,
    lt.ones(2, 3))
  raises("scan: tensor 1 of a y that f", lt.scan, function(c, v) return c, v:sum():item() > 3 and v or c[0] end, x,
    lt.arange(6, {dtype = "float32"}):view(2, 3))
  raises("scan: argument 'dim' is 7, but a tensor of argument 'xs' has 2 dimensions", lt.scan, first, x, lt.ones(2, 3),
    {dim = 7})
  raises("scan: argument 'dim' must be a whole number, got string 'a'", lt.scan, first, x, lt.ones(2, 3), {dim = "a"})
  raises("map: argument 'dim' is 0, but a tensor of argument 'xs' has 0 dimensions", lt.map, first, lt.tensor(1))
  raises("associative_scan: argument 'dim' must be a whole number, got number 0.5", lt.associative_scan, first, x, 0.5)
  raises("associative_scan: unknown option 'foo'", lt.associative_scan, first, x, {dim = 0, foo = 3})
  raises(" gives 3 values; a carry and a y are taken", lt.scan, function(c, v) return c, v, v end, x, lt.ones(2, 3))
  raises("scan: argument 'xs' has size 0 along dim 0", lt.scan, first, x, lt.ones(0, 3))
  raises("scan: the tensors of argument 'xs' have sizes 2 and 3 along dim 0", lt.scan, first, x,
    {lt.ones(2), lt.ones(3)})
  raises("scan: unknown option 'reversed'", lt.scan, first, x, lt.ones(2), {reversed = true})
  raises("map: argument 'xs' has no tensors", lt.map, first, {})
  raises("associative_scan: argument 'dim' is 2, but a tensor of argument 'xs' has 1 dimensions", lt.associative_scan,
    first, x, 2)
end)

test("what fails on known elements fails at its turn, where it is reached", function()
  local function seven() return lt.full({1}, 7, {dtype = "int64"}) end
  local function zero() return lt.zeros({}, {dtype = "int64"}) end
  local failing = {
    function(x)
      return lt.cond(lt.arange(3):index_select(0, seven()):gt(0), function(v) return v - 1 end,
        function(v) return v - 2 end, x)
    end,
    function(x)
      return lt.cond(seven():floor_divide(zero()):gt(2), function(v) return v - 1 end, function(v) return v - 2 end, x)
    end,
    function(x)
      return lt.cond(lt.arange(3):take(seven()):gt(0), function(v) return v - 1 end, function(v) return v - 2 end, x)
    end,
    function(x)
      local function test(i) return lt.arange(3):gather(0, (i * 4):view(1)):sum():lt(2) end
      local _, y = lt.while_loop(test, function(i, v) return i + 1, v * 2 end, zero(), x)
      return y
    end,
  }
  for _, fails in ipairs(failing) do
    local function avoided(x) return lt.cond(x:sum():gt(0), function(v) return v + 1 end, fails, x) end
    truthy(both(avoided, lt.ones(3)):equal(lt.full({3}, 2)))
    local function reached(x, seen)
      x:add_(1)
      seen.n = 5
      return fails(x)
    end
    local compiled = lt.compile(reached)
    for _ = 1, 3 do
      local x, seen = lt.ones(3), {}
      local ok, message = pcall(compiled, x, seen)
      local _, eager = pcall(reached, lt.ones(3), {})
      truthy(not ok and x:equal(lt.full({3}, 2)) and seen.n == 5, message)
      equal(message:match(": (%w+_?%w*: .*)"), eager:match(": (%w+_?%w*: .*)"))
    end
  end
end)

test("loops in loops, whose steps are known", function()
  local function nested(depth, steps)
    local within = depth > 1 and nested(depth - 1, steps)
    return function(x)
      local _, y = lt.while_loop(function(i) return i:lt(steps) end,
        function(i, v) return i + 1, within and within(v) or v * 1.01 end, lt.zeros({}, {dtype = "int64"}), x)
      return y
    end
  end
  both(nested(2, 2), lt.ones(3))
  both(nested(4, 7), lt.ones(3))
end)

test("a number that changes beside half types, whose products take it as a float32", function()
  for _, dtype in ipairs {"float16", "bfloat16", "float32", "float64"} do
    local function f(xs, k)
      return (lt.scan(function(c, x)
        local y = c * k + x / k - k
        return y, y:gt(k)
      end, lt.ones(4):to(dtype), xs))
    end
    local compiled = lt.compile(f)
    for i = 1, 6 do
      local xs = lt.arange(80):view(20, 4):mul(0.37):sin():to(dtype)
      truthy(compiled(xs, 0.1 + i / 7):equal(f(xs, 0.1 + i / 7)), dtype)
    end
  end
end)

test("a whole number that bounds a loop is a constant until it varies", function()
  local steps = 3
  local function f(x)
    local _, y = lt.while_loop(function(i) return i:lt(steps) end, function(i, y) return i + 1, y * 0.5 + 1 end,
      lt.tensor(0), x)
    return y
  end
  local g, x = lt.compile(f), lt.randn(4)
  truthy(g(x):equal(f(x)))
  equal(tostring(lt.profile(g)(x)):find("while_loop", 1, true), nil) -- unrolled
  for _, n in ipairs {5, 0, 9, 200, 1, 7} do
    steps = n
    truthy(g(x):equal(f(x)), n)
  end
  equal(lt._report(g).graph_count, 2)
  truthy(tostring(lt.profile(g)(x)):find("while_loop", 1, true))
end)

test("the element of a tensor of the caller's that bounds a loop is a constant until it varies", function()
  local function body(i, x) return i + 1, (x + 2 / x) * 0.5 end
  local function f(x, m)
    local _, y = lt.while_loop(function(i) return i:lt(m) end, body, lt.tensor(0), x)
    return y
  end
  local x, m, g = lt.full({4}, 3), lt.tensor(6), lt.compile(f, {fullgraph = true})
  local function check(m, graphs)
    truthy(g(x, m):equal(f(x, m)))
    equal(lt._report(g).graph_count, graphs)
  end
  check(m, 1)
  check(lt.tensor(6), 1)
  truthy(tostring(lt.guards(g)):find("m:item(): 6", 1, true))
  m:fill_(9)
  check(m, 2)
  for _, steps in ipairs {2, 0, 200, 3.5, 6} do check(lt.tensor(steps), 2) end
  check(lt.tensor({3}), 3) -- another shape

  lt.reset()
  g = lt.compile(f, {fullgraph = true})
  for _, steps in ipairs {200, 2, 300} do check(lt.tensor(steps), 1) end -- too many to unroll

  local writes = lt.compile(function(x, m) return f(x, m:add_(1)) end)
  local a, b = lt.tensor(2), lt.tensor(2)
  for _ = 1, 3 do truthy(writes(x, a):equal(f(x, b:add_(1)))) end
  local steps, views = lt.arange(8), lt.compile(f)
  for k = 0, 7 do truthy(views(x, steps[k]):equal(f(x, steps[k]))) end
end)

test("an element of a complex type bounds a loop as it is: no number stands for it", function()
  for _, type in ipairs {"complex64", "complex128"} do
    local function f(x, m)
      local function goes_on(i) return lt.logical_and(i:ne(m), i:lt(4)) end
      local _, y = lt.while_loop(goes_on, function(i, x) return i + 1, x * 2 + i end, lt.tensor(0), x)
      return y
    end
    local x, g = lt.ones(2), lt.compile(f)
    for _, im in ipairs {1, 0, 1} do
      for _, re in ipairs {3, 2, 5, 0} do
        local m = lt.view_as_complex(lt.tensor({re, im}, {dtype = type == "complex64" and "float32" or "float64"}))
        truthy(g(x, m):equal(f(x, m)), ("%s, %d + %di"):format(type, re, im))
      end
    end
  end
end)

h.finish()
