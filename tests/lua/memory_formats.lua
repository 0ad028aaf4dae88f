-- memory_format = "channels_last", "contiguous_format", "preserve_format": wherever PyTorch takes one, in eager and
-- compiled code.
local lt = require "lutra"
local h = require "harness"
local test, equal, deep, truthy = h.test, h.equal, h.deep, h.truthy

local last, rows = {60, 1, 15, 3}, {60, 20, 5, 1}

local function both(f, x)
  local eager, compiled = f(x), lt.compile(f)(x)
  truthy(eager:equal(compiled), "eager and compiled elements")
  deep({compiled:stride()}, {eager:stride()})
  return eager
end

test("copies and casts take a memory format", function()
  local x = lt.arange(120):view(2, 3, 4, 5):float()
  for _, f in ipairs {
    function(t) return t:contiguous {memory_format = "channels_last"} end,
    function(t) return t:clone {memory_format = "channels_last"} end,
    function(t) return t:to {memory_format = "channels_last"} end,
    function(t) return t:to("float64", {memory_format = "channels_last"}) end,
    function(t) return t:to(t:double(), {memory_format = "channels_last"}) end,
    function(t) return t:double {memory_format = "channels_last"} end,
    function(t) return t:cpu {memory_format = "channels_last"} end,
  } do
    local y = both(f, x)
    deep({y:stride()}, last)
    truthy(y:float():equal(x), "the elements")
    equal(y:is_contiguous {memory_format = "channels_last"}, true) equal(y:is_contiguous(), false)
    deep({both(function(t) return t:contiguous() end, y):stride()}, rows)
    deep({both(function(t) return t:long() end, y):stride()}, last)
    deep({both(function(t) return t:long {memory_format = "contiguous_format"} end, y):stride()}, rows)
  end
end)

test("a tensor that lies so is itself", function()
  local x = lt.zeros(2, 3, 4, 5)
  local y = x:contiguous {memory_format = "channels_last"}
  equal(y:contiguous {memory_format = "channels_last"}, y)
  equal(y:to {memory_format = "channels_last"}, y)
  equal(y:to {memory_format = "preserve_format"}, y)
  local copy = y:to {memory_format = "channels_last", copy = true}
  truthy(not rawequal(copy, y), "copy")
  equal(x:to {memory_format = "contiguous_format"}, x)
end)

test("what is made like another takes its order, or the one that is named", function()
  local x = lt.zeros(2, 3, 4, 5)
  local y = x:contiguous {memory_format = "channels_last"}
  for _, make in ipairs {lt.zeros_like, lt.ones_like, lt.empty_like, lt.rand_like, lt.randn_like} do
    deep({make(y):stride()}, last)
    deep({make(x):stride()}, rows)
    deep({make(x, {memory_format = "channels_last"}):stride()}, last)
    deep({make(y, {memory_format = "contiguous_format"}):stride()}, rows)
    deep({make(lt.zeros(3, 2):t()):stride()}, {1, 2})
  end
  deep({lt.full_like(x, 3, {memory_format = "channels_last"}):stride()}, last)
  deep({lt.randint_like(x, 3, {memory_format = "channels_last"}):stride()}, last)
  deep({lt.empty(2, 3, 4, 5, {memory_format = "channels_last"}):stride()}, last)
  deep({lt.empty({2, 3, 4, 5}, {memory_format = "contiguous_format"}):stride()}, rows)
  deep({both(function(t) return lt.ones_like(t, {memory_format = "channels_last"}) end, x):stride()}, last)
end)

test("modules take one", function()
  local net = lt.nn.Sequential(lt.nn.Conv2d(3, 4, 2), lt.nn.BatchNorm2d(4))
  local x = lt.randn(1, 3, 5, 5)
  net:eval()
  local before = net(x)
  net:to {memory_format = "channels_last"}
  truthy(net[1].weight:is_contiguous {memory_format = "channels_last"}, "the weight's order")
  truthy(net(x):allclose(before), "the result")
end)

test("what is no memory format is refused", function()
  local x = lt.zeros(2, 3)
  for _, f in ipairs {
    function() return x:contiguous {memory_format = "channels_last"} end,
    function() return x:double {memory_format = "channels_last"} end,
    function() return lt.zeros_like(x, {memory_format = "channels_last"}) end,
    function() return lt.empty(2, 3, {memory_format = "channels_last"}) end,
    function() return x:contiguous {memory_format = "preserve_format"} end,
    function() return x:clone {memory_format = "rows"} end,
    function() return x:to {memory_format = "rows"} end,
    function() return lt.zeros_like(x, {memory_format = "rows"}) end,
    function() return x:is_contiguous {memory_format = "rows"} end,
  } do
    local ok, message = pcall(f)
    truthy(not ok and message:find("memory_format", 1, true), "'" .. tostring(message) .. "' names memory_format; it")
  end
end)

test("nonzero and tensordot take out=", function()
  local x, out = lt.tensor {0, 2, 0, 3}, lt.zeros(0, {dtype = "int64"})
  equal(lt.nonzero(x, {out = out}), out)
  deep(out:tolist(), {{1}, {3}})
  local a, product = lt.ones(2, 3), lt.zeros(5)
  equal(lt.tensordot(a, a, {dims = {{1}, {1}}, out = product}), product)
  deep(product:tolist(), {{3, 3}, {3, 3}})
  truthy(not pcall(lt.nonzero, x, {out = lt.zeros(0)}), "another dtype is refused")
end)

test("fill_ and zero_ write what expand repeats", function()
  local x = lt.ones(1, 3)
  x:expand(4, 3):zero_()
  equal(x:sum():item(), 0)
  x:expand(4, 3):fill_(2)
  equal(x:sum():item(), 6)
  truthy(not pcall(function() x:expand(4, 3):add_(1) end), "other writes are refused")
end)

test("draws of gumbel_softmax", function()
  lt.manual_seed(0)
  local logits = lt.tensor({{0, 1, 2}, {5, 0, 0}}):requires_grad_()
  local soft = lt.nn.functional.gumbel_softmax(logits, {tau = 0.5})
  truthy(soft:sum(-1):allclose(lt.ones(2)), "rows add up to 1")
  local hard = lt.nn.functional.gumbel_softmax(logits, {hard = true})
  truthy(hard:detach():round():equal(hard:detach():round():eq(1):float()), "one-hot")
  truthy(hard:sum(-1):allclose(lt.ones(2)), "one a row")
  hard[0]:mul(lt.arange(3)):sum():backward()
  truthy(logits.grad:abs():sum():item() > 0, "a gradient")
  truthy(not pcall(lt.nn.functional.gumbel_softmax, lt.tensor({1, 2}):long()), "integers")
end)

test("gradients by channels, of sizes that change", function()
  local function f(x, w, b) return lt.nn.functional.conv_transpose2d(x, w, b) end
  for _, calls in ipairs {{{2, 2, 3, 2, 2}, {2, 1, 3, 2, 3}}, {{3, 2, 4, 1, 4}, {3, 1, 3, 2, 3}}} do
    local c = lt.compile(function(x, w, b) return f(x, w, b) end)
    for _, s in ipairs(calls) do
      local x0, w0, b0 = lt.randn(s[1], s[2], s[3], s[4]), lt.randn(s[2], s[5], 1, 1), lt.randn(s[5])
      local function gradients(run)
        local x, w, b = x0:clone():requires_grad_(), w0:clone():requires_grad_(), b0:clone():requires_grad_()
        local y = run(x, w, b)
        y:backward(lt.ones_like(y):contiguous {memory_format = "channels_last"})
        return {x.grad:tolist(), w.grad:tolist(), b.grad:tolist()}
      end
      deep(gradients(c), gradients(f))
    end
  end
end)

h.finish()
