-- Tests backwards outside of compiled functions in parts: the work that they leave to the engine, the engine's work
-- when a part fails, and the numbers of nodes that become symbols.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal
local backwards = require "backwards"
local compare, same, leaf = backwards.compare, backwards.same, backwards.leaf

same("a hook with effects writes to the gradient that another leaf was given", 1, 3, function(see)
  local a, b, n = leaf(4), leaf(4), 0
  b:register_hook(function(g)
    n = n + 1
    g:mul_(2)
  end)
  for _ = 1, 4 do
    a.grad, b.grad = nil, nil
    (a + b):sin():sum():backward()
    see(n, a.grad, b.grad)
  end
end)

same("a hook with effects keeps the gradient that another leaf was given", 1, 3, function(see)
  local a, b, c, kept = leaf(4), leaf(4), leaf(4), {}
  b:register_hook(function(g) kept[#kept + 1] = g end)
  for _ = 1, 4 do
    a.grad, b.grad, c.grad = nil, nil, nil
    (a + b + c):sin():sum():backward()
    a.grad:mul_(3)
    c.grad:mul_(5)
    see(a.grad, b.grad, c.grad, kept[#kept])
  end
end)

same("an op that fails on its data", 2, 7, function(see)
  local w, index = leaf(4), nil
  for i = 1, 5 do
    w.grad = nil
    index = lt.tensor(i == 4 and {0, 1, 2, 9} or {3, 1, 2, 0}, {dtype = "int64"})
    local p = w:sin()
    p:register_hook(function(g) return g:index_select(0, index) end)
    local q = p:exp()
    q:retain_grad()
    local loss = q:sum()
    for _ = 1, 2 do
      see(pcall(loss.backward, loss))
      see(q.grad, w.grad)
    end
  end
end)

same("starts and indices that change", 3, 36, function(see)
  local w = leaf(40, 3)
  local function each(f)
    for i = 2, 14 do
      w.grad = nil
      f(i):sin():sum():backward()
      see(w.grad)
    end
  end
  each(function(i) return w:narrow(0, i, 5) end)
  each(function(i) return w[i] end)
  each(function(i) return w:narrow(0, 3, i):t() end)
end)

same("sizes of tensors that are not there, and a start", 1, 9, function(see)
  for i = 2, 11 do
    local w = lt.ones(7 * i, 3):requires_grad_()
    w:narrow(0, i, 2 * i):sum():backward()
    see(w.grad)
  end
end)

test("an input of compiled code was freed and is not read", function()
  compare(function(see)
    local w = leaf(4)
    local f = lt.compile(function(a, b) return (a + b) * 2 end)
    for _ = 1, 4 do
      w.grad = nil
      local x = leaf(4)
      local a = x * 2
      local z = f(a, w)
      a:free()
      see(pcall(function() z:sum():backward() end))
      see(x.grad, w.grad)
    end
  end)
end)

same("a backward that fails once", 1, 8, function(see)
  local w = leaf(3, 4)
  for i = 1, 10 do
    w.grad = i == 2 and lt.ones(1, 1):expand(3, 4) or lt.ones(3, 4)
    see(pcall(function() w:sin():sum():backward() end))
    see(w.grad)
  end
end)

test("a backward that fails each time runs eagerly in the end", function()
  local n = compare(function(see)
    local w = leaf(3, 4)
    for _ = 1, 8 do
      w.grad = lt.ones(1, 1):expand(3, 4)
      see(pcall(function() w:sin():sum():backward() end))
    end
  end)
  equal(n.graphs, 0)
end)

same("strides of gradients that come through views", 4, 12, function(see)
  local u, v, w = leaf(4, 1), leaf(1, 4), lt.randn(4, 4)
  for _, f in ipairs {function() return w * u:t() end, function() return v:t() end} do
    for i = 1, 8 do
      if i % 4 == 1 then u.grad, v.grad = nil, nil end
      f():sin():sum():backward()
      for _, g in ipairs {u.grad or v.grad} do see(g, g:stride(0), g:stride(1)) end
    end
  end
end)

test("entries go on to serve when no more are made", function()
  lt.reset()
  lt.config.compiled_autograd = true
  local net = lt.nn.Linear(8, 4)
  local function step(n)
    net:zero_grad()
    local x = lt.ones(n, 8)
    for _ = 1, n do x = x * 1 end
    net(x):pow(2.0 + n):mean():backward()
  end
  local limit = lt.config.recompile_limit
  lt.config.recompile_limit = 2
  local function calls(f)
    local before = lt.counters().compiled_autograd.calls
    f()
    return lt.counters().compiled_autograd.calls - before
  end
  for _, n in ipairs {5, 5, 1, 0, 1, 0} do step(n) end
  equal(calls(function()
    for _ = 1, 3 do step(5) end
  end), 3)
  lt.config.recompile_limit = limit
  lt.config.compiled_autograd = false
end)

test("the p of a norm changes", function()
  compare(function(see)
    local x = lt.tensor({1, 2, 3}):float():requires_grad_()
    for _, p in ipairs {2, 3, 4, 5, 1, 0, 2} do
      for _, f in ipairs {
        function() return x:norm(p) end, function() return x:dist(lt.ones(3), p) end,
        function() return lt.cdist(x:view(1, 3), lt.ones(2, 3), p):sum() end,
        function() return lt.linalg.vector_norm(x, p) end,
      } do
        x.grad = nil
        f():backward()
        see(x.grad)
      end
    end
  end)
end)

h.finish()
