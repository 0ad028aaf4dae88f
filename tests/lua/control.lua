-- lt.cond, while_loop, scan, map, associative_scan: what they give, their gradients, their errors; eager as compiled.
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
  raises("scan: argument 'xs' has size 0 along dim 0", lt.scan, first, x, lt.ones(0, 3))
  raises("scan: the tensors of xs have sizes 2 and 3 along dim 0", lt.scan, first, x, {lt.ones(2), lt.ones(3)})
  raises("scan: unknown option 'reversed'", lt.scan, first, x, lt.ones(2), {reversed = true})
  raises("map: argument 'xs' has no tensors", lt.map, first, {})
  raises("associative_scan: argument 'dim' is 2, but xs has 1 dimensions", lt.associative_scan, first, x, 2)
end)

h.finish()
