-- Tests gradient hooks in the graph of a backward outside of compiled functions: gradients and the values that hooks
-- get are eager's bit for bit, even if values that the hooks read change. Hooks with effects are called between graphs.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local nn = lt.nn

local backwards = require "backwards"
local compare, same, leaf = backwards.compare, backwards.same, backwards.leaf

local function called(name, why, program) backwards.called(name, "a hook: " .. why, program) end

-- steps of a small loss; hook(i) gives the hook of step i, or nil.
local function steps(count, hook)
  return function(see)
    local w, v = leaf(8, 8), leaf(8, 8)
    for i = 1, count do
      w.grad, v.grad = nil, nil
      local mid = lt.randn(3, 8):matmul(w):tanh()
      local f = hook(i, see, w)
      if f then mid:register_hook(f) end
      local ok, problem = pcall(function() mid:matmul(v):pow(2):sum():backward() end)
      see(ok, problem, w.grad, v.grad)
    end
  end
end

same("a number that changes", 1, 4, steps(5, function(i) return function(g) return g * i end end))

same("a tensor that changes", 1, 4, steps(5, function()
  local factor = lt.randn(8)
  return function(g) return g * factor end
end))

same("a function made anew in each step", 2, 4, steps(5, function(i)
  local function scaled(g, by) return g * by end
  return function(g) return scaled(g, i + 0.5) end
end))

same("nil, and a hook that does nothing", 1, 3, steps(4, function()
  return function(g) local _ = g * 2 end
end))

same("a hook that takes no argument, or all", 2, 6, function(see)
  for _, f in ipairs {function() end, function(...) return select(1, ...) * 3 end} do
    steps(4, function() return f end)(see)
  end
end)

same("a tensor of its own in the gradient's place", 1, 3, function(see)
  local other = lt.randn(3, 8)
  steps(4, function() return function() return other end end)(see)
end)

same("views, and writes of what the hook made", 1, 3, steps(4, function()
  return function(g)
    local z = g:clone()
    z[0]:mul_(3)
    z:clamp_(-1, 1)
    return z:t():contiguous():t()
  end
end))

same("a hook asks for sizes", 2, 6, function(see)
  local w = leaf(8)
  for _, n in ipairs {5, 5, 7, 9, 3, 4, 6} do
    w.grad = nil
    local y = lt.randn(n, 8) * w
    y:register_hook(function(g) return g / g.shape[1] + g:sum(1, true):reshape(g.shape[1], 1) end)
    y:sin():sum():backward()
    see(w.grad)
  end
end)

same("a branch on a size is a graph for each way", 3, 6, function(see)
  local w = leaf(8)
  for _, n in ipairs {5, 5, 7, 9, 3, 4, 6} do
    w.grad = nil
    local y = lt.randn(n, 8) * w
    y:register_hook(function(g) if g.shape[1] > 4 then return g * 2 end end)
    y:sin():sum():backward()
    see(w.grad)
  end
end)

same("what a table has", 2, 6, function(see)
  local settings = {scale = 2, on = true, list = {1, 2}}
  steps(7, function(i)
    settings.on = i ~= 5
    settings.scale = i / 3
    return function(g)
      if settings.on then return g * settings.scale + settings.list[2] end
    end
  end)(see)
end)

same("a metatable that changes", 2, 5, function(see)
  local settings = setmetatable({}, {__index = {scale = 2}})
  steps(6, function(i)
    if i == 4 then setmetatable(settings, {__index = function() return 5 end}) end
    return function(g) return g * settings.scale end
  end)(see)
end)

same("in their order, of one tensor that is used twice", 1, 3, function(see)
  local w = leaf(4)
  for _ = 1, 4 do
    w.grad = nil
    local y = w * 2
    y:register_hook(function(g) return g + 1 end)
    y:register_hook(function(g) return g * g end);
    (y:sin() + y:exp()):sum():backward()
    see(w.grad)
  end
end)

same("of leaves and parameters", 1, 4, function(see)
  local net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
  local limit = 0.5
  for _, p in ipairs(net:parameters()) do
    p:register_hook(function(g) return g:clamp(-limit, limit) end)
  end
  for i = 1, 5 do
    limit = 0.5 / i
    net:zero_grad()
    net(lt.randn(5, 8)):pow(2):mean():backward()
    for _, p in ipairs(net:parameters()) do see(p.grad) end
  end
end)

same("of leaves, into a .grad that is there", 2, 4, function(see)
  local w = leaf(4)
  w:register_hook(function(g) return g * w end)
  for i = 1, 6 do
    if i % 2 == 1 then w.grad = nil end
    (w * 3):sin():sum():backward()
    see(w.grad)
  end
end)

test("hooks that are added, removed, exchanged between calls", function()
  local n = compare(function(see)
    local w = leaf(4)
    local handle
    for i = 1, 12 do
      w.grad = nil
      if i == 3 then handle = w:register_hook(function(g) return g * 3 end) end
      if i == 6 then
        handle.remove()
        handle = w:register_hook(function(g) return g * 5 end)
      end
      if i == 9 then w:register_hook(function(g) return g + 1 end) end
      if i == 11 then handle.remove() end
      (w * 3):sin():sum():backward()
      see(w.grad)
    end
  end)
  equal(n.graphs, 5)
end)

same("of what compiled code gives", 1, 3, function(see)
  local w, v = leaf(8, 8), leaf(8, 8)
  local f = lt.compile(function(x)
    local y = x:matmul(w):tanh()
    return y, y:matmul(v):sin()
  end)
  for i = 1, 4 do
    w.grad, v.grad = nil, nil
    local y, z = f(lt.ones(3, 8))
    y:register_hook(function(g) return g * i end)
    z:register_hook(function(g) return g:t():contiguous():t() + 1 end);
    (y * z):sum():backward()
    see(w.grad, v.grad)
  end
end)

same("a hook that is compiled itself", 1, 3, steps(4, function()
  return lt.compile(function(g) return g * 2 + 1 end)
end))

same("two losses: of their sum, then one by one into a .grad", 3, 9, function(see)
  local w, v, scale = leaf(8, 8), leaf(8, 8), 1
  w:register_hook(function(g) return g * scale end)
  for i = 1, 4 do
    w.grad, v.grad, scale = nil, nil, i
    local function losses()
      local y = lt.randn(3, 8):matmul(w):tanh()
      y:register_hook(function(g) return g:clamp(-scale, scale) end)
      return y:matmul(v):pow(2):mean(), y:abs():sum()
    end
    local a, b = losses();
    (a + b):backward()
    see(w.grad, v.grad)
    a, b = losses()
    a:backward(nil, {retain_graph = true})
    see(w.grad, v.grad)
    b:backward()
    see(w.grad, v.grad)
  end
end)

test("environments, upvalues set from outside, other threads", function()
  compare(function(see)
    local w, by = leaf(4), 2
    local function f(g) return g * (factor or by) end
    w:register_hook(f)
    for i = 1, 8 do
      w.grad = nil
      if i == 4 then setfenv(f, {factor = 5}) end
      if i == 5 then setfenv(f, setmetatable({}, {__index = {factor = 7}})) end
      if i == 6 then setfenv(f, _G) end
      if i == 7 then debug.setupvalue(f, 1, 11) end
      if i == 8 then by = 3 end
      local function run() (w * 3):sin():sum():backward() end
      if i % 3 == 0 then coroutine.wrap(run)() else run() end
      see(w.grad, by)
    end
  end)
end)

test("after reset() a refused hook is looked at again", function()
  lt.config.compiled_autograd = true
  local w, writes, n = leaf(4), true, 0
  w:register_hook(function(g) if writes then n = n + 1 end return g * 2 end)
  for round = 1, 2 do
    lt.reset()
    for _ = 1, 3 do
      w.grad = nil;
      (w * 2):sum():backward()
      equal(w.grad[0]:item(), 4)
    end
    local found = false
    for why in pairs(lt.counters().compiled_autograd.eager) do
      found = found or why:find("it writes tables", 1, true) ~= nil
    end
    equal(found, round == 1)
    writes = false
  end
  lt.config.compiled_autograd = false
  equal(n, 3)
end)

same("gradients that are asked for", 2, 4, function(see)
  local x, w = leaf(4, 8), leaf(8, 8)
  w:register_hook(function(g) return g * 2 end)
  for i = 1, 3 do
    local mid = x:matmul(w)
    mid:register_hook(function(g) return g + i end)
    local loss = mid:sin():sum()
    see(lt.grad(loss, {mid, x}, {retain_graph = true}))
    loss:backward(nil, {inputs = {w}})
    see(w.grad, x.grad)
    w.grad = nil
  end
end)

test("create_graph", function()
  compare(function(see)
    local w = leaf(4)
    for i = 1, 3 do
      local y = w:pow(3)
      y:register_hook(function(g) return g * w * i end)
      local g = lt.grad(y:sum(), w, {create_graph = true})
      w.grad = nil
      g:sum():backward()
      see(w.grad)
    end
  end)
end)

called("a hook that writes a variable", "it writes tables or variables", function(see)
  local count = 0
  steps(4, function() return function(g) count = count + 1 return g * count end end)(see)
  see(count)
end)

called("a hook that keeps the gradient", "it writes tables or variables", function(see)
  local kept = {}
  steps(4, function() return function(g) kept[#kept + 1] = g end end)(see)
  for _, g in ipairs(kept) do see(g) end
end)

called("a hook that writes the gradient", "it writes a tensor", steps(4, function()
  return function(g) g:mul_(2) end
end))

called("a hook that writes what the backward reads", "it writes a tensor", steps(4, function(_, _, w)
  return function() w:mul_(2) end
end))

called("a hook that reads a .grad", "it reads .grad", function(see)
  local w, v = leaf(4), leaf(4)
  w:register_hook(function(g) return v.grad and g + v.grad or g end)
  for _ = 1, 4 do
    (v:sin() * w):sum():backward()
    see(w.grad, v.grad)
  end
end)

called("a hook that draws", "it draws random numbers", steps(4, function()
  return function(g) return g * lt.rand_like(g) end
end))

called("a hook that looks at elements", ".*item", steps(4, function()
  return function(g) return g * (g:sum():item() > 0 and 1 or 2) end
end))

called("a hook that gives no tensor", "it gives no tensor", steps(4, function() return function() return 3 end end))

called("a hook that throws", ".*", steps(6, function(i)
  return function(g)
    if i % 3 == 0 then error("the hook's own error", 0) end
    return g * i
  end
end))

called("values that never stay", "recompile_limit is reached", steps(14, function(i)
  return function(g) return g:reshape(-1):narrow(0, i, 1):expand(24):reshape(3, 8) + g end
end))

called("a gradient that is known", "it asks which tensor the gradient is", function(see)
  local w, given = leaf(4), lt.ones(4)
  for _ = 1, 4 do
    w.grad = nil
    local y = w:sin()
    y:register_hook(function(g) return rawequal(g, given) and g * 2 or g * 3 end)
    y:backward(given)
    see(w.grad)
  end
end)

test("a hook that gives another shape is eager's error", function()
  compare(steps(4, function(i) return function(g) if i > 1 then return g:sum() end end end))
end)

test("the .grad of another leaf as a variable of a hook", function()
  compare(function(see)
    local w, v = leaf(4), leaf(4)
    local of_v = lt.zeros(4)
    v.grad = of_v
    w:register_hook(function(g) return g + of_v end)
    for _ = 1, 4 do
      (v:sin() * w):sum():backward()
      see(w.grad, v.grad)
    end
  end)
end)

test("no elements, and one", function()
  compare(function(see)
    local w = leaf(4)
    for _, n in ipairs {0, 0, 1, 1, 0, 3} do
      w.grad = nil
      local y = lt.ones(n, 4) * w
      y:register_hook(function(g) return g * 2 + g.shape[1] end)
      y:sum():backward()
      see(w.grad)
    end
  end)
end)

test("an error between, a freed tensor", function()
  compare(function(see)
    local w = leaf(4)
    for i = 1, 5 do
      w.grad = nil
      local y, factor = w:exp(), lt.ones(4)
      y:register_hook(function(g) return g * factor end)
      if i == 4 then factor:free() end
      local loss = (y * w):sum()
      see(pcall(function() loss:backward() end))
      see(pcall(function() loss:backward() end))
      see(w.grad)
    end
  end)
end)

backwards.holds_nothing("hooks hold nothing", function(factor)
  local w = leaf(4)
  w:register_hook(function(g) return g * factor end);
  (w * 2):sum():backward()
end)

test("reports name them", function()
  lt.reset()
  lt.config.compiled_autograd = true
  local w = leaf(4)
  w:register_hook(function(g) return g * 2 end)
  local step = lt.disable(function() (w * 2):sum():backward() end)
  local report = lt.explain(function()
    for _ = 1, 3 do step() end
  end)()
  lt.config.compiled_autograd = false
  equal(#report.backwards[1].calls, 1)
  truthy(tostring(report):find("with the calls of %S*backward_hooks.lua:%d+"), report)
end)

h.finish()
