-- Tests what a compiled forward keeps for its backward, and what that recomputes: gradients are eager's bit for bit
-- with default and random cuts, whatever is written in between; random numbers are those of the forward.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises
local F = lt.nn.functional

local function cut(seed) lt.config.random_cut = seed end

local function show(v)
  if type(v) == "string" then return (v:gsub("^[^ ]*:%d+: ", "")) end
  if not lt.is_tensor(v) then return tostring(v) end
  return table.concat(v:detach():reshape(-1):totable(), " ")
end

-- program(compile) gives values, which must be the same whether functions are compiled or not, under each cut.
local CUTS = tonumber(os.getenv "LUTRA_TEST_CUTS") or 12
local function same(name, program)
  test(name, function()
    local function seen(compile)
      lt.manual_seed(7)
      local texts = {}
      local results = {pcall(program, compile)}
      truthy(results[1], results[2])
      for i = 1, table.maxn(results) do texts[#texts + 1] = show(results[i]) end
      return table.concat(texts, "\n")
    end
    local want = seen(function(f) return f end)
    for seed = 0, CUTS do
      cut(seed)
      lt.reset()
      equal(seen(function(f) return lt.compile(f) end), want, "cut " .. seed)
    end
    cut(0)
  end)
end

local function leaf(...) return lt.randn({...}, {requires_grad = true}) end

-- Bytes of live tensors, wherever they lie.
local function allocated()
  collectgarbage()
  collectgarbage()
  local m = lt.memory()
  return m.allocated + m.device
end

local function block(x, w, b, v)
  local y = F.layer_norm(x, {8}, nil, b)
  return (F.gelu(F.linear(y, w, b)) * lt.sigmoid(x)):matmul(v)
end

same("a block", function(compile)
  local x, w, b, v = leaf(4, 8), leaf(8, 8), leaf(8), leaf(8, 3)
  local y = compile(block)(x, w, b, v)
  y:pow(2):sum():backward()
  return y, x.grad, w.grad, b.grad, v.grad
end)

same("writes that eager allows between forward and backward", function(compile)
  local x, w, b = leaf(4, 8), leaf(8, 8), leaf(8)
  local f = compile(function(x, w, b) return F.gelu(F.linear(F.layer_norm(x, {8}, nil, b), w) + b) * 2 end)
  local y = f(x, w, b)
  lt.no_grad(function() b:fill_(100) end)
  y:sum():backward()
  return x.grad, w.grad, b.grad
end)

same("writes that eager refuses", function(compile)
  local x, w, b = leaf(4, 8), leaf(8, 8), leaf(8)
  local y = compile(function(x, w, b) return F.gelu(F.linear(x, w) + b):exp() end)(x, w, b)
  lt.no_grad(function() w:fill_(100) end)
  return pcall(y.backward, y, lt.ones(4, 8))
end)

same("a write to a result that eager did not save", function(compile)
  local x = leaf(4, 8)
  local y, z = compile(function(x)
    local y = x * 3
    return y, (y + 1):exp():sin()
  end)(x)
  lt.no_grad(function() y:fill_(5) end)
  z:sum():backward()
  return x.grad
end)

same("a write to an input, asking for the part that does not need it", function(compile)
  local x, b = leaf(4, 8), leaf(4, 8)
  local y = compile(function(x, b) return F.gelu(x) * b end)(x, b)
  lt.no_grad(function() x:fill_(5) end)
  return lt.grad(y:sum(), b, {retain_graph = true})[1], pcall(lt.grad, y:sum(), x)
end)

same("writes within the forward", function(compile)
  local x, c = leaf(4, 8), lt.ones(4, 8)
  local y = compile(function(x, c)
    local a = (x * 2):exp():sin() + c
    c:add_(1)
    a:mul_(2)
    return (a + c):sin():exp():sin()
  end)(x, c)
  y:sum():backward()
  return y, c, x.grad
end)

same("random numbers are those of the forward", function(compile)
  local x = leaf(16, 8)
  local f = compile(function(x) return F.dropout(F.gelu(F.dropout(x, 0.3) * lt.rand(16, 8)), 0.5) end)
  local y = f(x)
  local state = lt.get_rng_state()
  lt.manual_seed(99)
  local before = lt.get_rng_state()
  y:sum():backward({retain_graph = true})
  truthy(lt.equal(before, lt.get_rng_state()), "the generator")
  lt.set_rng_state(state)
  local z = f(x)
  y:sum():backward()
  z:sum():backward()
  return y, z, x.grad, lt.rand(3)
end)

same("double backward", function(compile)
  local x, w, b, v = leaf(4, 8), leaf(8, 8), leaf(8), leaf(8, 3)
  local y = compile(function(x, w, b, v) return F.dropout(block(x, w, b, v), 0.5) end)(x, w, b, v)
  lt.rand(5)
  local g = lt.grad(y:exp():sum(), {x, w}, {create_graph = true})
  local second = g[1]:pow(2):sum() + g[2]:sin():sum()
  second:backward()
  return g[1], g[2], x.grad, w.grad, b.grad, v.grad
end)

same("hooks, several results and graph breaks", function(compile)
  local x, w, b, v = leaf(4, 8), leaf(8, 8), leaf(8), leaf(8, 3)
  local f = compile(function(x, w, b, v)
    local y = F.gelu(x:matmul(w) + b)
    io.stderr:write("")
    local z = block(y, w, b, v)
    return y, z
  end)
  local y, z = f(x, w, b, v)
  y:register_hook(function(g) return g * 2 end)
  local some = lt.grad(z:sum(), {y, w}, {retain_graph = true})
  z:sum():backward({retain_graph = true})
  y:sum():backward()
  return some[1], some[2], x.grad, w.grad, b.grad, v.grad, pcall(z.backward, z, lt.ones(4, 3))
end)

same("gradients of gradients by results that are views, which a backward reads", function(compile)
  local x, w, v = leaf(4, 8), leaf(5, 3), leaf(5)
  local a, b, l = compile(function(x)
    local a, b = x[":, 1:6"], x:exp()[":, 0:5"]
    return a, b, (a:t():t():matmul(w) * b:matmul(v):unsqueeze(1)):sum()
  end)(x)
  a:retain_grad()
  b:retain_grad()
  local g, k = lt.grad(l, {w, v}, {create_graph = true})
  local more = g:pow(2):sum() + k:pow(2):sum()
  more:backward(nil, {retain_graph = true})
  local first, second = a.grad:clone(), b.grad:clone()
  l:backward()
  return first, second, a.grad, b.grad, w.grad, v.grad, x.grad
end)

same("indices and what may fail", function(compile)
  local e, i = leaf(10, 8), lt.tensor({1, 3, 9, 3}, {dtype = "int64"})
  local y = compile(function(e, i)
    local x = F.embedding(i, e)
    local s, k = lt.sort(x * x, 1)
    return F.log_softmax(F.gelu(s + x):cumsum(1), 1)
  end)(e, i)
  F.nll_loss(y, lt.tensor({0, 1, 2, 7}, {dtype = "int64"})):backward()
  return e.grad
end)

test("a forward whose backward never comes keeps nothing", function()
  local f = lt.compile(function(x) return F.gelu(x):exp() * lt.sigmoid(x) end)
  local x = leaf(256, 256)
  for _ = 1, 3 do f(x):sum():backward() end
  local before = allocated()
  for _ = 1, 20 do f(x) end
  equal(allocated(), before)
end)

local function saved(budget, f, ...)
  lt.config.activation_memory_budget = budget
  lt.reset()
  local r = lt.explain(f)(...)
  lt.config.activation_memory_budget = 1
  return r.saved_bytes, r.recomputed_bytes, r
end

test("lt.explain tells what is saved", function()
  local x = leaf(64, 64)
  local some, again, r = saved(1, function(x) return x:exp():sin():exp():sin() end, x)
  equal(some, 64 * 64 * 4)
  equal(again, 64 * 64 * 4)
  truthy(tostring(r):find("for the backward: 16.0 KiB saved, 16.0 KiB recomputed", 1, true), tostring(r))
  equal(saved(1, function(x) local v = x:t() return v, v:exp() end, x), 64 * 64 * 4)
  equal(saved(1, function(x) local v = x:t() return v, v:square() end, x), 0)
  local _, _, none = saved(1, function(x) return x * 2 end, lt.ones(3))
  truthy(not tostring(none):find("for the backward", 1, true))
end)

-- A deep network: its gradients under each budget are eager's, and what is saved fits.
test("a budget holds", function()
  local layers = {}
  for i = 1, 6 do layers[i] = {leaf(16, 16), leaf(16)} end
  local function net(x)
    for _, l in ipairs(layers) do x = F.layer_norm(F.gelu(F.linear(x, l[1], l[2])), {16}) + lt.softmax(x, 1) end
    return x
  end
  local x = leaf(64, 16)
  local function gradients(f)
    f(x):pow(2):sum():backward()
    local text = show(x.grad)
    x.grad = nil
    for _, l in ipairs(layers) do
      text = text .. show(l[1].grad) .. show(l[2].grad)
      l[1].grad, l[2].grad = nil, nil
    end
    return text
  end
  local want, some, again = gradients(net), saved(1, net, x)
  local last = math.huge
  for _, budget in ipairs {1, 0.75, 0.5, 0.25, 0.1, 0} do
    local bytes = saved(budget, net, x)
    truthy(bytes <= budget * (some + again), budget .. ": " .. bytes .. " of " .. some + again)
    truthy(bytes <= last, "less budget, more bytes")
    last = bytes
    lt.config.activation_memory_budget = budget
    lt.reset()
    equal(gradients(lt.compile(net)), want, "budget " .. budget)
    lt.config.activation_memory_budget = 1
  end
  equal(last, 0)
end)

test("a small GPT keeps seven tenths, a half, a quarter of what it would keep, measured", function()
  local GPT = dofile("../../scripts/models/gpt.lua")
  local net = GPT {d = 128, heads = 4, layers = 4, vocabulary = 96, length = 128}
  local x, y = lt.randint(0, 96, {16, 128}), lt.randint(0, 96, {16, 128})
  local function loss(x, y) return F.cross_entropy(net(x):view(-1, 96), y:view(-1)) end
  local function held(f)
    local before = allocated()
    local kept = f(x, y)
    local bytes = allocated() - before
    truthy(kept.requires_grad)
    return bytes
  end
  held(loss)
  local eager = held(loss)
  for _, budget in ipairs {1, 0.5, 0.25} do
    local some, again = saved(budget, loss, x, y)
    local part = math.min(budget, 0.7)
    truthy(some <= part * (some + again), ("budget %g: %d of %d are saved"):format(budget, some, some + again))
    lt.config.activation_memory_budget = budget
    local f = lt.compile(loss)
    f(x, y)
    local bytes = held(f)
    lt.config.activation_memory_budget = 1
    truthy(math.abs(bytes - some) <= 4096, ("budget %g: %d are held, %d told"):format(budget, bytes, some))
    truthy(bytes <= part * eager, ("budget %g: eager holds %d, this %d"):format(budget, eager, bytes))
  end
end)

test("under a budget, writes to what is read again are refused", function()
  lt.config.activation_memory_budget = 0
  local x, b = leaf(4, 8), leaf(8)
  local y = lt.compile(function(x, b) return ((x + b):exp() + 1):exp() * 2 end)(x, b)
  lt.config.activation_memory_budget = 1
  lt.no_grad(function() b:fill_(1) end)
  raises("modified by an inplace operation", y.backward, y, lt.ones(4, 8))
end)

test("bad budgets", function()
  local function set(v) lt.config.activation_memory_budget = v end
  raises("config: activation_memory_budget must be a number from 0 to 1, got 2", set, 2)
  raises("config: activation_memory_budget must be a number from 0 to 1, got -0.5", set, -0.5)
  raises("config: activation_memory_budget must be a number, got string", set, "all")
  equal(lt.config.activation_memory_budget, 1)
end)

test("inputs that lie with gaps keep their strides", function()
  local base = lt.rand(4, 6)
  local function gradient(f)
    local leaf = base:clone():requires_grad_()
    f(leaf[{":", "::2"}]):sum():backward()
    return leaf.grad
  end
  for _, f in ipairs {function(x) return (x * 2):tanh() * x:exp() end, function(x) return x:lerp(x * 2, x) end} do
    truthy(gradient(lt.compile(f)):equal(gradient(f)))
  end
end)

same("inputs that are freed in between, twice", function(compile)
  local x, u = leaf(4, 8), leaf(4, 8)
  local y = compile(function(x, u) return (x * 2):sin():exp() * u:exp() end)(x, u)
  x:free()
  local ok, g = pcall(lt.grad, y:sum(), u, {create_graph = true})
  if ok then g:pow(2):sum():backward() end
  return ok, g, u.grad
end)

same("inputs that are freed in between", function(compile)
  local x, w, u = leaf(4, 8), leaf(4, 8), leaf(4, 8)
  local y = compile(function(x, w, u) return (x * 2):sin() * u:exp(), (w * w):sum() end)(x, w, u)
  x:free()
  local ok = pcall(function() y:sum():backward() end)
  return ok, x.grad, u.grad
end)

h.finish()
