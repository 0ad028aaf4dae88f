-- Hooks of modules, functions of lt.autograd and kept gradients within the graph of a backward outside of compiled
-- functions: one graph at the second run, with eager's gradients bit for bit, whatever changes.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local nn, F = lt.nn, lt.nn.functional

local backwards = require "backwards"
local compare, same = backwards.compare, backwards.same

local function leaf(...) return lt.randn({...}, {requires_grad = true}) end

local function see_grads(see, net)
  for _, p in ipairs(net:parameters()) do see(p.grad) end
end

local function mlp() return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)) end

-- count steps of a model; change(i, net) goes before step i.
local function train(count, prepare, change)
  return function(see)
    local net = mlp()
    prepare(net, see)
    for i = 1, count do
      if change then change(i, net) end
      net:zero_grad()
      local x = leaf(3, 8)
      see(pcall(function() net(x):pow(2):mean():backward() end))
      see(x.grad)
      see_grads(see, net)
    end
  end
end

-- Of calls that are made between graphs: why, as the reports have it.
local function called(name, why, program)
  test(name, function()
    local found = false
    for reason in pairs(compare(program).eager) do found = found or reason:find(why) end
    truthy(found, "no reason is like " .. why)
  end)
end

-- Hooks of modules ----------------------------------------------------------------------------------------------------

same("a hook of each module", 1, 4, train(5, function(net)
  for _, m in ipairs {net, net[1], net[2], net[3]} do
    m:register_full_backward_hook(function(_, grad_input, grad_output)
      return {grad_input[1] * 2 + grad_output[1]:mean()}
    end)
  end
end))

same("hooks before and behind, several of one module", 1, 4, train(5, function(net)
  net[3]:register_full_backward_pre_hook(function(_, grad_output) return {grad_output[1] * 3} end)
  net[3]:register_full_backward_pre_hook(function(m, grad_output) return grad_output[1] + m.bias:mean() end)
  net[3]:register_full_backward_hook(function(_, grad_input) return {grad_input[1]:clamp(-1, 1)} end)
  net[3]:register_full_backward_hook(function() end)
  net[1]:register_full_backward_hook(function(_, a, b) return {a[1] * b[1]:sum()} end)
end))

same("a number of a hook that changes", 1, 5, (function()
  local scale = 1
  return train(6, function(net)
    net[2]:register_full_backward_hook(function(_, grad_input) return {grad_input[1] * scale} end)
  end, function(i) scale = i / 2 end)
end)())

same("inputs that want no gradients", 1, 3, function(see)
  local net = mlp()
  net[1]:register_full_backward_hook(function(_, _, grad_output) local _ = grad_output[1] * 2 end)
  net[1]:register_full_backward_pre_hook(function(_, grad_output) return {grad_output[1] * 2} end)
  for _ = 1, 4 do
    net:zero_grad()
    net(lt.randn(3, 8)):sum():backward()
    see_grads(see, net)
  end
end)

test("sizes that change", function()
  local n = compare(function(see)
    local net = mlp()
    for _, m in ipairs {net, net[1], net[3]} do
      m:register_full_backward_hook(function(_, grad_input) return {grad_input[1] / grad_input[1].shape[1]} end)
    end
    for _, k in ipairs {5, 5, 7, 9, 3, 4, 6} do
      net:zero_grad()
      local x = leaf(k, 8)
      net(x):sin():sum():backward()
      see(x.grad)
      see_grads(see, net)
    end
  end)
  equal(n.graphs, 2)
  equal(n.calls, 6)
end)

-- Takes two values and gives two.
local Pair = nn.Module:extend "Pair"
function Pair:init() self.w = nn.Parameter(lt.randn(8, 8)) end
function Pair:forward(x, y) return x:matmul(self.w), (y or x):tanh() end

same("several values, some without gradients", 2, 6, function(see)
  local pair = Pair()
  pair:register_full_backward_hook(function(_, grad_input, grad_output)
    see(grad_input.n, grad_output.n)
    return {grad_input[1] and grad_input[1] * 2, grad_input[2] and grad_input[2] * 3, n = grad_input.n}
  end)
  pair:register_full_backward_hook(function(_, a, b)
    return {a[1] and b[1] and a[1] + b[1] or a[1], a[2] and b[2] and a[2] * b[2] or a[2], n = a.n}
  end)
  for which = 1, 2 do
    for _ = 1, 4 do
      pair:zero_grad()
      local x, y = leaf(3, 8), leaf(3, 8)
      local a, b = pair(x, y);
      (which == 1 and a * b or b):sin():sum():backward()
      see(x.grad, y.grad, pair.w.grad)
    end
  end
end)

test("hooks that are added and removed", function()
  local n = compare(train(9, function() end, (function()
    local handle
    return function(i, net)
      if i == 1 or i == 4 then
        handle = net[1]:register_full_backward_hook(function(_, g) return {g[1] * i} end)
      elseif i == 7 then
        handle.remove()
      end
    end
  end)()))
  truthy(n.graphs >= 2, n.graphs)
end)

called("a hook that writes a variable", "BackwardHookFunction: it writes tables or variables", train(4, function(net)
    local count = 0
    net[2]:register_full_backward_hook(function(_, g)
      count = count + 1
      return {g[1] * count}
    end)
    net[1]:register_full_backward_hook(function(_, g) return {g[1] * 2} end)
end))

called("a hook that throws", "BackwardHookFunction: ", train(4, function(net)
  net[2]:register_full_backward_hook(function() error("the hook's own error", 0) end)
end))

called("a hook that gives too many", "BackwardHookFunction: ", train(3, function(net)
  net[2]:register_full_backward_hook(function(_, g) return {g[1], g[1], n = 2} end)
end))

test("what is left of one module's effects", function()
  local n = compare((function()
    local seen = {}
    return train(4, function(net)
      net[3]:register_full_backward_hook(function(_, g) seen[#seen + 1] = g[1] end)
      net[1]:register_full_backward_hook(function(_, g) return {g[1] * 2} end)
    end)
  end)())
  local calls = 0
  for why, times in pairs(n.eager) do if why:find("BackwardHookFunction", 1, true) then calls = calls + times end end
  equal(calls, 3) -- of the one module alone
end)

test("create_graph, lt.grad, twice", function()
  compare(function(see)
    local net = mlp()
    net[2]:register_full_backward_hook(function(_, a, b) return {a[1] * b[1]:sum()} end)
    for _ = 1, 3 do
      net:zero_grad()
      local x = leaf(3, 8)
      local loss = net(x):pow(2):sum()
      local g = lt.grad(loss, {x, net[1].weight}, {create_graph = true})
      see(g[1], g[2]);
      (g[1]:sum() + g[2]:sin():sum()):backward()
      see(x.grad)
      see_grads(see, net)
      local y = net(x)
      local kept = y:exp():sum()
      see(lt.grad(kept, x, {retain_graph = true}))
      kept:backward(nil, {retain_graph = true})
      kept:backward()
      see(x.grad)
    end
  end)
end)

test("no elements, in coroutines", function()
  compare(function(see)
    local net = mlp()
    net[1]:register_full_backward_hook(function(_, g) return {g[1] * 2 + g[1].shape[1]} end)
    for i, k in ipairs {0, 0, 1, 1, 3, 0, 3} do
      net:zero_grad()
      local x = leaf(k, 8)
      local function run() net(x):sum():backward() end
      if i % 2 == 0 then coroutine.wrap(run)() else run() end
      see(x.grad)
      see_grads(see, net)
    end
  end)
end)

test("a part of the module, from within", function()
  compare(function(see)
    local inner
    local Leaky = nn.Module:extend "Leaky"
    function Leaky:forward(x)
      inner = x * 2
      return inner:sin()
    end
    local net = Leaky()
    net:register_full_backward_hook(function(_, a, b) return {a[1] * b[1]} end)
    for _ = 1, 3 do
      local x = leaf(4)
      local y = net(x)
      inner:sum():backward(nil, {retain_graph = true})
      see(x.grad)
      y:sum():backward()
      see(x.grad)
    end
  end)
end)

-- Functions -----------------------------------------------------------------------------------------------------------

local Exp = lt.autograd.Function:extend "Exp"
function Exp.forward(ctx, x)
  local y = x:exp()
  ctx:save_for_backward(y)
  return y
end
function Exp.backward(ctx, g) return g * ctx.saved_tensors[1] end

-- Numbers, several inputs, some without gradients.
local Scaled = lt.autograd.Function:extend "Scaled"
function Scaled.forward(ctx, x, w, k)
  ctx.k = k
  ctx:save_for_backward(x, w)
  return x:matmul(w) * k, x * k
end
function Scaled.backward(ctx, g, e)
  local x, w = unpack(ctx.saved_tensors)
  local gx = g:matmul(w:t()) * ctx.k + e * ctx.k
  return gx, ctx.needs_input_grad[2] and x:t():matmul(g) * ctx.k or nil
end

same("a function", 1, 4, function(see)
  local w = leaf(8, 8)
  for _ = 1, 5 do
    w.grad = nil
    local x = leaf(3, 8)
    Exp.apply(x:matmul(w) * 0.1):sum():backward()
    see(x.grad, w.grad)
  end
end)

same("a function with numbers that change, one result unused", 2, 10, function(see)
  local w = leaf(8, 8)
  for _, both in ipairs {true, false} do
    for i = 1, 6 do
      w.grad = nil
      local x = leaf(3, 8)
      local a, b = Scaled.apply(x:tanh(), w, i / 2)
      if both then (a * b):sum():backward() else a:sum():backward() end
      see(x.grad, w.grad)
    end
  end
end)

test("functions and sizes that change", function()
  local n = compare(function(see)
    local w = leaf(8, 8)
    for _, k in ipairs {5, 5, 7, 9, 3, 4, 6} do
      w.grad = nil
      local x = leaf(k, 8)
      local a, b = Scaled.apply(Exp.apply(x), w, 2);
      (a + b):sin():sum():backward()
      see(x.grad, w.grad)
    end
  end)
  truthy(n.graphs <= 3, n.graphs)
  equal(n.calls, 6)
end)

same("hooks of what a function gives", 1, 3, function(see)
  for i = 1, 4 do
    local x = leaf(4)
    local y = Exp.apply(x)
    y:register_hook(function(g) return g * i end)
    y:sin():sum():backward()
    see(x.grad)
  end
end)

called("a function whose backward writes its context", "it writes tables or variables", function(see)
  local Counting = lt.autograd.Function:extend "Counting"
  function Counting.forward(ctx, x)
    ctx:save_for_backward(x)
    return x * 2
  end
  function Counting.backward(ctx, g)
    ctx.times = (ctx.times or 0) + 1
    return g * ctx.times
  end
  for _ = 1, 4 do
    local x = leaf(4)
    local y = Counting.apply(x):sum()
    y:backward(nil, {retain_graph = true})
    y:backward()
    see(x.grad)
  end
end)

called("a function that throws, or looks at elements", "Sign", function(see)
  local Sign = lt.autograd.Function:extend "Sign"
  function Sign.forward(ctx, x)
    ctx:save_for_backward(x)
    return x:abs()
  end
  function Sign.backward(ctx, g)
    if ctx.saved_tensors[1]:sum():item() > 1 then error("too much", 0) end
    return g * 2
  end
  for i = 1, 4 do
    local x = lt.full({1}, i - 2.5, {requires_grad = true})
    see(pcall(function() Sign.apply(x):sum():backward() end))
    see(x.grad)
  end
end)

test("eager's errors", function()
  compare(function(see)
    local w = leaf(4)
    for _ = 1, 3 do
      local y = Exp.apply(w)
      local loss = y:sum()
      loss:backward()
      see(pcall(function() loss:backward() end))
      local z = Exp.apply(w)
      lt.no_grad(function() z:add_(1) end)
      see(pcall(function() z:sum():backward() end))
      see(w.grad)
    end
    local Wrong = lt.autograd.Function:extend "Wrong"
    function Wrong.forward(_, x) return x * 2 end
    function Wrong.backward(_, g) return lt.cat({g, g}) end
    for _ = 1, 3 do see(pcall(function() Wrong.apply(w):sum():backward() end)) end
  end)
end)

test("functions that are written anew", function()
  compare(function(see)
    local Any = lt.autograd.Function:extend "Any"
    function Any.forward(ctx, x) ctx:save_for_backward(x) return x * 2 end
    for i = 1, 8 do
      if i % 3 == 1 then
        local k = i
        function Any.backward(ctx, g) return g * ctx.saved_tensors[1] * k end
      elseif i == 5 then
        function Any.backward() end
      end
      local x = leaf(4)
      Any.apply(x):sum():backward()
      see(x.grad)
    end
  end)
end)

-- Kept gradients ------------------------------------------------------------------------------------------------------

same("kept gradients", 1, 4, function(see)
  local w = leaf(8, 8)
  for _ = 1, 5 do
    w.grad = nil
    local y = leaf(3, 8):matmul(w)
    local z = y:tanh()
    y:retain_grad()
    z:retain_grad()
    z:register_hook(function(g) return g * 2 end)
    z:pow(2):sum():backward()
    see(y.grad, z.grad, w.grad)
  end
end)

same("kept gradients that add up, of tensors that go", 4, 4, function(see)
  local w = leaf(8, 8)
  for i = 1, 4 do
    w.grad = nil
    local y = lt.randn(3, 8):matmul(w)
    local z = y:tanh()
    y:retain_grad()
    z:retain_grad()
    local loss = z:pow(2):sum()
    if i % 2 == 0 then z = nil end
    collectgarbage()
    collectgarbage()
    loss:backward(nil, {retain_graph = true})
    local before = y.grad
    loss:backward()
    see(y.grad, before, z and z.grad, w.grad)
  end
end)

test("kept gradients are nobody else's", function()
  compare(function(see)
    for _ = 1, 4 do
      local w, v = leaf(3), leaf(3)
      local y = w + 0
      y:retain_grad();
      (y + v):backward(lt.ones(3))
      y.grad:mul_(3)
      see(y.grad, w.grad, v.grad)
      w.grad:mul_(2)
      see(y.grad, w.grad, v.grad)
    end
  end)
end)

-- Checkpoints ---------------------------------------------------------------------------------------------------------

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
  local net = mlp()
  net[2]:register_full_backward_hook(function(_, a, b) return {a[1] + b[1]:mean()} end)
  for _ = 1, 5 do
    net:zero_grad()
    local x = leaf(3, 8)
    local y = lt.checkpoint(net, x)
    y:register_hook(function(g) return g * 2 end)
    lt.checkpoint(function(t) return Exp.apply(t:sin()):cos() end, y):sum():backward()
    see(x.grad)
    see_grads(see, net)
  end
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

same("a checkpoint that is kept, two losses", 2, 7, function(see)
  local w = leaf(8, 8)
  for _ = 1, 5 do
    w.grad = nil
    local y = lt.checkpoint(function(t) return F.dropout(t:matmul(w):sin():exp(), 0.5) end, lt.randn(3, 8))
    y:sum():backward(nil, {retain_graph = true})
    y:pow(2):sum():backward()
    see(w.grad)
  end
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

called("a checkpoint that writes what came in", "a checkpoint: it writes a tensor", function(see)
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

called("a checkpoint that reads elements", "a checkpoint: its graph saves other", function(see)
  local w = leaf(4)
  for _ = 1, 4 do
    w.grad = nil
    local y = lt.checkpoint(function(x) return x:exp():sin() * x:sum():item() end, w * 2)
    y:cos():sum():backward()
    see(w.grad)
  end
end)

called("a checkpoint that breaks", "a checkpoint: lt.graph_break%(%) was called", function(see)
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

called("a checkpoint with effects, in one with none", "a checkpoint: it writes tables or variables", function(see)
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

test("nothing is held", function()
  local gone = setmetatable({}, {__mode = "k"})
  lt.config.compiled_autograd = true
  local function run(i)
    local w = leaf(4)
    local factor = lt.ones(4) * i
    gone[factor] = true
    local y = lt.checkpoint(function(x) return (x * factor):sin():exp() end, w)
    Exp.apply(y):sum():backward()
  end
  for i = 1, 6 do run(i) end
  lt.config.compiled_autograd = false
  for _ = 1, 3 do collectgarbage() end -- finalizers run between
  equal(next(gone) == nil, true)
end)

h.finish()
