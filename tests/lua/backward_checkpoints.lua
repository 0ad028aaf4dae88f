-- Tests checkpoints in the graph of a backward outside of compiled functions: one graph at the second run, with eager's
-- gradients and random state bit for bit, whatever changes. A checkpoint that cannot be in a graph runs between graphs.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local nn, F = lt.nn, lt.nn.functional

local backwards = require "backwards"
local compare, same, leaf = backwards.compare, backwards.same, backwards.leaf

local Exp = lt.autograd.Function:extend "Exp"
function Exp.forward(ctx, x)
  local y = x:exp()
  ctx:save_for_backward(y)
  return y
end
function Exp.backward(ctx, g) return g * ctx.saved_tensors[1] end

same("a checkpoint", 1, 4, function(see)
  local w = leaf(8, 8)
  for _ = 1, 5 do
    w.grad = nil
    local x = leaf(3, 8)
    local y = lt.checkpoint(function(t) return t:matmul(w):sin():exp() end, x)
    y:matmul(w):pow(2):sum():backward()
    see(x.grad, w.grad)
  end
end)

same("random numbers in two checkpoints and between", 1, 4, function(see)
  local w, b = leaf(8, 8), leaf(8)
  local function block(x, p) return F.dropout(F.gelu(F.linear(x, w, b)) * lt.rand(4, 8), p) end
  for _ = 1, 5 do
    w.grad, b.grad = nil, nil
    local x = leaf(4, 8)
    local y = lt.checkpoint(block, x, 0.5)
    y = F.dropout(y, 0.3)
    local z = lt.checkpoint(block, y, 0.2)
    local after = lt.rand(3)
    z:sum():backward()
    see(after, lt.rand(3), x.grad, w.grad, b.grad)
  end
end)

same("random numbers between two checkpoints that draw none", 1, 10, function(see)
  local w = leaf(8, 8)
  local function block(x) return x:matmul(w):sin():exp() end
  for i = 1, 11 do
    w.grad = nil
    local x = leaf(3, 8)
    local y = lt.checkpoint(block, x)
    for _ = 1, i do lt.rand(1) end
    lt.checkpoint(block, y * 0.1):sum():backward()
    see(x.grad, w.grad, lt.rand(1))
  end
end)

test("a checkpoint that draws random numbers when it is repeated only", function()
  compare(function(see)
    local w, p = leaf(8, 8), nil
    for i = 1, 6 do
      w.grad, p = nil, nil
      local x = leaf(3, 8)
      local y = lt.checkpoint(function(t)
        if p then lt.rand(3, 8) end
        return t:matmul(w):sin():exp()
      end, x)
      if i > 3 then p = 0.5 end
      see(pcall(function() y:sum():backward() end))
      see(x.grad, w.grad, lt.rand(1))
    end
  end)
end)

same("a table that is another one for each call", 1, 19, function(see)
  local w = leaf(8)
  for _ = 1, 20 do
    w.grad = nil
    local x = leaf(3, 8)
    lt.checkpoint(function(o) return (o.x * w):sin():exp() end, {x = x}):sum():backward()
    see(x.grad, w.grad)
  end
end)

same("modules and objects that are made for each call", 2, 20, function(see)
  local Scale = {}
  Scale.__index, Scale.__call = Scale, function(self, t) return (t * self.by):sin():exp() end
  for i = 1, 11 do
    local x, net = leaf(3, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    lt.checkpoint(net, x):sin():sum():backward()
    see(x.grad, net[1].weight.grad)
    x.grad = nil
    lt.checkpoint(setmetatable({by = lt.ones(8) * i}, Scale), x):sum():backward()
    see(x.grad)
  end
end)

test("a module that is no graph, and one that is", function()
  local n = compare(function(see)
    local one, two, seen = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), 0
    one[1]:register_forward_hook(function() seen = seen + 1 end)
    for _ = 1, 6 do
      local x = leaf(3, 4)
      lt.checkpoint(one, x):sum():backward()
      lt.checkpoint(two, x):sum():backward()
      see(x.grad, one[1].weight.grad, two[1].weight.grad, seen)
    end
  end)
  local refused = 0
  for why, count in pairs(n.eager) do
    if why:find "^a checkpoint" then refused = refused + count end
  end
  equal(refused, 4)
end)

same("checkpoints in checkpoints, several results", 1, 4, function(see)
  local w = leaf(8, 8)
  local function inner(x) return (x:matmul(w)):sin() end
  local function outer(x, scale, list)
    local y = lt.checkpoint(inner, x * scale)
    return y, lt.checkpoint(inner, y:exp()), #list, "text"
  end
  for _ = 1, 5 do
    w.grad = nil
    local x = leaf(4, 8)
    local y, z = lt.checkpoint(outer, x, 0.1, {1, 2});
    (y:sum() + z:pow(2):sum()):backward()
    see(x.grad, w.grad)
  end
end)

same("modules, hooks and functions in checkpoints", 1, 4, function(see)
  local net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
  net[2]:register_full_backward_hook(function(_, a, b) return {a[1] + b[1]:mean()} end)
  for _ = 1, 5 do
    net:zero_grad()
    local x = leaf(3, 8)
    local y = lt.checkpoint(net, x)
    y:register_hook(function(g) return g * 2 end)
    lt.checkpoint(function(t) return Exp.apply(t:sin()):cos() end, y):sum():backward()
    see(x.grad)
    for _, p in ipairs(net:parameters()) do see(p.grad) end
  end
end)

test("all of it in one model: a graph for each loss", function()
  local n = compare(function(see)
    local net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    net[3].weight = net[1].weight -- shared
    local limit = 1
    net[1].weight:register_hook(function(g) return g:clamp(-limit, limit) end)
    net[1]:register_full_backward_hook(function(_, a, b) return {a[1] + b[1]:mean() * limit} end)
    net[3]:register_full_backward_pre_hook(function(_, b) return {b[1] * 2} end)
    local function block(x) return lt.checkpoint(net, F.dropout(x, 0.25)) + Exp.apply(x * 0.1) end
    for i = 1, 6 do
      limit = i / 4
      if i % 2 == 1 then net:zero_grad() end
      local x = leaf(3, 8)
      local y = lt.checkpoint(block, net(x))
      y:retain_grad()
      y:register_hook(function(g) return g * limit end)
      local first, second = y:pow(2):mean(), F.dropout(y, 0.5):abs():sum()
      first:backward(nil, {retain_graph = true})
      second:backward()
      see(x.grad, y.grad, lt.rand(1))
      for _, p in ipairs(net:parameters()) do see(p.grad) end
    end
  end)
  -- The first into new gradients and into those that are there, each up to the checkpoint and from there on; the second
  -- where the first has left what the checkpoint computed again, into gradients that are there.
  equal(n.graphs, 4)
  for why in pairs(n.eager) do truthy(why == "the first run" or why:find "is needed later", why) end
end)

test("checkpoints and sizes that change", function()
  local n = compare(function(see)
    local w = leaf(8, 8)
    for _, k in ipairs {5, 5, 7, 9, 3, 4, 6} do
      w.grad = nil
      local x = leaf(k, 8)
      local y = lt.checkpoint(function(t) return F.dropout(t:matmul(w):sin():exp(), 0.5) end, x)
      y:matmul(w):pow(2):sum():backward()
      see(x.grad, w.grad)
    end
  end)
  equal(n.graphs, 2)
  equal(n.calls, 6)
end)

test("what a checkpoint reads changes, seeds", function()
  compare(function(see)
    local w, scale = leaf(8, 8), 1
    for i = 1, 8 do
      w.grad = nil
      scale = i
      if i > 4 then lt.manual_seed(i) end
      local x = leaf(3, 8)
      local y = lt.checkpoint(function(t) return F.dropout(t:matmul(w) * scale, 0.5):exp() end, x)
      if i > 6 then lt.manual_seed(3) end
      local z = lt.checkpoint(function(t) return F.dropout(t:sin(), 0.5):cos() end, y)
      if i % 2 == 0 then scale = 0.5 end
      z:pow(2):sum():backward()
      see(x.grad, w.grad, lt.rand(2))
    end
  end)
end)

same("a checkpoint that is kept, two losses", 3, 12, function(see)
  local w = leaf(8, 8)
  for _ = 1, 5 do
    w.grad = nil
    local y = lt.checkpoint(function(t) return F.dropout(t:matmul(w):sin():exp(), 0.5) end, lt.randn(3, 8))
    y:sum():backward(nil, {retain_graph = true})
    y:pow(2):sum():backward()
    see(w.grad)
  end
end)

-- A checkpoint is repeated once, at the first need: what changes between two parts or two backwards is not seen.
local once = "a checkpoint: what it makes again is needed later, too"

backwards.called("a part that ends within a checkpoint, a variable set there", once, function(see)
  for _ = 1, 4 do
    local scale, x = 2, lt.ones(1):requires_grad_()
    local m, e = lt.checkpoint(function(t)
      local m = (t * scale):sin()
      return m, m:exp()
    end, x)
    m:register_hook(function() scale = 7 end)
    e:sum():backward()
    see(x.grad, scale)
  end
end)

backwards.called("a part that ends within a checkpoint, a tensor written there", once, function(see)
  for _ = 1, 4 do
    local x, w = leaf(3), leaf(3)
    local m, e = lt.checkpoint(function(t)
      local m = (t + w):sin()
      return m, m:exp()
    end, x)
    m:register_hook(function() lt.no_grad(function() w:add_(1) end) end)
    e:sum():backward()
    see(x.grad, w.grad, w)
  end
end)

backwards.called("two losses of a checkpoint, a write between", once, function(see)
  for _ = 1, 4 do
    local x, b = lt.ones(1):requires_grad_(), lt.ones(1):requires_grad_()
    local y, z = lt.checkpoint(function(t) return (t + b):sin(), (t + b):cos() end, x)
    y:backward()
    lt.no_grad(function() b:sub_(b.grad * 0.1) end)
    see(pcall(z.backward, z))
    see(x.grad, b.grad)
  end
end)

backwards.called("a checkpoint that is kept, a variable set and a tensor written between", once, function(see)
  for _ = 1, 4 do
    local scale, x, w = 2, leaf(3), leaf(3)
    local l = lt.checkpoint(function(t) return (t * scale + w):sin():exp() end, x):sum()
    l:backward {retain_graph = true}
    see(x.grad)
    scale = 3
    lt.no_grad(function() w:add_(1) end)
    see(pcall(l.backward, l))
    see(x.grad, w.grad)
  end
end)

test("hooks of a checkpoint's result come before it is repeated", function()
  compare(function(see)
    for i = 1, 6 do
      local scale, x = 1, leaf(3)
      local y, z = lt.checkpoint(function(t) return (t * scale):cos(), (t * t):exp() end, x)
      y:register_hook(function(g)
        if i > 1 then scale = i end
        return g * 2
      end)
      y:sum():backward()
      see(x.grad)
      z:sum():backward()
      see(x.grad)
    end
  end)
end)

test("a checkpoint of which a result is never asked for", function()
  local n = compare(function(see)
    local w = leaf(8, 8)
    for _ = 1, 5 do
      w.grad = nil
      local x = leaf(3, 8)
      local y, z = lt.checkpoint(function(t) return t:matmul(w):sin():exp(), t:exp() end, x)
      y:sum():backward()
      see(x.grad, w.grad, z)
    end
  end)
  truthy(n.eager[once], "nothing is needed later")
end)

test("modules of a checkpoint whose hooks are no graph: it is repeated once for each backward", function()
  local steps, n = 5, nil
  n = compare(function(see)
    local net, seen = nn.Sequential(), 0
    for i = 1, 4 do
      net:append(nn.Linear(4, 4))
      net[i]:register_full_backward_hook(function() seen = seen + 1 end)
    end
    for _ = 1, steps do
      net:zero_grad()
      local x = leaf(3, 4)
      lt.checkpoint(net, x):sin():sum():backward()
      see(x.grad, net[1].weight.grad, seen)
    end
  end)
  equal(n.eager[once], steps - 1)
end)

test("autocast of then", function()
  local n = compare(function(see)
    local w = leaf(8, 8)
    for i = 1, 6 do
      w.grad = nil
      local x = leaf(4, 8)
      local y = lt.autocast("cpu", {dtype = lt.bfloat16, enabled = i > 3}, function()
        return lt.checkpoint(function(t) return t:matmul(w):sin() end, x)
      end)
      y:float():sum():backward()
      see(x.grad, w.grad)
    end
  end)
  truthy(n.graphs >= 2, n.graphs)
end)

backwards.called("a checkpoint that writes what came in", "a checkpoint: it writes a tensor", function(see)
  local c, w = lt.ones(4, 8), leaf(4, 8)
  for _ = 1, 4 do
    w.grad = nil
    local y = lt.checkpoint(function(x)
      local a = (x * 2):exp():sin() + c
      c:add_(1)
      return a:sin():exp()
    end, w)
    y:sum():backward()
    see(y, c, w.grad)
  end
end)

backwards.called("a checkpoint that reads elements", "a checkpoint: its graph saves other", function(see)
  local w = leaf(4)
  for _ = 1, 4 do
    w.grad = nil
    local y = lt.checkpoint(function(x) return x:exp():sin() * x:sum():item() end, w * 2)
    y:cos():sum():backward()
    see(w.grad)
  end
end)

backwards.called("a checkpoint that breaks", "a checkpoint: lt.graph_break%(%) was called", function(see)
  local w = leaf(4)
  for _ = 1, 4 do
    w.grad = nil
    local y = lt.checkpoint(function(x)
      local z = x:exp()
      lt.graph_break()
      return z:sin()
    end, w * 2)
    y:cos():sum():backward()
    see(w.grad)
  end
end)

backwards.called("a checkpoint with effects, in one with none", "a checkpoint: it writes tables", function(see)
  local w, count = leaf(4), 0
  for _ = 1, 4 do
    w.grad = nil
    local y = lt.checkpoint(function(x)
      count = count + 1
      return x:exp():sin()
    end, lt.checkpoint(function(x) return x:sin():exp() end, w))
    y:cos():sum():backward()
    see(w.grad, count)
  end
end)

backwards.called("a checkpoint that registers a hook", "a checkpoint: it changes what gradients are", function(see)
  local w, seen = leaf(8, 8), {}
  for i = 1, 4 do
    w.grad = nil
    local x = leaf(3, 8)
    local y = lt.checkpoint(function(t)
      local z = t:matmul(w):sin()
      z:register_hook(function(g)
        seen[#seen + 1] = g
        return g * i
      end)
      return (z * z):exp()
    end, x)
    y:cos():sum():backward()
    see(x.grad, w.grad, #seen, seen[#seen])
  end
end)

backwards.called("a checkpoint that keeps a gradient", "a checkpoint: it changes what gradients are", function(see)
  local w = leaf(8, 8)
  for _ = 1, 4 do
    local x = leaf(3, 8)
    local y = lt.checkpoint(function(t)
      local z = t:matmul(w):sin()
      z:retain_grad()
      return (z * z):exp(), z
    end, x)
    y:cos():sum():backward()
    see(x.grad, w.grad)
  end
end)

test("a checkpoint's errors", function()
  compare(function(see)
    local w, k, shift = leaf(4, 4), 2, lt.ones(4)
    for i = 1, 8 do
      w.grad, k = nil, 2
      local y = lt.checkpoint(function(x) return ((x + shift):exp():narrow(0, 0, k)):sin() end, w)
      local loss = y:sum()
      if i == 3 then k = 3 end
      if i == 4 then shift:add_(1) end
      if i == 5 then shift:free() end
      see(pcall(function() loss:backward() end))
      see(pcall(function() loss:backward() end))
      see(w.grad)
      if i == 5 then shift = lt.ones(4) end
    end
  end)
end)

same("an argument twice, one that is given back, tensors in tables, compiled functions", 1, 4, function(see)
  local w = leaf(8, 8)
  local sine = lt.compile(function(t) return t:matmul(w):sin():exp() end)
  for _ = 1, 5 do
    w.grad = nil
    local x, inner = lt.randn(3, 8), leaf(3, 8)
    local a, _, c = lt.checkpoint(function(p, q, t)
      return p:matmul(w):sin() * q, p, sine(t.x) * w["0:3"]
    end, x, x, {x = inner});
    (a:sum() + c:sin():sum()):backward()
    see(w.grad, inner.grad)
  end
end)

test("an argument that is a variable, too, until it is another", function()
  compare(function(see)
    local w = leaf(8, 8)
    for i = 1, 6 do
      w.grad = nil
      local x, y = leaf(3, 8), leaf(3, 8)
      lt.checkpoint(function(p) return (x:matmul(w):sin() * p):exp() end, i < 4 and x or y):sum():backward()
      see(w.grad, x.grad, y.grad)
    end
  end)
end)

test("a function that is another one when the call is repeated", function()
  compare(function(see)
    local w = leaf(8, 8)
    for i = 1, 6 do
      w.grad = nil
      local x = leaf(3, 8)
      local function inner(t) return t:sin() end
      local y = lt.checkpoint(function(p) return inner(p:matmul(w)):exp() end, x)
      if i == 4 then inner = function(t) return t:cos() end end
      if i == 5 then inner = function(t) return t:cos():sin() end end
      see(pcall(function() y:sum():backward() end))
      see(w.grad, x.grad)
    end
  end)
end)

backwards.called("a checkpoint that sets the random state", "a checkpoint: it sets the random state", function(see)
  local w = leaf(8, 8)
  for _ = 1, 4 do
    w.grad = nil
    lt.checkpoint(function(p)
      lt.manual_seed(5)
      return F.dropout(p:matmul(w), 0.5):exp()
    end, leaf(3, 8)):sum():backward()
    see(w.grad, lt.rand(1))
  end
end)

backwards.called("a checkpoint with control flow", "a checkpoint: its graph saves other", function(see)
  local w = leaf(3, 8)
  local function sine(t) return t:sin() * w end
  local function exponent(t) return t:exp() * w end
  for _ = 1, 4 do
    w.grad = nil
    lt.checkpoint(function(t) return lt.cond(t:sum():gt(0), sine, exponent, t):cos() end, leaf(3, 8)):sum():backward()
    see(w.grad)
  end
end)

test("writes within, views, no elements", function()
  compare(function(see)
    local w = leaf(4)
    for _, n in ipairs {0, 0, 1, 1, 3, 3, 0, 5} do
      w.grad = nil
      local y = lt.checkpoint(function(x)
        local z = x:exp() * w
        z["::, 1:3"]:mul_(2)
        return z:t():sin():exp()
      end, lt.ones(n, 4) * w)
      y:sum():backward()
      see(w.grad)
    end
  end)
end)

test("lt.grad, create_graph and no_grad with checkpoints", function()
  compare(function(see)
    local w = leaf(8, 8)
    for _ = 1, 4 do
      w.grad = nil
      local x = leaf(3, 8)
      local function f(t) return F.dropout(t:matmul(w):exp():sin(), 0.5) end
      local y = lt.checkpoint(f, x)
      see(lt.grad(y:sum(), w, {retain_graph = true}))
      see(lt.grad(y:sum(), x, {retain_graph = true}))
      local g = lt.grad(y:sum(), {x, w}, {create_graph = true});
      (g[1]:pow(2):sum() + g[2]:sin():sum()):backward()
      see(x.grad, w.grad)
      see(lt.no_grad(function() return lt.checkpoint(f, x) end))
      lt.checkpoint(lt.no_grad(function() return f end), x):sum():backward()
      see(x.grad)
    end
  end)
end)

test("a gradient is kept before the error of the checkpoint behind it", function()
  compare(function(see)
    local w = leaf(4, 4)
    for _ = 1, 4 do
      w.grad = nil
      local y = lt.checkpoint(function(x)
        local m = x:matmul(w):tanh()
        return m:matmul(w), m
      end, leaf(3, 4))
      y:retain_grad()
      local first, second = y:sum(), (y * 2):sum()
      first:backward(nil, {retain_graph = true})
      lt.no_grad(function() w:mul_(0.5) end)
      equal(pcall(second.backward, second), false)
      see(y.grad, w.grad)
    end
  end)
end)

backwards.holds_nothing("nothing is held", function(factor)
  local y = lt.checkpoint(function(x) return (x * factor):sin():exp() end, leaf(4))
  Exp.apply(y):sum():backward()
end)

h.finish()
