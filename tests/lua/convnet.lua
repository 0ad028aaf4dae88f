-- Tests convnets: eager = compiled bit for bit, whatever the layout inside; layers match PyTorch's; running statistics.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises, deep, breaks = h.test, h.equal, h.truthy, h.raises, h.deep, h.breaks
local nn, optim = lt.nn, lt.optim
local functional = nn.functional

-- The convnet of the bench, smaller.
local Plain = nn.Module:extend("Plain")
function Plain:init()
  self.a, self.b = nn.Conv2d(1, 8, 3, {padding = 1}), nn.Conv2d(8, 24, 3, {padding = 1})
  self.f, self.g = nn.Linear(24 * 9, 16), nn.Linear(16, 10)
end
function Plain:forward(x)
  x = functional.max_pool2d(self.a(x):relu(), 2)
  x = functional.max_pool2d(self.b(x):relu(), 2)
  return self.g(self.f(x:flatten(1)):relu())
end

-- Everything at once: values that are reduced, viewed and returned between those whose layout is free.
local Mixed = nn.Module:extend("Mixed")
function Mixed:init()
  self.a = nn.Conv2d(1, 6, {3, 5}, {padding = "same", bias = false})
  self.n = nn.BatchNorm2d(6)
  self.b = nn.Conv2d(6, 8, 3, {stride = 2, padding = 1, groups = 2})
  self.c = nn.ConvTranspose2d(8, 4, 3, {stride = 2, output_padding = 1})
  self.m = nn.GroupNorm(2, 4)
  self.p, self.q = nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, {stride = 1, padding = 1})
  self.g = nn.Linear(4, 10)
end
function Mixed:forward(x)
  x = self.n(self.a(x)):relu()
  local y = self.p(x) + self.b(x):narrow(1, 0, 6)
  y = self.q(self.c(functional.adaptive_max_pool2d(lt.cat({y, y:narrow(1, 0, 2)}, 1), 3)):tanh())
  return self.g(functional.adaptive_avg_pool2d(self.m(y), 1):flatten(1))
end

local function setup(class)
  lt.manual_seed(7)
  local net = class()
  local opt = optim.AdamW(net:parameters(), {lr = 1e-2})
  return {net = net, opt = opt, step = h.train_step(net, opt)}
end

local function batch(n, seed)
  lt.manual_seed(seed)
  return lt.randn(n, 1, 12, 12), lt.randint(0, 10, {n})
end

local function same_state(a, b, what)
  local other = b.net:state_dict()
  for name, value in pairs(a.net:state_dict()) do truthy(value:equal(other[name]), what .. " " .. name) end
end

local last = {} -- parameters after 20 steps on one thread
for _, threads in ipairs {1, 2} do
  for name, class in pairs {Plain = Plain, Mixed = Mixed} do
    test(string.format("20 steps of %s are bit for bit eager's, %d threads", name, threads), function()
      lt.reset()
      lt.config.num_threads = threads
      local eager, compiled = setup(class), setup(class)
      local step = lt.compile(compiled.step)
      for i = 1, 20 do
        local x, y = batch(9, i)
        truthy(eager.step(x, y):equal(step(x, y)), "loss of step " .. i)
        same_state(eager, compiled, "step " .. i)
      end
      equal(breaks(), 0, "graph breaks")
      truthy(lt.counters().stats.unique_graphs <= 2, "entries: " .. lt.counters().stats.unique_graphs)
      if last[name] then same_state(last[name], eager, "on one thread") end
      last[name] = eager
    end)
  end
end

test("the batch's size may change", function()
  lt.reset()
  local a, b = setup(Plain), setup(Plain)
  local step = lt.compile(a.step)
  for _, n in ipairs {9, 9, 4, 1, 16} do
    local x, y = batch(n, n)
    truthy(step(x, y):equal(b.step(x, y)), "batch of " .. n)
  end
  same_state(a, b, "after all")
  truthy(#lt.recompiles(step) <= 2, "recompiles: " .. #lt.recompiles(step))
end)

test("a convolution's bits do not depend on its input's layout", function()
  lt.manual_seed(1)
  local x, w, b = lt.randn(3, 5, 9, 7), lt.randn(6, 5, 3, 3), lt.randn(6)
  local last_x = x:permute(0, 2, 3, 1):contiguous():permute(0, 3, 1, 2)
  local y, z = functional.conv2d(x, w, b, 2, 1), functional.conv2d(last_x, w, b, 2, 1)
  truthy(y:equal(z))
  truthy(y:is_contiguous() and not z:is_contiguous(), "channels last in, channels last out")
  deep({z:stride()}, {4 * 6 * 5, 1, 4 * 6, 6})
  truthy(functional.max_pool2d(y, 2):equal(functional.max_pool2d(z, 2)))
end)

test("padding by name", function()
  local x, w = lt.randn(1, 2, 6, 6), lt.randn(3, 2, 3, 3)
  deep(functional.conv2d(x, w, nil, 1, "same").shape, {1, 3, 6, 6})
  truthy(functional.conv2d(x, w, {padding = "same"}):equal(functional.conv2d(x, w, {padding = 1})))
  deep(functional.conv2d(x, w, {padding = "valid"}).shape, {1, 3, 4, 4})
  raises("conv2d: padding must be 'same', 'valid' or numbers, got 'full'",
    function() functional.conv2d(x, w, {padding = "full"}) end)
  raises("padding='same' is not supported for strided convolutions", function()
    functional.conv2d(x, w, {padding = "same", stride = 2})
  end)
end)

test("layers print and name their state as PyTorch's", function()
  equal(tostring(nn.Conv2d(3, 8, 3, {padding = 1})), "Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))")
  equal(tostring(nn.Conv2d(4, 8, {3, 5}, 2, {groups = 2, bias = false})),
    "Conv2d(4, 8, kernel_size=(3, 5), stride=(2, 2), groups=2, bias=False)")
  equal(tostring(nn.Conv1d(3, 8, 3)), "Conv1d(3, 8, kernel_size=(3,), stride=(1,))")
  equal(tostring(nn.MaxPool2d(2)), "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)")
  equal(tostring(nn.AvgPool2d(3, 2)), "AvgPool2d(kernel_size=3, stride=2, padding=0)")
  equal(tostring(nn.AdaptiveAvgPool2d({3, 4})), "AdaptiveAvgPool2d(output_size=(3, 4))")
  equal(tostring(nn.BatchNorm2d(4)), "BatchNorm2d(4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)")
  equal(tostring(nn.GroupNorm(2, 4)), "GroupNorm(2, 4, eps=1e-05, affine=True)")
  local names = {}
  for name in pairs(nn.BatchNorm2d(4):state_dict()) do names[#names + 1] = name end
  table.sort(names)
  deep(names, {"bias", "num_batches_tracked", "running_mean", "running_var", "weight"})
end)

test("a convolution begins as PyTorch's", function()
  lt.manual_seed(0)
  local c = nn.Conv2d(4, 64, 3)
  local bound = 1 / math.sqrt(36)
  for _, p in ipairs {c.weight, c.bias} do
    local most = p:abs():amax():item()
    truthy(most <= bound and most > 0.8 * bound, "within and near the bound: " .. most / bound)
  end
end)

test("batch norm keeps running statistics", function()
  lt.manual_seed(0)
  local n = nn.BatchNorm2d(2)
  local x = lt.randn(3, 2, 4, 4) * 2 + 1
  n(x)
  local flat = x:permute(1, 0, 2, 3):reshape(2, -1)
  local mean = flat:mean(1)
  local var = ((flat - mean:unsqueeze(1)):square()):sum(1) / (flat:size(1) - 1)
  truthy(n.running_mean:allclose(mean * 0.1))
  truthy(n.running_var:allclose(var * 0.1 + 0.9))
  equal(n.num_batches_tracked:item(), 1)
  n:eval()
  local y = n(x)
  local want = (x - n.running_mean:view(1, 2, 1, 1)) * (n.running_var:view(1, 2, 1, 1) + n.eps):rsqrt()
  truthy(y:allclose(want, {atol = 1e-6}))
  equal(n.num_batches_tracked:item(), 1)
  raises("BatchNorm2d: the input must have 4 dimensions, got 3", function() n(lt.randn(2, 4, 4)) end)
end)

test("compiled pools of one pixel have eager's strides", function()
  local x = lt.randn(1, 4, 2, 2):contiguous{memory_format = "channels_last"}
  for _, f in ipairs{
    function(v) return functional.avg_pool2d(v, 2) end,
    function(v) return functional.adaptive_avg_pool2d(v, 1) end,
    function(v) return functional.avg_pool2d(functional.max_pool2d(v, 1), 2) end,
  } do
    deep({f(x):stride()}, {4, 1, 4, 4})
    deep({lt.compile(f)(x):stride()}, {4, 1, 4, 4})
  end
end)

test("second derivatives", function()
  lt.manual_seed(2)
  local x, w = lt.randn(1, 2, 5, 5):requires_grad_(true), lt.randn(3, 2, 3, 3):requires_grad_(true)
  local y = functional.max_pool2d(functional.conv2d(x, w, nil, 1, 1), 2)
  local gx, gw = lt.grad((y * y):sum(), {x, w}, {create_graph = true})
  local ggx, ggw = lt.grad((gx * gx):sum() + (gw * gw):sum(), {x, w})
  truthy(ggx.shape[3] == 5 and ggw.shape[1] == 3)
  truthy(ggx:isfinite():all():item() and ggw:abs():sum():item() > 0)
end)

h.finish()
