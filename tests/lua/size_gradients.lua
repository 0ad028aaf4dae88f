-- Tests gradients that come from outside of compiled code, for other sizes than those for which it was compiled.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local F = lt.nn.functional

local function wave(n, step) return (lt.arange(0, n) * step):sin() end

-- The gradient of x, of these sizes, where `lose` makes a loss of f(x).
local function gradient(f, sizes, lose)
  local n = 1
  for _, size in ipairs(sizes) do n = n * size end
  local x = wave(n, 0.7):view(sizes):requires_grad_()
  lose(f(x)):backward()
  return x.grad
end

local function weighted(y) return (y * wave(y:numel(), 0.3):view(y:size())):sum() end

local function compare(name, f, all, lose)
  test(name, function()
    for _, dynamic in ipairs {"none", true} do
      local c = lt.compile(f, {dynamic = dynamic ~= "none" and dynamic or nil})
      for _, sizes in ipairs(all) do
        local want, got = gradient(f, sizes, lose or weighted), gradient(c, sizes, lose or weighted)
        truthy(got:allclose(want, {rtol = 1e-6, atol = 1e-6}), table.concat(sizes, "x"))
      end
    end
  end)
end

local columns = {{4, 6}, {4, 8}, {4, 4}, {4, 5}, {4, 7}, {4, 9}, {4, 16}, {4, 3}, {4, 1}, {4, 2}}
local function ones(list)
  local all = {}
  for i, sizes in ipairs(list) do all[i] = {1, unpack(sizes)} end
  return all
end
compare("stack", function(x) return lt.stack({x, x * 2}, 1) end, columns)
compare("cat", function(x) return lt.cat({x, x * 2}, 1) end, columns)
compare("repeat_interleave", function(x) return x:repeat_interleave(2, 0) end, columns)
compare("max_pool1d", function(x) return F.max_pool1d(x, 2) end, ones {{4, 6}, {4, 8}, {4, 4}, {4, 5}, {4, 7}, {4, 9}})
compare("avg_pool1d", function(x) return F.avg_pool1d(x, 2) end, ones {{4, 6}, {4, 8}, {4, 4}, {4, 16}, {4, 9}})
compare("mean and norm", function(x) return (x - x:mean()) / x:norm() end, columns)
compare("cumsum", function(x) return x:cumsum(1) * 2 end, columns)

-- The gradient is a part of rows of another width, or a transpose.
compare("parts of rows", function(x) return (x * 1.5):sin() end, columns, function(y)
  local wide = lt.cat({y, lt.ones(y:size(0), 20 - y:size(1))}, 1)
  return (wide * wave(wide:numel(), 0.3):view(wide:size())):sum()
end)
compare("a transpose", function(x) return (x * 1.5):sin() * x end, columns, function(y)
  return (y:t() * wave(y:numel(), 0.3):view(y:size(1), y:size(0))):sum()
end)
compare("a sum", function(x) return (x * 1.5):sin() * x end, columns, function(y) return y:sum() end)
compare("a sum of columns", function(x) return (x * 1.5):sin() * x end, columns,
  function(y) return weighted(y:sum(0)) end)

-- The strides of a gradient are what its order of additions depends on: those of a part are no product of its sizes.
test("gradients with gaps: eager's bits", function()
  local v, c = wave(12, 0.9):view(4, 3, 1, 1), wave(3, 0.4)
  local functions = {
    function(x) return F.conv_transpose2d(x:softmax(3), v, c) end,
    function(x) return (x * 1.5):tanh():sum(1, true) + wave(3, 0.2):view(1, 3, 1, 1) end,
    function(x) return x:transpose(1, 3):matmul(wave(12, 0.8):view(4, 3)):transpose(1, 3):sin() end,
  }
  local parts = {
    function(y) return lt.ones_like(y):narrow(1, 0, 1):expand(y:size()) end,
    function(y) return wave(y:numel() * 2, 0.3):view(y:size(0) * 2, 3, 1, y:size(3)):narrow(0, 1, y:size(0)) end,
    function(y) return wave(y:numel() * 2, 0.3):view(y:size(0), 3, 1, y:size(3) * 2):narrow(3, 0, y:size(3)) end,
    function(y) return wave(y:size(0) * 60, 0.3):view(y:size(0), 3, 1, 20):narrow(3, 2, y:size(3)) end,
    function(y) return wave(y:size(0) * 6, 0.3):view(y:size(0), 6, 1, 1):narrow(1, 0, 3):expand(y:size()) end,
    function(y) return wave(y:numel() * 2, 0.3):view(y:size(0), 6, 1, y:size(3)):narrow(1, 2, 3) end,
  }
  local function given(f, n, part)
    local x = wave(n * 16, 0.7):view(n, 4, 1, 4):requires_grad_()
    local y = f(x)
    y:backward(part(y))
    return h.text(x.grad)
  end
  for k, f in ipairs(functions) do
    lt.reset()
    local compiled = lt.compile(f)
    for _, n in ipairs {1, 3, 5, 2, 8, 4} do
      for i, part in ipairs(parts) do
        equal(given(compiled, n, part), given(f, n, part), ("function %d, %d rows, part %d"):format(k, n, i))
      end
    end
  end
end)

test("gradients with gaps of many widths", function()
  local function f(x) return (x * 1.5):tanh():sum(1, true) + x end
  local function given(f, n)
    local x = wave(n * 3, 0.7):view(3, n):requires_grad_()
    f(x):backward(wave(300, 0.3):view(3, 100):narrow(1, 0, n))
    return h.text(x.grad)
  end
  local compiled = lt.compile(f)
  for n = 2, 60 do equal(given(compiled, n), given(f, n), n .. " wide") end
end)

test("a gradient that a hook replaces", function()
  local function make(width)
    return function(x)
      local y = x * 2
      y:register_hook(function(g) return lt.cat({g, g}, 1)[{":", {0, width()}}] * 3 end)
      return y:sin() * x
    end
  end
  local m
  local f = make(function() return m end)
  local c = lt.compile(f)
  for _, width in ipairs {6, 8, 4, 5, 3} do
    m = width
    equal(tostring(gradient(c, {4, m}, weighted)), tostring(gradient(f, {4, m}, weighted)))
  end
end)

-- "modified by an inplace operation", of a loss whose backward the function itself has run in part.
test("what was written since it was saved has the sizes and versions of the run", function()
  local forms = {
    function(x, w)
      local y = (x * w):exp()
      local loss = (y * y):sum()
      local other = (x * w):sum()
      other:backward()
      y:add_(1)
      return loss, y
    end,
    function(x, w)
      local y = x * w
      local loss = (y * y):sum()
      local other = (x * w):sum()
      other:backward()
      y:narrow(0, 0, 1):add_(1)
      return loss, w
    end,
    function(x, w)
      local loss = (x * w):sum()
      local other = (w * 2):sum()
      other:backward()
      x:mul_(2)
      return loss, x
    end,
  }
  for i, f in ipairs(forms) do
    for _, dynamic in ipairs {false, true} do
      local c = lt.compile(f, {dynamic = dynamic or nil})
      local function message(f, n, writes)
        local x, w = lt.ones(n), lt.ones(n, {requires_grad = true})
        for _ = 1, writes do x:add_(1) end
        local loss, seen = f(x, w)
        lt.no_grad(function() for _ = 1, writes do seen:add_(1) end end)
        return select(2, pcall(loss.backward, loss))
      end
      for call, n in ipairs {2, 3, 4, 5} do
        local want = message(f, n, call - 1)
        truthy(want:find("inplace operation: f32[" .. n .. "]", 1, true), want)
        equal(message(c, n, call - 1), want, "form " .. i)
      end
    end
  end
end)

test("backwards do not add up with sizes", function()
  local c = lt.compile(function(x) return (x * 1.5):sin() end)
  for m = 3, 8 do gradient(c, {4, m}, weighted) end
  local before = lt.counters().kernels.compiled
  for m = 9, 60 do gradient(c, {4, m}, weighted) end
  equal(lt.counters().kernels.compiled, before)
end)

h.finish()
