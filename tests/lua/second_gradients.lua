-- Tests gradients of gradients (create_graph) whose backward is outside of compiled functions: .grad and the values
-- that hooks get have the bits of eager code.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal

local function bits(v) return ("%d %s"):format(v:numel(), table.concat(v:detach():reshape(-1):totable(), " ")) end

-- make(wrap, see) gives a function of the number of the call.
local function compare(make)
  local function told(wrap)
    local all = {}
    local run = make(wrap, function(v) all[#all + 1] = bits(v) end)
    for i = 1, 3 do run(i) end
    return all
  end
  local want = told(function(f) return f end)
  lt.reset()
  local got = told(lt.compile)
  equal(#got, #want)
  for i = 1, #want do equal(got[i], want[i], "value " .. i) end
end

local function numbers(seed, ...)
  lt.manual_seed(seed)
  return lt.randn(...)
end

test("a saved value that is a result takes gradients as they come", function()
  for _, late in ipairs {false, true} do
    compare(function(wrap, see)
      local w = numbers(1, 8, 8):requires_grad_()
      local f = wrap(function(x) return x:matmul(w):tanh() end)
      return function(i)
        w.grad = nil
        local y = f(numbers(i, 8, 8))
        local z = y:mul(3.7):sin()
        local g = lt.grad((y * z):sum() + y:exp():sum(), w, {create_graph = true})
        local loss = g:square():sum()
        if late then loss = loss + (y * 0.3):sum() end
        loss:backward()
        see(w.grad)
      end
    end)
  end
end)

test("a result that several functions read, with a hook", function()
  compare(function(wrap, see)
    local w = numbers(1, 8, 8):requires_grad_()
    local f = wrap(function(x) return x:matmul(w):sigmoid() end)
    local sine = wrap(function(y) return (y * 3):sin() end)
    local squared = wrap(function(y, z) return (y * y - z):square() end)
    return function(i)
      w.grad = nil
      local y = f(numbers(i, 8, 8))
      y:register_hook(see)
      local z = sine(y)
      local g = lt.grad((squared(y, z) * y):sum(), w, {create_graph = true})
      g:square():sum():backward()
      see(w.grad)
    end
  end)
end)

-- The hook returns a gradient of another layout than the compiled one: the backward continues as another one.
local function turned(g) return g:t():contiguous():t() end

test("a hook whose gradient lies otherwise", function()
  for _, twice in ipairs {false, true} do
    compare(function(wrap, see)
      local w = numbers(1, 8, 8):requires_grad_()
      local f = wrap(function(x)
        local a = x:matmul(w):tanh()
        a:register_hook(turned)
        local b = a:matmul(w):sin()
        b:register_hook(twice and turned or see)
        local c = b:matmul(w):square()
        c:register_hook(see)
        return c, (c * 0.5):sin()
      end)
      return function(i)
        w.grad = nil
        local y, z = f(numbers(i, 8, 8))
        local g = lt.grad((y * z):sum(), w, {create_graph = true})
        see(g)
        g:square():sum():backward()
        see(w.grad)
      end
    end)
  end
end)

test("a hook whose gradient lies otherwise writes to what was read before it", function()
  for _, create_graph in ipairs {false, true} do
    compare(function(wrap, see)
      local w, x = numbers(1, 8, 8):requires_grad_(), numbers(2, 8, 8)
      local f = wrap(function(x)
        local a = w:tanh()
        a:register_hook(function(g)
          lt.no_grad(x.add_, x, 1)
          return turned(g)
        end)
        return (a * x):sin()
      end)
      return function()
        local g = lt.grad(f(x):sum(), w, {create_graph = create_graph})
        see(g)
        see(x)
      end
    end)
  end
end)

test("a view that is read takes gradients as it does in eager code", function()
  local F = lt.nn.functional
  for name, make in pairs {
    view = function(a) local v = a:view(9); return (v * v):sin(), a * 3 end,
    chain = function(a, b) local v = a:t(); local r = v:narrow(0, 1, 2); return (r * r * v[0] * b[1]):sin(), a + v end,
    part = function(a, b) local v = a[0]; return (v * b * v):sin() + a, a * b end,
    middle = function(a, b) local x = a * b; local v = x:t(); return (v * v * a + x):sin(), x * 3 end,
    product = function(a, b) return a:matmul(b:t()):tanh() + a + b, b * 3 end,
    attention = function(a, b)
      local q, k = a:view(1, 1, 3, 3), b:view(1, 1, 3, 3)
      return F.scaled_dot_product_attention(q, k, q):view(3, 3) + a, b * 3
    end,
    written = function(a, b) local x = a * b; x:mul_(2); local v = x:t(); return (x * v):sin(), v * 3 end,
  } do
    for _, options in ipairs {{}, {backend = "aot_eager"}, {dynamic = true}} do
      compare(function(wrap, see)
        local a, b = numbers(3, 3, 3):requires_grad_(), numbers(4, 3, 3):requires_grad_()
        local f = wrap(make, options)
        return function()
          a.grad, b.grad = nil, nil
          local y, z = f(a, b)
          local q = lt.grad((y * y):sin():sum(), a, {create_graph = true})
          ;((q * q):sum() + y:sum() + z:sin():sum()):backward()
          see(a.grad)
          if name ~= "view" then see(b.grad) end
        end
      end)
    end
  end
end)

-- Two steps on, no gradient comes to what the scan begins with; but the stack of what its steps save takes one.
test("what a scan saves leads to more than its results do", function()
  local function f(p, row, square, xs)
    local start = p:matmul(square)[0]
    local last = lt.scan(function(c, x) return {c.h:sigmoid(), h = x:softmax(-1)}, nil end, {row, h = start}, xs)
    return last.h * last[1]
  end
  local function told(g)
    local all = {}
    for _, steps in ipairs {1, 3, 4} do
      local leaves = {numbers(1, 3, 4), numbers(2, 4), numbers(3, 4, 4), numbers(4, steps, 4)}
      for i, leaf in ipairs(leaves) do leaves[i] = leaf:double():requires_grad_() end
      local options = {create_graph = true, allow_unused = true}
      local first, sum = {lt.grad(g(unpack(leaves)):sin():sum(), leaves, options)}, 0
      for i = 1, 4 do sum = first[i] and sum + first[i]:sin():sum() or sum end
      local second = {lt.grad(sum, leaves, {allow_unused = true})}
      for i = 1, 4 do all[#all + 1] = second[i] or leaves[i]:detach() * 0 end
    end
    return all
  end
  local want, got = told(f), told(lt.compile(f))
  for i, v in ipairs(want) do h.truthy(got[i]:allclose(v, {rtol = 1e-12, atol = 1e-14}), i) end
end)

test("a second derivative reads what a segment has written of its inputs", function()
  local function leaves()
    return lt.tensor({0.5, 1, 2}):requires_grad_(true), lt.tensor({1.5, -1, 0.7}):requires_grad_(true)
  end
  local function pass() return debug.sethook() end -- ends the graph
  local programs = {
    function(y, _, w) y:mul_(w) return (y * y):sum() end,
    function(y, _, w) y:exp_() return (y * w):sum() end,
    function(y, x, w) local z = y * w pass() z:mul_(x) return (z * z):sum() end,
    function(y, _, w) local z = y * w pass() z:narrow(0, 0, 2):mul_(3) return (z * z):sum() end,
    function(y, _, w) local z = y * w pass() z[0] = z[1] * 1 return (z * z):sum() end,
    function(y, x, w) local z = y * w pass() z:copy_(x) return (z * z * w):sum() end,
    function(_, x, w) local z = lt.zeros(3) pass() z:add_(w) return (z * z * x):sum() end,
    function(y, x, w) local z = y * w pass() z:mul_(x) pass() z:mul_(w) return (z * z):sum() end,
    function(y, _, w) local z = y * w pass() z:detach():mul_(1) return (z * z * w):sum() end,
  }
  for i, f in ipairs(programs) do
    local function gradients(g)
      local x, w = leaves()
      local first = lt.autograd.grad(g(x * 2, x, w), {x, w}, {create_graph = true, allow_unused = true})
      local sum = 0
      for k = 1, 2 do
        if first[k] then sum = sum + (first[k] * first[k]):sum() end
      end
      sum:backward()
      return {first[1], first[2], x.grad, w.grad}
    end
    for _, options in ipairs {{}, {backend = "aot_eager"}, {dynamic = true}} do
      local want, got = gradients(f), gradients(lt.compile(f, options))
      for k = 1, 4 do
        if want[k] then h.truthy(lt.equal(got[k]:detach(), want[k]:detach()), i .. ", " .. k) end
      end
    end
  end
end)

test("a second gradient through a cond whose gradient is read twice", function()
  local yes = lt.tensor(true)
  local w, v = lt.randn({4, 4}, {requires_grad = true}), lt.randn({4, 4}, {requires_grad = true})
  local programs = {
    function(a, b) return b + lt.cond(yes, function(x, y) return y end, function(x, y) return x end, b, a) end,
    function(a, b) return b + lt.cond(yes, function(x, y) return x end, function(x, y) return y end, b, a) end,
    function(a, b)
      local c = b * b
      return c + lt.cond(c[0][0], function(x, y) return y end, function(x, y) return x * 2 end, c, a)
    end,
    function(a, b) return lt.cond(yes, function(x, y) return x * y * y end, function(x) return x end, a, a) + b end,
  }
  for i, program in ipairs(programs) do
    local function second()
      local first = {lt.grad(program(w, v):sin():sum() + w:sum(), {w, v}, {create_graph = true})}
      return lt.grad((first[1] * 0.5):sin():sum() + (first[2] * 0.5):sin():sum(), {w, v})
    end
    lt.reset()
    local a, b = second()
    local c, d = lt.compile(second)()
    h.near((a - c):abs():max():item(), 0, 1e-5, i)
    h.near((b - d):abs():max():item(), 0, 1e-5, i)
  end
end)

h.finish()
