-- Tests gradients through lt.while_loop, and of branches that read different tensors: they have the bits of eager code
-- and the values of the unrolled program.
local lt = require "lutra"
local h = require "harness"
local same = require "same_gradients"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises
local check, same_bits, reader_in = same.check, same.same_bits, same.reader_in

lt.config.recompile_limit = 1000
lt.manual_seed(5)
local w = lt.randn({4, 4}, {requires_grad = true})
local v = lt.randn({4, 4}, {requires_grad = true})

-- gradients: what check gives. unrolled(x) has no control flow; leaves it does not read have none.
local function like_unrolled(gradients, unrolled, leaves, x)
  for _, leaf in ipairs(leaves) do leaf.grad = nil end
  local loss = unrolled(x)
  truthy(gradients[1]:allclose(loss, {rtol = 1e-5}))
  loss:backward()
  for i, leaf in ipairs(leaves) do
    truthy(gradients[i + 1]:allclose(leaf.grad or lt.zeros_like(leaf), {rtol = 1e-4, atol = 1e-6}), "leaf " .. i)
  end
end

local function steps(n, body, ...)
  local values = {...}
  for _ = 1, n do values = {body(unpack(values))} end
  return unpack(values)
end

test("a loop of any number of steps, none among them", function()
  local x = lt.randn({3, 4}, {requires_grad = true})
  local function body(i, c) return i + 1, (c:mm(w) + x):tanh() * v[0] end
  for _, n in ipairs {0, 1, 2, 3, 7, 20} do
    local function loss(n)
      local _, c = lt.while_loop(function(i) return i:lt(n) end, body, lt.tensor(0), x * 2)
      return c:square():sum() + w:sum()
    end
    local got = check(1, loss, {w, v, x}, lt.tensor(n))
    like_unrolled(got, function()
      local _, c = steps(n, body, lt.tensor(0), x * 2)
      return c:square():sum() + w:sum()
    end, {w, v, x}, x)
  end
end)

test("one graph serves all numbers of steps", function()
  local function loss(x, n)
    w.grad = nil
    local _, c = lt.while_loop(function(i) return i:lt(n) end, function(i, c) return i + 1, c:mm(w):tanh() end,
      lt.tensor(0), x)
    local l = c:sum()
    l:backward()
    return l
  end
  local f = lt.compile(loss, {fullgraph = true})
  for _, n in ipairs {3, 0, 12, 1, 40} do
    local x = lt.randn(2, 4)
    local want = loss(x, lt.tensor(n))
    local g = w.grad
    truthy(same_bits(f(x, lt.tensor(n)), want) and same_bits(w.grad, g), n)
  end
end)

test("a loop of known steps is its steps", function()
  local function f(x, w, first)
    local _, c = lt.while_loop(function(i) return i:lt(4) end, function(i, c)
      return i + 1, lt.cond(i:gt(1), function(c) return (c * w):sin() end, function(c) return c:exp() * -0.5 end, c)
    end, first or lt.tensor(0), x * 2)
    return c
  end
  local x, w = lt.randn({3, 5}, {requires_grad = true}), lt.randn({5}, {requires_grad = true})
  local function gradients(g, first)
    x.grad, w.grad = nil, nil
    local c = g(x, w, first)
    local loss = (c * c):sum()
    loss:backward()
    return c, x.grad, w.grad
  end
  -- The kernels that run: a loop's are in its functions.
  local function launches(g, ...)
    g(...)
    return tostring(lt.profile(g)(...)):find("while_loop", 1, true) ~= nil
  end
  for _, first in ipairs {false, lt.tensor(0), lt.tensor(4)} do
    local compiled = lt.compile(f)
    local want, got = {gradients(f, first or nil)}, {gradients(compiled, first or nil)}
    for k = 1, 3 do truthy(got[k]:equal(want[k]), "result " .. k) end
    -- A tensor that is made on a GPU is not known to the graph: its loop runs.
    local known = not first and lt.get_default_device() == "cpu"
    equal(launches(compiled, x, w, first or nil), not known, "a loop runs")
  end
end)

test("steps that a counter decides are made several at once, and as many as one by one", function()
  local leaf = lt.tensor {1.5, 2, 0.25}
  local function loop(flag, n, x)
    local i, last, c, before = lt.while_loop(function(i, last) return flag(i, last, n) end, function(i, last, c)
      return i + 1, i * 2, (c + x / c) * 0.5, c
    end, lt.tensor(0), lt.tensor(-1), x * 1, x * 2)
    return i, last, c, before
  end
  local flags = {
    function(i, _, n) return i:lt(n) end,
    function(i, _, n) return (n - i):clamp {min = 0} end,                             -- a number, not a bool
    function(i, _, n) return i:lt(n):view(1, 1) end,
    function(i, last, n) return i:lt(n):logical_and(last:lt(n * 2)) end,
    function(i, _, n) return lt.where(i:lt(n), lt.tensor(0 / 0), lt.tensor(0.0)) end, -- NaN is no zero
  }
  for _, shape in ipairs {{3}, {0}, {40, 30}} do
    local x = (shape[1] == 3 and leaf or lt.rand(shape) + 0.5):requires_grad_()
    for _, flag in ipairs(flags) do
      local function step(n)
        x.grad = nil
        local i, last, c, before = loop(flag, n, x)
        local l = c:sum() + before:square():sum()
        l:backward()
        return {i, last, c, before, l, x.grad}
      end
      local function forward(n) return lt.no_grad(function() return {loop(flag, n, x)} end) end
      local compiled, alone = lt.compile(step, {fullgraph = true}), lt.compile(forward)
      for _, n in ipairs {6, 0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 37} do
        local want, got, got_alone = step(lt.tensor(n)), compiled(lt.tensor(n)), alone(lt.tensor(n))
        for k = 1, #want do truthy(same_bits(got[k], want[k]), n .. " steps, value " .. k) end
        for k = 1, 4 do truthy(same_bits(got_alone[k], want[k]), n .. " steps forward, value " .. k) end
      end
    end
  end
end)

test("Newton's iteration has the gradient of the root", function()
  local a = lt.tensor({4, 9, 16, 2}, {requires_grad = true})
  local function root(a)
    local _, x = lt.while_loop(function(last, x) return (last - x):abs():max():gt(1e-6) end,
      function(_, x) return x, (x + a / x) * 0.5 end, a + 1, a)
    return x
  end
  local got = check(1, function(a) return root(a):sum() end, {a}, a)
  truthy(got[1]:allclose(a:sqrt():sum()))
  truthy(got[2]:allclose(0.5 / a:sqrt(), {rtol = 1e-5}))
end)

-- y' = k * cos(y) to time 1. A step whose error is above the tolerance is made again with half of it.
test("an ODE by steps of the solver's choice", function()
  local k = lt.tensor({1.5, -0.5, 3}, {requires_grad = true})
  local y0 = lt.tensor({1, 2, 3}, {requires_grad = true})
  local function slope(y) return k * y:cos() end
  local function solve(y0, tolerance)
    local function body(t, y, h)
      local whole = y + h * slope(y)
      local half = y + h / 2 * slope(y)
      local twice = half + h / 2 * slope(half)
      local err = (whole - twice):abs():max()
      return lt.cond(err:gt(tolerance), function() return t, y, h / 2 end,
        function() return t + h, twice * 2 - whole, lt.minimum(h * 1.5, 1 - (t + h)) end)
    end
    local _, y = lt.while_loop(function(t, _, h) return t:lt(1):logical_and(h:gt(1e-6)) end, body, lt.zeros({}), y0,
      lt.full({}, 0.5))
    return y
  end
  local got = check(1, function(tolerance) return solve(y0, tolerance):square():sum() end, {k, y0}, lt.tensor(1e-3))
  local exact = check(1, function(tolerance) return solve(y0, tolerance):square():sum() end, {k, y0}, lt.tensor(1e-5))
  for i = 1, 3 do truthy(got[i]:allclose(exact[i], {rtol = 2e-2, atol = 1e-2}), i) end
end)

test("a mixture of experts by cond trains as eager does", function()
  local function make()
    lt.manual_seed(1)
    local gate, experts = lt.nn.Linear(6, 2), {lt.nn.Linear(6, 6), lt.nn.Linear(6, 6)}
    local parameters = {}
    for _, m in ipairs {gate, experts[1], experts[2]} do
      parameters[#parameters + 1], parameters[#parameters + 2] = m.weight, m.bias
    end
    local opt = lt.optim.AdamW(parameters, {lr = 1e-2})
    return function(x)
      opt:zero_grad()
      local scores = gate(x):mean(0):softmax(-1)
      local y = lt.cond(scores[0]:gt(scores[1]), function(x) return experts[1](x) * scores[0] end,
        function(x) return experts[2](x):relu() * scores[1] end, x)
      local loss = (y - x):square():mean()
      loss:backward()
      opt:step()
      return loss
    end, parameters
  end
  local eager, of_eager = make()
  local step, of_step = make()
  local compiled = lt.compile(step, {fullgraph = true})
  for i = 1, 12 do
    local x = lt.randn(5, 6) * (i % 2 == 0 and 3 or -3)
    truthy(same_bits(compiled(x), eager(x)), i)
    for k = 1, #of_eager do truthy(same_bits(of_step[k], of_eager[k]), k) end
  end
end)

test("what only the other branch reads has zeros, and what it gives a gradient", function()
  local x = lt.randn(3, 4)
  for _, sign in ipairs {1, -1} do
    local function f(x)
      local a, b = lt.cond((x:square():sum() * sign):gt(0), function(x) return x:mm(w), x * 2 end,
        function(x) return x + 1, x:mm(v) end, x)
      return a:sum() + b:square():sum() + (w * w):sum()
    end
    local got = check(1, f, {w, v}, x)
    truthy(got[2] and got[3])
    local y, z = lt.cond(lt.tensor(sign > 0), function(x) return x:mm(w), x * 2 end,
      function(x) return x + 1, x:mm(v) end, x)
    truthy(y.requires_grad and z.requires_grad)
  end
end)

test("loops and branches within each other", function()
  local xs = lt.randn({18, 2, 4}, {requires_grad = true})
  local function inner(c)
    local _, y = lt.while_loop(function(i, y) return i:lt(3):logical_and(y:abs():sum():lt(40)) end,
      function(i, y)
        return i + 1, y + lt.cond(y:sum():gt(0), function() return y:mm(w) end, function() return y:mm(v) end)
      end, lt.tensor(0), c)
    return y
  end
  check(1, function(xs)
    local c, ys = lt.scan(function(c, x)
      local n = inner(c * 0.25 + x):tanh()
      return n, n
    end, lt.ones(2, 4), xs)
    return c:sum() + ys:square():sum()
  end, {w, v, xs}, xs)
  local short = lt.randn({18, 4}, {requires_grad = true})
  check(1, function(short)
    local _, c = lt.while_loop(function(i) return i:lt(2) end, function(i, c)
      return i + 1, c * 0.5 + lt.scan(function(a, x) return (a * w[1] + x):sin(), nil end, c, short)
    end, lt.tensor(0), lt.ones(4))
    return c:sum()
  end, {w, short}, short)
  check(1, function(short)
    return lt.cond(short:sum():gt(-1e9), function(s) return inner(s) end, function(s) return s:mm(v) end, short):sum()
  end, {w, v, short}, short)
end)

test("what is carried: twice the same, of other layouts, with and without gradients", function()
  local x = lt.randn({4, 4}, {requires_grad = true})
  local function twice(x)
    local _, a, b, c = lt.while_loop(function(i) return i:lt(3) end,
      function(i, a, b, c) return i + 1, b, a * x + w, {t = c.t} end, lt.tensor(0), x, x, {t = (x * 2):t():t()})
    return (a * b):sum() + c.t:sum()
  end
  local function tables(x)
    local _, s = lt.while_loop(function(i) return i:lt(4) end, function(i, s)
      return i + 1, {s.n, h = (s.h:mm(w) * s[1]):tanh(), n = s[1] + 1}
    end, lt.tensor(0), {lt.ones(4), h = x:t():contiguous(), n = lt.ones(4)})
    return s.h:square():sum() + s.n:sum()
  end
  for _, f in ipairs {tables} do check(1, f, {w, x}, x) end
  check(nil, twice, {w, x}, x)
end)

test("hooks, kept gradients, gradients of some, a second backward", function()
  local x = lt.randn({3, 4}, {requires_grad = true})
  local function loop(x)
    local _, c = lt.while_loop(function(i) return i:lt(5) end, function(i, c) return i + 1, (c:mm(w) + x):tanh() end,
      lt.tensor(0), x)
    return c
  end
  local function hooked(x)
    local c = loop(x)
    local seen
    c:register_hook(function(g) seen = g return g * 2 end)
    c:retain_grad()
    local l = c:square():sum()
    l:backward()
    return l, seen, c.grad
  end
  local function run(f)
    w.grad, x.grad = nil, nil
    local out = {f(x)}
    out[4], out[5] = w.grad, x.grad
    return out
  end
  local want, got = run(hooked), run(lt.compile(hooked))
  for i = 1, 5 do truthy(same_bits(got[i], want[i]), i) end
  local function some(x) return lt.grad(loop(x):sum(), x) end
  truthy(same_bits(lt.compile(some)(x), some(x)))
  for _, f in ipairs {loop, lt.compile(loop)} do
    local c = f(x):sum()
    c:backward()
    raises("a second time", c.backward, c)
  end
end)

test("a gradient of a gradient of a loop", function()
  local x = lt.rand({4}, {requires_grad = true})
  local function loop(x)
    local _, c = lt.while_loop(function(i) return i:lt(4) end, function(i, c) return i + 1, (c * x + w[0]):sin() end,
      lt.tensor(0), x)
    return c
  end
  local function second(f)
    local g = lt.grad(f(x):sum(), x, {create_graph = true})
    return g, lt.grad(g:square():sum(), x), lt.grad(f(x):sum(), w)
  end
  local a, b, c = second(loop)
  for _, got in ipairs {{second(lt.compile(loop))}, {lt.compile(second)(loop)}} do
    truthy(same_bits(got[1], a) and got[2]:allclose(b, {rtol = 1e-4}) and same_bits(got[3], c))
  end
end)

test("a kept gradient by what a loop only reads", function()
  local weight = lt.ones(3):requires_grad_()
  local function f(x)
    local _, y = lt.while_loop(function(k) return k:lt(2) end, function(k, y) return k + 1, y * weight end,
      lt.tensor(0), x)
    return lt.grad(y:sum(), weight, {create_graph = true})
  end
  local g = lt.compile(f)(lt.ones(3))
  truthy(g.requires_grad and same_bits(g, f(lt.ones(3))))
end)

-- The backward of later code has given a sum: what each step, or the branch, gives is added to that, one by one.
test("a gradient goes on through compiled control flow from what eager code behind it has given", function()
  local xs = lt.randn(7, 4)
  local kinds = {
    function(x)
      local _, c = lt.while_loop(function(i) return i:lt(5) end, function(i, c) return i + 1, c:mm(w) end, lt.tensor(0),
        x)
      return c
    end,
    function(x) return (lt.scan(function(c, y) return c:mm(w) * 0.5 + y, nil end, x, x:expand(20, 3, 4))) end,
    function(x)
      return lt.cond(x:sum():gt(-100), function(x) return x:mm(w):tanh():mm(w) end, function(x) return x * 1 end, x)
    end,
  }
  for _, dtype in ipairs {"float32", "bfloat16"} do
    local w0, x0 = w, lt.randn({3, 4})
    w = w0:detach():to(dtype):requires_grad_()
    for kind, f in ipairs(kinds) do
      local function gradient(f)
        w.grad = nil
        local loss = f(x0:to(dtype)):square():sum()
        loss = loss + xs:to(dtype):mm(w):square():sum()
        loss:backward()
        return w.grad
      end
      truthy(same_bits(gradient(lt.compile(f)), gradient(f)), dtype .. ", kind " .. kind)
    end
    w = w0
  end
end)

test("what was written since is told with the op in the body that reads it, as eager code does", function()
  local xs = lt.randn(20, 3)
  local bodies = {
    mul = function(c, a) return c * a end,
    exp = function(c, a) return (c * 0.1 + a):exp() end,
    mm = function(c, a) return c * a:view(1, 3):matmul(a:view(3, 1)):tanh():view(1) + c:sin() end,
    cond = function(c, a)
      return lt.cond(c:sum():gt(-1e9), function() return c + (a * 2):sigmoid() * a:cos() end,
        function() return c - a end)
    end,
  }
  local loops = {
    whiles = function(body, x, a)
      local _, c = lt.while_loop(function(i) return i:lt(xs[0][0] * 0 + 20) end, function(i, c)
        return i + 1, body(c, a)
      end, lt.tensor(0), x * 1)
      return c
    end,
    scans = function(body, x, a) return (lt.scan(function(c, s) return body(c, a) * s, c end, x * 1, xs)) end,
    conds = function(body, x, a) return lt.cond(x:sum():gt(1e9), function() return x * 1 end, body, x, a) end,
  }
  for name, body in pairs(bodies) do
    for kind, loop in pairs(loops) do
      for _, what in ipairs {"within", "outside", "whole"} do
        lt.reset()
        local function run(compile)
          local x = lt.tensor({0.5, -1, 2}, {requires_grad = true})
          local a = x * 2
          local f = compile(function(x, a)
            local y = loop(body, x, a)
            if what ~= "outside" then a:add_(1) end
            if what == "whole" then y:sum():backward() end
            return y
          end)
          local y = f(x, a)
          if what == "outside" then a:add_(1) end
          if what ~= "whole" then y:sum():backward() end
        end
        local eager, e = pcall(run, function(f) return f end)
        local compiled, c = pcall(run, lt.compile)
        local about = ("%s, %s, %s: %s\n%s"):format(name, kind, what, tostring(e), tostring(c))
        -- A compiled while_loop may make its steps again, so it reads all that its body does.
        local made_again = name == "exp" and kind == "whiles" and what ~= "whole"
        equal(compiled, eager and not made_again, about)
        if not eager then equal(reader_in(c), reader_in(e), about) end
      end
    end
  end
end)

test("what a branch in a loop reads may be written since, where no step took it", function()
  local function positive(s, f, g) return lt.cond(s:sum():gt(0), f, g) end
  local cells = {
    function(c, s, u, w) return positive(s, function() return c * w end, function() return c * u end) end,
    function(c, s, u, w) return positive(s, function() return c * w end, function() return c * (u * c):exp() end) end,
    function(c, s, u, w)
      return positive(s, function() return c * w end, function()
        return lt.cond(s[0]:lt(-5), function() return c - w end, function() return c * u end)
      end)
    end,
    function(c, s, u, w)
      return positive(-s, function() return c * u end, function() return c * w end) + (lt.while_loop(function(i)
        return i:lt(s[0] * 0 + 3)
      end, function(i) return i + 1 end, lt.tensor(0)) * 0)
    end,
    function(c, s, u, w) return positive(s, function() return c * w end, function() return c * 2 end) * u end,
  }
  local loops = {
    function(cell, x, xs, u, w) return (lt.scan(function(c, s) return cell(c, s, u, w), c:sum() end, x * 1, xs)) end,
    function(cell, x, xs, u, w)
      local _, c = lt.while_loop(function(i) return i:lt(xs[0][0] * 0 + xs:size(0)) end, function(i, c)
        return i + 1, cell(c, xs:index_select(0, i:long():view(1)):view(3), u, w)
      end, lt.tensor(0), x * 1)
      return c
    end,
  }
  for number, cell in ipairs(cells) do
    for case, negative in ipairs {-1, 0, 7, 19, -1, 0, 7, 19, 35} do -- 32 steps of a while_loop have places
      for _, within in ipairs {true, false} do
        lt.reset()
        local loop = loops[case > 4 and 2 or 1]
        local function run(compile)
          local x, w = lt.ones({3}, {requires_grad = true}), lt.full({3}, 0.9, {requires_grad = true})
          local xs, u = lt.ones(negative == 35 and 40 or 20, 3), lt.full({3}, 2) * x
          if negative >= 0 then xs[negative] = -1 end
          local f = compile(function(x, xs, u, w)
            local c = loop(cell, x, xs, u, w)
            if within then u:add_(1) end
            return c
          end)
          local y = f(x, xs, u, w)
          if not within then u:add_(1) end
          y:sum():backward()
          return x.grad, w.grad
        end
        local about = ("cell %d, case %d, %s"):format(number, case, tostring(within))
        local eager, a, b = pcall(run, function(f) return f end)
        local compiled, c, d = pcall(run, lt.compile)
        equal(eager, number < 5 and negative < 0, about .. tostring(a))
        equal(compiled, eager, about .. ": " .. tostring(c))
        if eager then
          truthy(same_bits(a, c) and same_bits(b, d), about)
        else
          equal(reader_in(c), reader_in(a), about)
        end
      end
    end
  end
end)

h.finish()
