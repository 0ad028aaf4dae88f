-- Tests that segments replayed as CUDA graphs give eager's results, whatever moves or stays alive between runs.
package.path = "../lua/?.lua;" .. package.path
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

lt.set_default_device("cuda")

local w, bias = lt.randn(16, 8), lt.randn(8)
local function two_products(x) return (x:matmul(w) + bias):relu():matmul(w:t()) end

test("inputs that move, outputs that stay", function()
  local f, kept = lt.compile(two_products), {}
  for i = 1, 8 do
    local x = lt.randn(4, 16)
    kept[i] = {x, f(x), two_products(x):clone()}
  end
  for _, k in ipairs(kept) do truthy(lt.equal(k[2], k[3])) end
  truthy(lt.equal(kept[1][1]:matmul(w):add(bias):relu():matmul(w:t()), kept[1][2]))
end)

test("an output that a product reads is where the run has put it", function()
  local function f(x)
    local a = (x * 2):tanh()
    return a, a:matmul(w)
  end
  local compiled, kept = lt.compile(f), {}
  for i = 1, 12 do
    local x = lt.randn(4, 16)
    local want_a, want = f(x)
    local a, y = compiled(x)
    truthy(lt.equal(a, want_a) and lt.equal(y, want))
    if i % 3 > 0 then kept[#kept + 1] = a end
    y = nil
    collectgarbage()
    collectgarbage()
  end
end)

test("sizes that change and come back", function()
  local f = lt.compile(two_products)
  for _, n in ipairs {4, 4, 4, 7, 7, 4, 7, 4} do
    local x = lt.randn(n, 16)
    truthy(lt.equal(f(x), two_products(x)))
  end
end)

test("outputs that are freed or written", function()
  local f, x = lt.compile(two_products), lt.randn(4, 16)
  local want = two_products(x)
  for i = 1, 6 do
    local y = f(x)
    truthy(lt.equal(y, want))
    if i % 2 == 0 then y:free() else y:zero_() end
  end
end)

test("numbers and random calls go on", function()
  local function noisy(x, scale) return lt.nn.functional.dropout(x:matmul(w) * scale, 0.5):matmul(w:t()) end
  local f, x, want = lt.compile(noisy), lt.randn(4, 16), {}
  lt.manual_seed(3)
  for i = 1, 5 do want[i] = noisy(x, i) end
  lt.manual_seed(3)
  for i = 1, 5 do truthy(lt.equal(f(x, i), want[i])) end
  truthy(not lt.equal(want[2] / 2, want[3] / 3))
end)

-- Launches wait only for their dependencies: the driver of this test runs them in another order.
test("what is written after it was read", function()
  local function make()
    local v = lt.ones(16, 8)
    return function(x)
      local y = x:matmul(v)
      v:add_(1)
      return y
    end
  end
  local eager, f = make(), lt.compile(make())
  for _ = 1, 6 do
    local x = lt.randn(4, 16)
    truthy(lt.equal(f(x), eager(x)))
  end
end)

test("temporary memory of calls side by side", function()
  local function sums(x, index)
    local all = {}
    for i = 1, 9 do all[i] = lt.zeros(20, 3):index_add(0, (index + i) % 20, x) end
    return all
  end
  local f = lt.compile(sums)
  for _ = 1, 4 do
    local x, index = lt.randn(200, 3), lt.randint(0, 20, {200})
    local got, want = f(x, index), sums(x, index)
    for i = 1, 9 do truthy(lt.equal(got[i], want[i])) end
  end
end)

test("a train step keeps its gradients", function()
  local function make()
    lt.manual_seed(5)
    local net = lt.nn.Sequential(lt.nn.Linear(16, 8), lt.nn.ReLU(), lt.nn.Linear(8, 4))
    local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-2})
    return net, h.train_step(net, opt)
  end
  local net_a, eager = make()
  local net_b, step = make()
  step = lt.compile(step)
  for i = 1, 6 do
    lt.manual_seed(i)
    local x, y = lt.randn(4, 16), lt.randint(0, 4, {4})
    local a, b = eager(x, y), step(x, y)
    truthy(lt.equal(a, b))
    for k, p in ipairs(net_a:parameters()) do
      truthy(lt.equal(p, net_b:parameters()[k]) and lt.equal(p.grad, net_b:parameters()[k].grad))
    end
  end
end)

-- Makes a step on a net of about 256 KB of weights.
local function make_large_step()
  local net = lt.nn.Sequential(lt.nn.Linear(256, 128), lt.nn.ReLU(), lt.nn.Linear(128, 256))
  local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-2})
  return net, lt.compile(function(x)
    local loss = net(x):pow(2):mean()
    opt:zero_grad()
    loss:backward()
    opt:step()
    return loss
  end)
end

local function allocated()
  jit.flush() -- LuaJIT's traces hold what they ran
  collectgarbage()
  collectgarbage()
  return lt.cuda.memory_allocated()
end

test("steps write their gradients where the last ones were", function()
  local net, step = make_large_step()
  local x = lt.randn(4, 256)
  for _ = 1, 2 do step(x) end
  local before = allocated()
  lt.cuda.reset_peak_memory_stats()
  for _ = 1, 5 do step(x) end
  truthy(lt.cuda.max_memory_allocated() <= before + 4096)
  truthy(allocated() <= before)
end)

test("a gradient that is held is not written", function()
  local net, step = make_large_step()
  local x, kept = lt.randn(4, 256), {}
  for i = 1, 6 do
    step(x)
    local g = net:parameters()[1].grad
    kept[i] = i % 2 == 0 and {g, g:clone()} or {g:view(-1), g:view(-1):clone()} -- itself, or its memory only
    g = nil
  end
  for _, k in ipairs(kept) do truthy(lt.equal(k[1], k[2])) end
  truthy(not lt.equal(kept[2][1], kept[4][1]))
end)

test("gradients go with their model", function()
  local before = allocated()
  local _, step = make_large_step()
  local x = lt.randn(4, 256)
  for _ = 1, 4 do step(x) end
  _, step, x = nil, nil, nil
  truthy(allocated() - before < 256 * 128 * 4)
end)

test("gradients that are held now and then take a few sets, not one a time", function()
  local net, step = make_large_step()
  local x, kept = lt.randn(4, 256), nil
  for _ = 1, 4 do step(x) end
  local before = allocated()
  for i = 1, 100 do
    step(x)
    if i % 2 == 0 then
      kept = {net:parameters()[1].grad, net:parameters()[1].grad:clone()}
    elseif kept then
      truthy(lt.equal(kept[1], kept[2]))
      kept = nil
      collectgarbage()
    end
  end
  truthy(allocated() - before <= 4 * 2 * 256 * 128 * 4)
end)

test("compiled segments take one working memory in turn", function()
  local x = lt.randn(64, 256)
  local first = lt.compile(function(x) return (x:matmul(x:t()):relu():matmul(x) * 2):sum() end)
  local second = lt.compile(function(x) return (x:matmul(x:t()):tanh():matmul(x) + 1):sum() end)
  for _ = 1, 3 do first(x) end
  local before = allocated()
  for _ = 1, 3 do second(x) end
  truthy(allocated() - before < 64 * 256 * 4)
  local a, b = first(x), second(x)
  for _ = 1, 3 do truthy(lt.equal(first(x), a) and lt.equal(second(x), b)) end
end)

test("a captured frame is for the GPU that was current where it asked", function()
  local made = lt.compile(function() return lt.ones(3, {device = "cuda"}) * 2 end)
  local moved = lt.compile(function(x) return x:to("cuda") * 2 end)
  local across = lt.compile(function(x)
    local a = lt.ones(2, {device = "cuda"}) * x
    lt.cuda.set_device(1)
    local b = lt.ones(2, {device = "cuda"}) * 3
    lt.cuda.set_device(0)
    return a, b, lt.ones(2, {device = "cuda"}) + x
  end)
  local x = lt.ones(2, {device = "cuda:0"})
  for _, i in ipairs {0, 0, 1, 1, 0, 1} do
    lt.cuda.set_device(i)
    equal(made().device, "cuda:" .. i)
    equal(moved(x).device, "cuda:" .. i)
  end
  lt.cuda.set_device(0)
  for _ = 1, 3 do
    local a, b, c = across(x)
    h.deep({a.device, b.device, c.device, lt.cuda.current_device()}, {"cuda:0", "cuda:1", "cuda:0", 0})
  end
end)

test("a fault is told by its op and line when its code is gone", function()
  local f = lt.compile(assert(loadstring("return function(x, i) return x:gather(0, i) * 2 end", "=gone.lua"))())
  local x, bad = lt.randn(4), lt.tensor({1, 7}, {dtype = "int64"})
  f(x, lt.tensor({1, 2}, {dtype = "int64"}))
  f(x, bad)
  f = nil
  allocated()
  h.raises("gather: index 7 is out of bounds for dimension 0 with size 4", lt.cuda.synchronize)
end)

-- Returns a program's log of its recordings.
local function recordings(text)
  local name = h.write(os.tmpname(), 'lt.set_default_device("cuda") ' .. text)
  local said = h.shell(("LUTRA_LOGS=cudagraphs %s %s 2>&1"):format(h.program(), name))
  os.remove(name)
  return said
end

test("kernels without libraries are recorded once, wherever working memory lies", function()
  local said = recordings [[
    local function steps(name)
      return assert(loadstring([=[return function(x)
        local u = (x - (x * 2):sum(1, true)):exp()
        return u:sum(0, true) * u, (u:sum(1, true) - u):sum(0)
      end]=], "=" .. name))()
    end
    local plain, small, large = steps "plain", lt.compile(steps "small"), lt.compile(steps "large")
    local x = lt.randn(8, 8)
    for i = 1, 5 do
      local a, b = small(x)
      local want_a, want_b = plain(x)
      assert(lt.equal(a, want_a) and lt.equal(b, want_b))
      large(lt.randn(64 * 2 ^ i, 64)) -- wants a larger arena each time
    end]]
  local _, times = said:gsub("small:%d is recorded", "")
  equal(times, 1, said)
end)

test("lt.config.cudagraphs = false records nothing", function()
  local said = recordings [[
    local function f(x) return (x * 2):sum(1, true), x:sum() end
    local compiled, x = lt.compile(f), lt.randn(4, 4)
    local function call(n)
      for _ = 1, n do
        local a, b = compiled(x)
        local want_a, want_b = f(x)
        assert(lt.equal(a, want_a) and lt.equal(b, want_b))
      end
    end
    lt.config.cudagraphs = false
    call(4)
    io.stderr:write "still launched\n"
    lt.config.cudagraphs = true
    call(4)]]
  truthy(said:find("still launched", 1, true), said)
  truthy(not said:match("(.-)still launched"):find("is recorded", 1, true), said)
  truthy(said:match("still launched(.*)"):find("is recorded", 1, true), said)
end)

local w2, u2 = lt.randn({8, 8}, {requires_grad = true}), lt.randn({6, 8}, {requires_grad = true})
local function cell(c, x)
  local n = (c:mm(w2) * 0.1 + x:mm(u2) * 0.1):tanh()
  return n, n
end

test("a scan: inputs that move, outputs and gradients that stay", function()
  local function f(xs, h0)
    w2.grad, u2.grad = nil, nil
    local last, ys = lt.scan(cell, h0, xs)
    local l = ys:square():mean() + last:sum()
    l:backward()
    return l, last, ys
  end
  local compiled, kept = lt.compile(f, {fullgraph = true}), {}
  for i = 1, 8 do
    local xs, h0 = lt.randn(20, 4, 6), lt.randn(4, 8)
    local l, last, ys = compiled(xs, h0)
    local got = {l, last, ys, w2.grad, u2.grad}
    local want_l, want_last, want_ys = f(xs, h0)
    kept[i] = {got, {want_l, want_last, want_ys, w2.grad, u2.grad}}
    if i % 3 == 0 then kept[i - 1] = nil end
  end
  for _, k in pairs(kept) do
    for i = 1, 5 do truthy(lt.equal(k[1][i], k[2][i]), i) end
  end
end)

test("outputs that all stay are copies in the end", function()
  local compiled = lt.compile(function(xs) return (lt.scan(cell, xs[0]:matmul(u2), xs)), xs:sum() end)
  local kept = {}
  for i = 1, 12 do
    local xs = lt.randn(20, 4, 6)
    kept[i] = {xs, compiled(xs)}
  end
  for _, k in ipairs(kept) do truthy(lt.equal(k[2], (lt.scan(cell, k[1][0]:matmul(u2), k[1])))) end
  local said = recordings [[
    local f, kept = lt.compile(function(x) return (lt.scan(function(c, x) return c:cos() * x end, x[0], x)) end), {}
    for i = 1, 40 do kept[i] = f(lt.randn(20, 3)) end]]
  local _, times = said:gsub("is recorded", "")
  equal(times, 6, said) -- where the input is, where it is brought, three more, copies
end)

test("a scan in a scan, with temporary memory of libraries, in reverse and along another dim", function()
  local index = lt.randint(0, 5, {40})
  local function f(xs)
    local last, ys = lt.scan(function(c, x)
      local inner = lt.scan(function(a, row) return a * 0.5 + row, nil end, c, x:abs())
      local sums = lt.zeros(5, 3):index_add(0, index, inner:expand(40, 3))
      return (sums:sum(0) * 0.01 + inner):tanh(), sums
    end, lt.zeros(3), xs, {dim = 1, reverse = true})
    return last * 2, ys:sum(1)
  end
  local compiled = lt.compile(f, {fullgraph = true})
  for _ = 1, 5 do
    local xs = lt.randn(18, 20, 3)
    local a, b = compiled(xs)
    local want_a, want_b = f(xs)
    truthy(lt.equal(a, want_a) and lt.equal(b, want_b))
  end
end)

test("two scans of one function side by side", function()
  local function f(a, b)
    local function run(xs) return (lt.scan(function(c, x) return (c + x):sin() * x:sum(), nil end, xs[0] * 0, xs)) end
    local p, q = run(a), run(b)
    return p + q, q - p
  end
  local compiled = lt.compile(f, {fullgraph = true})
  for _ = 1, 5 do
    local a, b = lt.randn(30, 7), lt.randn(30, 7)
    local p, q = compiled(a, b)
    local want_p, want_q = f(a, b)
    truthy(lt.equal(p, want_p) and lt.equal(q, want_q))
  end
end)

test("what a scan's steps are is recorded, up to a number of launches", function()
  local said = recordings [[
    local function last(x) return (lt.scan(function(c, x) return (c + x:sum()):tanh(), nil end, x[0], x)) end
    local short, long = lt.compile(last), lt.compile(function(x) return last(x) end)
    for i = 1, 6 do
      short(lt.randn(20, 3))
      if i < 4 then long(lt.randn(17000, 2)) end
    end]]
  truthy(said:find(":1 is recorded %(1%): 1 launches, 20 nodes, 19 launched early\n"), said)
  truthy(said:find(":1 is not recorded: it has more than 16384 launches\n"), said)
end)

test("compiled code ran", function() truthy(lt.counters().cache.hits >= 25) end)

h.finish()
