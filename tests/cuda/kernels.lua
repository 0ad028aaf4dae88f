-- Tests everything up to a fake GPU: fake/fake_nvrtc.cc compiles the kernels for the host, fake_driver.cc runs them,
-- and graphs of them. Results are compared with the CPU's.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy
local nn, F = lt.nn, lt.nn.functional

lt.manual_seed(0)

-- Compares f on the CPU, on the GPU, and compiled there, run often enough for a recording.
local function same(f, tolerance, ...)
  local here, there = {...}, {}
  for i, x in ipairs(here) do there[i] = x:to("cuda") end
  local want, got = f(unpack(here)), f(unpack(there))
  equal(got.device, "cuda:0")
  truthy((want - got:cpu()):abs():max():item() <= (tolerance or 0) * math.max(1, want:abs():max():item()),
    "differs from the CPU's")
  local compiled = lt.compile(f)
  for _ = 1, 4 do truthy(compiled(unpack(there)):equal(got), "compiled differs from eager") end
end

test("elementwise, rows, columns", function()
  local x, w = lt.randn(33, 40), lt.randn(40)
  same(function(a) return a + 1 end, 0, lt.randn(3))
  same(function(a, b) return F.gelu(a * b + 1) + a end, 1e-6, x, w)
  same(function(a) return a:softmax(-1) end, 1e-6, x)
  same(function(a) return a:sum(0) end, 1e-6, x)
  same(function(a) return a:t():contiguous() * 2 end, 0, x)
  same(function(a) return a:argmax(1):to("float32") end, 0, x)
end)

test("numbers beside tensors of no dimensions, on either device", function()
  local x, scale = lt.randn(4), lt.tensor(3)
  same(function(a) return a * scale end, 0, x)
  deep((x:cuda() * scale:cuda()):totable(), (x * scale):totable())
end)

test("indices and masks", function()
  local x = lt.randn(6, 5)
  local there = x:cuda()
  local index = lt.tensor({4, 0, 2}, {dtype = "int64"})
  deep(there[index]:totable(), x[index]:totable())
  deep(there[index:cuda()]:totable(), x[index]:totable())
  deep(there[there:gt(0)]:totable(), x[x:gt(0)]:totable())
  deep(there:nonzero():totable(), x:nonzero():totable())
  local written = there:clone()
  written[index] = 1
  local expected = x:clone()
  expected[index] = 1
  deep(written:totable(), expected:totable())
  equal((there:gt(0):sum()):item(), (x:gt(0):sum()):item())
end)

test("random numbers are the CPU's", function()
  local expected
  for _, device in ipairs {"cpu", "cuda"} do
    lt.manual_seed(5)
    lt.randn(3, {device = device})
    local r = lt.rand(100, {device = device})
    if expected then truthy(r:cpu():equal(expected), "differ") end
    expected = r
  end
end)

test("a train step, eager and compiled", function()
  local losses = {}
  for _, how in ipairs {"cpu", "cuda", "compiled"} do
    lt.manual_seed(1)
    local net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
    local x, y = lt.randn(8, 10), lt.randint(0, 4, {8})
    if how ~= "cpu" then net:to("cuda"); x, y = x:cuda(), y:cuda() end
    local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-2})
    local step = h.train_step(net, opt)
    if how == "compiled" then step = lt.compile(step) end
    losses[how] = {}
    for i = 1, 6 do losses[how][i] = step(x, y):item() end
  end
  deep(losses.compiled, losses.cuda)
  deep(losses.cuda, losses.cpu, 1e-5)
  truthy(losses.cpu[6] < losses.cpu[1])
end)

test("an index out of bounds is told with its op when the host waits; the GPU goes on", function()
  local x, index = lt.randn(3, 2):cuda(), lt.tensor({7}, {dtype = "int64"}):cuda()
  raises("index_select: index 7 is out of bounds for dimension 0 with size 3",
    function() return x:index_select(0, index):cpu() end)
  equal(lt.ones(3, {device = "cuda"}):sum():item(), 3)
  -- The error names the line that launched the kernel, not the line that waits: for eager kernels, for those of
  -- libraries, and for segments.
  local function line() return debug.getinfo(2, "l").currentline end
  local compiled = lt.compile(function(i) return x:index_select(0, i) + 1 end)
  local y, there
  for _ = 1, 2 do
    y, there = x:index_select(0, index), line()
    raises(("size 3 (launched at kernels.lua:%d)"):format(there), function() return y:cpu() end)
    y, there = x:index_select(0, index), line()
    raises(("size 3 (launched at kernels.lua:%d)"):format(there), lt.cuda.synchronize)
    y, there = x:clone():index_add_(0, index, lt.ones(1, 2):cuda()), line()
    raises(("size 3 (launched at kernels.lua:%d)"):format(there), lt.cuda.synchronize)
    y = compiled(index)
    raises("size 3 (launched at kernels.lua:", lt.cuda.synchronize)
  end
end)

test("a fault's place is named alike for files, prompts and texts", function()
  local text = "local x, i = ...\nlocal y = x:index_select(0, i)\nreturn y + 1 -- more than sixty characters of a text that is its own name"
  local one_line = text:gsub("\n", " ")
  local x, index = lt.randn(3, 2):cuda(), lt.tensor({7}, {dtype = "int64"}):cuda()
  local deep_file = "@" .. ("folder/"):rep(12) .. "file.lua"
  local expected = {
    ["=prompt"] = "prompt:2", ["@file.lua"] = "file.lua:2", [text] = '[string "local x, i = ......"]:2',
    [deep_file] = deep_file:sub(2) .. ":2",
    [one_line] = ('[string "%s..."]:1'):format(one_line:sub(1, 45)),
  }
  for name, place in pairs(expected) do
    local f = assert(loadstring(name == one_line and one_line or text, name))
    for _, how in ipairs {f, lt.compile(f)} do
      local y = how(x, index)
      raises(("size 3 (launched at %s)"):format(place), lt.cuda.synchronize)
    end
  end
end)

test("out of memory in the middle leaves everything as it was", function()
  local x = lt.ones(4, {device = "cuda"})
  local held = {}
  raises("out of memory on cuda:0", function()
    for i = 1, 100 do held[i] = lt.zeros(2 ^ 22, {device = "cuda"}) end
  end)
  raises("out of memory on cuda:0", function() return x:expand(2 ^ 24, 4) + 1 end)
  held = nil
  deep((x + 1):totable(), {2, 2, 2, 2})
end)

test("gradients of scores in attention of float16 are large before they are scaled", function()
  local signs = lt.tensor({{1}, {-1}}, {dtype = "float16", device = "cpu"})
  local function gradient(device)
    local q = lt.zeros(1, 1, 64, 64):to(device, "float16"):requires_grad_()
    local k, v = (lt.full({1, 1, 2, 64}, 0.01):to("float16"):to(device) * signs:to(device)),
      (lt.full({1, 1, 2, 64}, 3):to("float16"):to(device) * signs:to(device))
    F.scaled_dot_product_attention(q, k, v):backward(lt.full({1, 1, 64, 64}, 1000):to(device, "float16"))
    return q.grad:cpu():double()
  end
  local want, got = gradient("cpu"), gradient("cuda")
  truthy((got - want):abs():max():item() <= 0.01 * want:abs():max():item())
end)

h.finish()
