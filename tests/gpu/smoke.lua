-- The first minutes on a GPU: memory, copies, elementwise, rows, columns, products, a train step. Every result against
-- the CPU's. lutra tests/gpu/smoke.lua
local lt = require "lutra"
local nn, optim = lt.nn, lt.optim
local functional = nn.functional
local common = dofile((arg[0]:match("^(.*/)[^/]*$") or "./") .. "common.lua")
local report = common.report

-- Returns the largest difference, relative to the largest element.
local function distance(a, b)
  a, b = a:cpu():to("float64"), b:cpu():to("float64")
  if a:numel() == 0 then return 0 end
  return ((a - b):abs():max() / (b:abs():max() + 1e-30)):item()
end

local function check(name, f, inputs, tolerance)
  local there = {}
  for i, x in ipairs(inputs) do there[i] = x:to("cuda") end
  local ok, problem = pcall(function()
    local want, got, compiled = f(unpack(inputs)), f(unpack(there)), lt.compile(f)(unpack(there))
    local d = distance(got, want)
    report(name, d <= (tolerance or 0), string.format("eager against the CPU %.2g", d))
    report(name .. " compiled", lt.equal(compiled:cpu(), got:cpu()), string.format("%.2g", distance(compiled, got)))
  end)
  if not ok then report(name, false, tostring(problem)) end
end

print(lt.cuda.get_device_name(0))
lt.manual_seed(0)
local x, w, b = lt.randn(64, 512), lt.randn(512), lt.randn(512)
check("add", function(a) return a + 1 end, {lt.randn(3)})
-- Code that serves all sizes: packs that are not full or not aligned, rows shorter than a warp.
local long = lt.randn(1000003)
check("long", function(a) return a * 3 + 1 end, {long})
check("long, unaligned", function(a) return a:narrow(0, 1, 1000001) + a:narrow(0, 2, 1000001) end, {long})
for _, n in ipairs {3, 63, 64, 767, 768} do
  check("rows of " .. n, function(a, b) return a * b + a:narrow(1, 0, 1) end, {lt.randn(301, n), lt.randn(n)})
end
check("gelu", function(a, w, b) return functional.gelu(a * w + b, {approximate = "tanh"}) + a end, {x, w, b}, 1e-7)
check("softmax", function(a) return a:softmax(-1) end, {x}, 1e-6)
check("layer_norm", function(a, w, b) return functional.layer_norm(a, {512}, w, b) end, {x, w, b}, 1e-6)
check("sum", function(a) return a:sum() end, {x}, 1e-5)
check("sum rows", function(a) return a:sum(0) end, {x}, 1e-5)
check("transpose", function(a) return a:t():contiguous() + 1 end, {x})
check("argmax", function(a) return a:argmax(-1) end, {x})
check("matmul", function(a) return a:matmul(a:t()) end, {x}, 1e-5)
check("index", function(a) return a[lt.tensor({3, 1, 2}, {dtype = "int64", device = a.device})] end, {x})
check("cumsum", function(a) return a:cumsum(1) end, {x}, 1e-5)
check("sort", function(a) return (a:sort(1)) end, {x})

local function train(device, compiled)
  lt.manual_seed(1)
  local net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)):to(device)
  local opt = optim.AdamW(net:parameters(), {lr = 1e-2})
  local step = common.train_step(opt, common.row_loss(net), compiled and {})
  lt.manual_seed(2)
  local losses = {}
  for i = 1, 20 do
    local x, y = lt.randn(128, 64), lt.randint(0, 10, {128})
    losses[i] = step(x:to(device), y:to(device)):item()
  end
  return losses, net
end
local ok, problem = pcall(function()
  local want, got, compiled = train("cpu"), train("cuda"), train("cuda", true)
  local worst, same = 0, true
  for i = 1, #want do
    worst = math.max(worst, math.abs(want[i] - got[i]))
    same = same and got[i] == compiled[i]
  end
  report("train", worst < 1e-4, string.format("%.2g", worst))
  report("train compiled", same, got[#got] .. " " .. compiled[#compiled])
end)
if not ok then report("train", false, tostring(problem)) end
common.finish "smoke"
