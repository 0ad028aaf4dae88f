-- Tests sums on a fake GPU (fake_driver.cc): eager and compiled give the same bits, however the work is split; sums by
-- channel in both layouts of images; ops whose result has a data-dependent size.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local test, deep, equal, truthy = h.test, h.deep, h.equal, h.truthy
local nn = lt.nn

lt.manual_seed(0)

local function last(x) return x:permute(0, 2, 3, 1):contiguous():permute(0, 3, 1, 2) end

-- Makes a new function each time, so that no case runs the code of another.
local function sums_of(dims)
  return loadstring([[local dims = ...
    return function(x) return (x * 2):sum(dims), x:amax(dims), (x - 1):sum(dims, true) end]])(dims)
end

-- Checks that a result is close to float64's, and that compiled code gives the same bits.
local function check(x, dims, tolerance)
  local f = sums_of(dims)
  local there = x:cuda()
  local a, b, c = f(there)
  local want = (x:to("float64") * 2):sum(dims)
  local scale = (x:to("float64") * 2):abs():sum(dims):max():item()
  truthy((a:cpu():to("float64") - want):abs():max():item() <= tolerance * scale, "far from float64's")
  truthy(b:cpu():equal(x:amax(dims)), "the maximum differs")
  local d, e, g = lt.compile(f, {fullgraph = true})(there)
  truthy(d:equal(a) and e:equal(b) and g:equal(c), "compiled differs from eager")
  return a
end

test("sums by channel have one order in both layouts", function()
  for _, sizes in ipairs {{1, 3, 5, 7}, {2, 4, 40, 60}, {9, 5, 3, 3}, {70, 3, 2, 1}} do
    local x = lt.randn(sizes)
    local a, b = check(x, {0, 2, 3}, 1e-6), check(last(x), {0, 2, 3}, 1e-6)
    truthy(a:equal(b), "differs between layouts at {" .. table.concat(sizes, ", ") .. "}")
  end
end)

test("sums around, of half types too", function()
  check(lt.randn(16, 6, 90), {0, 2}, 1e-6)
  check(lt.randn(9, 4, 3, 50):to("bfloat16"), {0, 2, 3}, 4e-3)
  check(lt.randn(5, 20, 3, 40), {0, 3}, 1e-6)
end)

test("large sums are cut in the outermost dimensions", function()
  check(lt.randn(8, 512, 70), {0, 1}, 1e-6)
  check(lt.randn(2, 140000), {1}, 1e-6)
  check(lt.randn(32, 64, 160), {0, 1, 2}, 1e-6)
end)

test("batch norm: gradients as on the CPU, the same bits compiled", function()
  for _, layout in ipairs {"row major", "channels innermost"} do
    local x = lt.randn(9, 4, 6, 5)
    if layout ~= "row major" then x = last(x) end
    local function run(device, compiled)
      lt.manual_seed(1)
      local net = nn.Sequential(nn.Conv2d(4, 8, 3, {padding = 1, bias = false}), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4)):to(device)
      local function loss(x)
        local l = net(x):pow(3):mean()
        l:backward()
        return l
      end
      if compiled then loss = lt.compile(loss) end
      local input = x:to(device):detach():requires_grad_(true)
      local results = {loss(input):detach(), input.grad}
      for _, p in ipairs(net:parameters()) do results[#results + 1] = p.grad end
      return results
    end
    local cpu, eager, compiled = run("cpu"), run("cuda"), run("cuda", true)
    for i, want in ipairs(cpu) do
      truthy((want - eager[i]:cpu()):abs():max():item() <= 1e-4 * (1 + want:abs():max():item()),
        layout .. ": result " .. i .. " differs from the CPU's")
      truthy(compiled[i]:equal(eager[i]), layout .. ": result " .. i .. " differs compiled")
    end
  end
end)

test("nonzero and masked_select", function()
  local function same(f, ...)
    local there = {}
    for i, x in ipairs {...} do there[i] = x:cuda() end
    local want, got = f(...), f(unpack(there))
    deep({got:size(0), got:dim()}, {want:size(0), want:dim()})
    truthy(got:cpu():equal(want), "differs")
  end
  local x = lt.randn(3, 700)
  local function nonzero(x) return x:nonzero() end
  local function select(x, mask) return x:masked_select(mask) end
  for _, mask in ipairs {x:gt(0), x:gt(99), x:t():gt(1), lt.tensor(true), lt.zeros(0, 4):gt(0),
    x:view(3, 1, 7, 100):gt(0)} do
    same(nonzero, mask)
  end
  same(nonzero, lt.tensor({0, -0.0, 0 / 0, 2, 0}))
  same(nonzero, lt.arange(-3, 3))
  same(nonzero, lt.tensor({0, 1.5, 0}, {dtype = "float16"}))
  same(select, x, x:gt(0.5))
  same(select, x:t(), x:t():gt(0.5))
  same(select, x, lt.randn(700):gt(0))
  same(select, lt.randn(700), x:gt(0))
  same(select, x:to("bfloat16"), x:gt(9))
end)

test("a dimension of one stands around a large reduction", function()
  for _, sizes in ipairs {{1, 512, 640}, {1, 3, 128, 1024}, {1, 1, 300, 1000}} do
    local x = lt.ones(unpack(sizes)):cuda()
    equal(x:sum():item(), x:numel())
    equal(x:abs():mean():item(), 1)
    equal(lt.compile(function(x) return x:sum() end)(x):item(), x:numel())
  end
end)

test("scatter_add sorts each line by itself", function()
  local x, at, y = lt.randn(40, 50), lt.randint(0, 40, {40, 50}), lt.randn(40, 50)
  for dim = 0, 1 do
    local want = x:scatter_add(dim, at, y)
    truthy(x:cuda():scatter_add(dim, at:cuda(), y:cuda()):cpu():equal(want), "dimension " .. dim .. " differs")
  end
  local deep_x, deep_at, deep_y = lt.randn(3, 70, 4), lt.randint(0, 70, {3, 70, 4}), lt.randn(3, 70, 4)
  truthy(deep_x:cuda():scatter_add(1, deep_at:cuda(), deep_y:cuda()):cpu():equal(
    deep_x:scatter_add(1, deep_at, deep_y)), "the middle dimension differs")
end)

h.finish()
