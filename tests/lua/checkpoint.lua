-- Tests lt.checkpoint: results, gradients, errors and random state are those of the plain call, bit for bit, and
-- nothing inside the call is saved.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises
local nn, F = lt.nn, lt.nn.functional

local function leaf(...) return lt.randn({...}, {requires_grad = true}) end
local function show(v)
  return lt.is_tensor(v) and table.concat(v:detach():reshape(-1):totable(), " ") or tostring(v)
end
local function plain(f, ...) return f(...) end

-- program(checkpoint, compile): the same with lt.checkpoint as without, compiled or not.
local function same(name, program)
  test(name, function()
    local function seen(checkpoint, compile)
      lt.manual_seed(3)
      local texts, results = {}, {program(checkpoint, compile)}
      for i = 1, table.maxn(results) do texts[i] = show(results[i]) end
      return table.concat(texts, "\n")
    end
    local function eager(f) return f end
    local want = seen(plain, eager)
    equal(seen(lt.checkpoint, eager), want, "eager")
    lt.reset()
    equal(seen(lt.checkpoint, lt.compile), want, "compiled")
  end)
end

same("a block with dropout", function(checkpoint, compile)
  local x, w, b = leaf(4, 8), leaf(8, 8), leaf(8)
  local function block(x, p) return F.dropout(F.gelu(F.linear(x, w, b)) * lt.rand(4, 8), p) end
  local f = compile(function(x) return checkpoint(block, checkpoint(block, x, 0.5), 0.2):sum() end)
  local loss = f(x)
  local after = lt.rand(3)
  loss:backward()
  return loss, after, lt.rand(3), x.grad, w.grad, b.grad
end)

same("nested, several results, what is no tensor", function(checkpoint, compile)
  local x, w = leaf(4, 8), leaf(8, 8)
  local function inner(x) return (x:matmul(w)):sin() end
  local function outer(x, scale, list)
    local y = checkpoint(inner, x * scale)
    return y, checkpoint(inner, y:exp()), #list, "text", nil, 7
  end
  local f = compile(function(x) return checkpoint(outer, x, 0.1, {1, 2}) end)
  local y, z, n, text, none, seven = f(x)
  local total = y:sum() + z:pow(2):sum()
  total:backward()
  return n, text, none, seven, y, z, x.grad, w.grad
end)

same("lt.grad, retained, twice, of a part", function(checkpoint, compile)
  local x, w = leaf(4, 8), leaf(8, 8)
  local f = compile(function(x) return checkpoint(function(x) return x:matmul(w):exp():sin() end, x) end)
  local y = f(x)
  local a = lt.grad(y:sum(), w, {retain_graph = true})[1]
  local b = lt.grad(y:sum(), x, {retain_graph = true})[1]
  y:sum():backward()
  local ok, message = pcall(function() y:sum():backward() end)
  return a, b, x.grad, w.grad, ok, message:gsub("^.-%d+: ", "")
end)

same("double backward and hooks", function(checkpoint, compile)
  local x, w = leaf(4, 8), leaf(8, 8)
  local f = compile(function(x)
    return checkpoint(function(x) return F.dropout(x:matmul(w):exp():sin(), 0.5) end, x)
  end)
  local y = f(x)
  y:register_hook(function(g) return g * 2 end)
  local g = lt.grad(y:sum(), {x, w}, {create_graph = true})
  local second = g[1]:pow(2):sum() + g[2]:sin():sum()
  second:backward()
  return g[1], g[2], x.grad, w.grad
end)

same("a module with running statistics", function(checkpoint)
  local net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))
  local x = leaf(16, 8)
  for _ = 1, 3 do checkpoint(net, x):sum():backward() end
  local seen = {x.grad}
  for _, p in ipairs(net:parameters()) do seen[#seen + 1] = p.grad end
  for _, b in ipairs(net:buffers()) do seen[#seen + 1] = b end
  return unpack(seen)
end)

same("writes within, to what came in", function(checkpoint)
  local x, c = leaf(4, 8), lt.ones(4, 8)
  local y = checkpoint(function(x)
    local a = (x * 2):exp():sin() + c
    c:add_(1)
    a:mul_(c:clone())
    return a:sin():exp()
  end, x)
  y:sum():backward()
  return y, c, x.grad
end)

same("autocast of then", function(checkpoint)
  local x, w = leaf(4, 8), leaf(8, 8)
  local y = lt.autocast("cpu", {dtype = lt.bfloat16}, function()
    return checkpoint(function(x) return x:matmul(w):sin() end, x)
  end)
  y:float():sum():backward()
  return y:float(), x.grad, w.grad
end)

same("without gradients", function(checkpoint)
  return lt.no_grad(function() return checkpoint(function(x) return x * 2 end, lt.ones(3)) end)
end)

test("nothing is kept until the backward", function()
  local function allocated()
    collectgarbage()
    collectgarbage()
    return lt.memory().allocated
  end
  local x = leaf(128, 128)
  local function deep(x)
    for _ = 1, 20 do x = x:sin():exp() end
    return x
  end
  local before = allocated()
  local y = lt.checkpoint(deep, x)
  truthy(allocated() - before <= 2 * 128 * 128 * 4, allocated() - before)
  y:sum():backward()
  y = nil
  equal(allocated(), before + 128 * 128 * 4)
end)

test("what was read must stay as it was", function()
  local x, b = leaf(4), leaf(4)
  local y = lt.checkpoint(function(x) return (x + b):exp() end, x)
  lt.no_grad(function() b:fill_(1) end)
  raises("checkpoint: a tensor that its function read has been modified by an inplace operation", function()
    y:sum():backward()
  end)
end)

test("a function that does otherwise the second time", function()
  local calls = 0
  local y = lt.checkpoint(function(x)
    calls = calls + 1
    return calls == 1 and x:exp():sin() or x:exp()
  end, leaf(4))
  raises("checkpoint: the function did otherwise", function() y:sum():backward() end)
  equal(calls, 2)
end)

test("errors leave all as it was", function()
  raises("oh no", lt.checkpoint, function() error("oh no") end)
  local calls = 0
  local y = lt.checkpoint(function(x)
    calls = calls + 1
    if calls == 2 then error("second") end
    return x:exp()
  end, leaf(4))
  local state = lt.get_rng_state()
  raises("second", function() y:sum():backward() end)
  truthy(lt.equal(state, lt.get_rng_state()))
  y:sum():backward()
  equal(calls, 3)
  raises("checkpoint", lt.checkpoint, 3)
end)

-- The function and its arguments go with the results that they hold, and are there as long as a graph leads to them.
test("a function that holds its own result is collected", function()
  local function is_collected(use)
    local seen = setmetatable({}, {__mode = "k"})
    do
      local x, module = leaf(10), {}
      seen[module] = true
      function module.f(x) return (x * 2):sin() * (module.scale or 1), {module} end
      module.y = lt.checkpoint(module.f, x)
      use(module, x)
    end
    for _ = 1, 4 do collectgarbage() end
    return next(seen) == nil
  end
  truthy(is_collected(function() end), "kept")
  truthy(is_collected(function(module) module.y = nil end), "dropped")
  truthy(is_collected(function(module) module.y:sum():backward() end), "backward")
  truthy(is_collected(function(module) module.y:backward(lt.ones(10)) end), "its own backward")
  truthy(is_collected(function(module) module.loss = module.y:sum() module.loss:backward() end), "a loss of it")
end)

test("a graph keeps the function of a result that is gone", function()
  local x = leaf(10)
  local function loss_of(scale) return lt.checkpoint(function(x) return (x * scale):sin() end, x):sum() end
  local loss = loss_of(lt.ones(10) * 3)
  for _ = 1, 4 do collectgarbage() end
  loss:backward()
  truthy(lt.allclose(x.grad, (x:detach() * 3):cos() * 3))
end)

test("a function under it does not yield", function()
  local x, w = leaf(3), leaf(3)
  local co = coroutine.create(function()
    return lt.checkpoint(function(x)
      local a = (x * 2):sin()
      coroutine.yield()
      return a:exp()
    end, x)
  end)
  local ok, message = coroutine.resume(co)
  equal(ok, false)
  truthy(message:find("attempt to yield across C%-call boundary"), message)
  -- Later code is not affected by the error: eager code is right, and compiled functions run compiled.
  local z = (w * w):exp():sum()
  z:backward()
  truthy(w.grad:equal(lt.grad((w * w):exp():sum(), w)))
  local f, before = lt.compile(function(x) return x * 2 + 1 end), lt.counters().cache.hits
  for _ = 1, 2 do f(x) end
  equal(lt.counters().cache.hits, before + 1)
  -- Coroutines of its own are its own matter.
  local y = lt.checkpoint(function(x)
    local step = coroutine.wrap(function() for n = 1, 2 do coroutine.yield(x * n) end end)
    return step():sin() + step():exp()
  end, x)
  truthy(y:equal(x:sin() + (x * 2):exp()))
  y:sum():backward()
  truthy(lt.allclose(x.grad, (x:cos() + (x * 2):exp() * 2):detach()))
end)

test("errors keep the traceback of the function", function()
  local function inner(x)
    local y = x:matmul(x)
    return y
  end
  local ok, traceback = xpcall(function() return (lt.checkpoint(inner, leaf(2, 3))) end, debug.traceback)
  equal(ok, false)
  truthy(select(2, traceback:gsub("checkpoint.lua:%d+: in function", "")) >= 2, traceback)
end)

test("what it has no effect on is told", function()
  local x, w = leaf(4, 4), leaf(4, 4)
  local function block(x) return x:matmul(w):sin() end
  local function step(x)
    local loss = lt.checkpoint(block, lt.checkpoint(block, x)):sum()
    loss:backward()
    return loss
  end
  local report = lt.explain(step)(x)
  equal(report.plain_checkpoints, 2)
  truthy(tostring(report):find("2 calls of lt.checkpoint made plain calls", 1, true), tostring(report))
  equal(lt.explain(block)(x).plain_checkpoints, 0)
  local compiled = lt.compile(block)
  compiled(x)
  local before = lt.counters().cache.checkpointed
  lt.checkpoint(compiled, x):sum():backward()
  equal(lt.counters().cache.checkpointed, before + 2)
end)

h.finish()
