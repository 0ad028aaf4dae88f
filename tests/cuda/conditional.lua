-- Tests data-dependent branches and loops, which are conditional nodes of the run's CUDA graph: they give eager's
-- results, whatever moves or stays alive between runs, and the host does not wait for them.
package.path = "../lua/?.lua;" .. package.path
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

lt.set_default_device("cuda")

local w = lt.randn(6, 6) * 0.3

-- Returns a program's log of its recordings. environment: of its process.
local function recordings(text, environment)
  local name = h.write(os.tmpname(), "local lt = require 'lutra' lt.set_default_device('cuda') " .. text)
  local said = h.shell(("%s LUTRA_LOGS=cudagraphs %s %s 2>&1"):format(environment or "", h.program(), name))
  os.remove(name)
  return said
end

-- Compares f eager and compiled on the results of make(i). Results are kept alive.
local function agree(f, make, count)
  local compiled, kept = lt.compile(f, {fullgraph = true}), {}
  for i = 1, count or 8 do
    local given = {make(i)}
    kept[i] = {{compiled(unpack(given))}, {f(unpack(given))}}
    if i % 3 == 0 then kept[i - 1] = nil end
  end
  for i, k in pairs(kept) do
    equal(#k[1], #k[2])
    for r = 1, #k[1] do truthy(lt.equal(k[1][r], k[2][r]), ("call %d, result %d"):format(i, r)) end
  end
end

local function signs(i) return lt.randn(4, 6):abs() * (i % 2 == 0 and 1 or -1) end

test("a branch", function()
  agree(function(x)
    local a, b = lt.cond(x:sum():gt(0), function(x) return x:mm(w):tanh(), x:sum(1) end,
      function(x) return x:mm(w) * 2 + x, x:sum(1):exp() end, x * 2)
    return a + x, b
  end, signs)
end)

test("flags of all dtypes", function()
  local function choose(flag, x)
    return lt.cond(flag, function(x) return x + 1 end, function(x) return x:mm(w) end, x) * 2
  end
  for _, dtype in ipairs {"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"} do
    agree(choose, function(i) return lt.tensor({i % 2 == 0 and 1 or 0}):to(dtype), lt.randn(4, 6) end, 6)
  end
  agree(choose,
    function(i) return lt.tensor({i % 2 == 0 and -0.0 or 1e-300}, {dtype = "float64"}), lt.randn(4, 6) end, 6)
end)

test("a loop of any number of steps", function()
  agree(function(n, x)
    local i, y = lt.while_loop(function(i) return i:lt(n) end, function(i, y) return i + 1, y:mm(w):tanh() + x end,
      lt.zeros({}, {dtype = "int64"}), x)
    return i, y * 2
  end, function(i) return lt.tensor(({0, 3, 1, 17, 2, 0, 5, 40})[i], {dtype = "int64"}), lt.randn(4, 6) end)
end)

test("within each other: a loop in a loop, a branch in a loop, a scan in a branch, a branch in a scan", function()
  local xs = lt.randn(20, 6)
  local function collatz(n, k)
    local _, steps, total = lt.while_loop(function(n) return n:gt(1) end, function(n, steps, total)
      local next = lt.cond((n % 2):eq(0), function(n) return n:floor_divide(2) end, function(n) return n * 3 + 1 end, n)
      local _, more = lt.while_loop(function(i) return i:lt(k) end, function(i, t) return i + 1, t + i end, steps * 0,
        total)
      return next, steps + 1, more
    end, n, n * 0, n * 0)
    return steps, total
  end
  agree(collatz, function(i)
    return lt.tensor(({1, 6, 27, 9, 1, 12, 7, 3})[i], {dtype = "int64"}), lt.tensor(i % 3, {dtype = "int64"})
  end)
  agree(function(x)
    local y = lt.cond(x:sum():gt(0), function(x)
      return (lt.scan(function(c, r) return (c * 0.5 + r):tanh() end, x[0], xs))
    end, function(x) return x[0]:matmul(w) end, x)
    local _, ys = lt.scan(function(c, r)
      local n = lt.cond(r:sum():gt(0), function() return c:matmul(w) + r end, function() return c * 0.5 end)
      return n, n
    end, y, xs)
    return y, ys
  end, signs)
end)

test("gradients of a branch", function()
  local u, v = lt.randn({6, 6}, {requires_grad = true}), lt.randn({6, 6}, {requires_grad = true})
  local function step(x)
    u.grad, v.grad = nil, nil
    local y = lt.cond(x:sum():gt(0), function(x) return x:mm(u):tanh() end, function(x) return x:mm(v) end, x)
    local loss = y:square():mean()
    loss:backward()
    return loss, u.grad, v.grad
  end
  agree(step, signs)
end)

test("what is recorded says so, and why where it is not", function()
  local program = [[
    local some = lt.compile(function(x)
      return lt.cond(x:sum():gt(0), function() return x:sum(1) * 2 end, function() return x:sum(1) end):exp()
    end)
    local root = lt.compile(function(a)
      return lt.while_loop(function(x) return (x * x - a):abs():max():gt(1e-4) end,
        function(x) return (x + a / x) * 0.5 end, a):exp()
    end)
    for i = 1, 4 do some(lt.randn(3, 4)) root(lt.rand(5) + 1) end]]
  local said = recordings(program)
  local _, times = said:gsub("is recorded", "")
  equal(times, 4, said) -- where the input is, and where it is brought
  truthy(not said:find("not recorded", 1, true), said)
  said = recordings(program, "FAKE_CUDA_VERSION=12030")
  truthy(said:find("is not recorded: cond waits for the GPU: the driver is older than CUDA 12.4", 1, true), said)
  truthy(said:find("is not recorded: while_loop waits for the GPU: the driver is older", 1, true), said)
end)

h.finish()
