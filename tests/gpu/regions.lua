-- Branches and loops that data decide on a GPU: milliseconds a call, beside the same steps unrolled by hand; an endless
-- loop ends where its limit says.
--   lutra tests/gpu/regions.lua
package.path = "../lua/?.lua;" .. package.path
local lt = require "lutra"
lt.set_default_device("cuda")

local function timed(f, ...)
  for _ = 1, 5 do f(...) end
  lt.cuda.synchronize()
  local start = lt.perf_counter()
  for _ = 1, 20 do f(...) end
  lt.cuda.synchronize()
  return (lt.perf_counter() - start) / 20 * 1e3
end

local function improve(x, a) return (x + a / x) * 0.5 end
local function loop(a, n)
  local _, x = lt.while_loop(function(i) return i:lt(n) end, function(i, x) return i + 1, improve(x, a) end,
    lt.zeros({}, {dtype = "int64"}), a * 1)
  return x * 1
end
local function unrolled(a)
  local x = a * 1
  for _ = 1, 64 do x = improve(x, a) end
  return x * 1
end
local function branch(x) return lt.cond(x:sum():gt(0), function() return x * 2 end, function() return x - 1 end) * 1 end

local compiled = lt.compile(loop, {fullgraph = true})
for _, size in ipairs {256, 1024 * 1024} do
  local a, n = lt.rand(size) + 1, lt.tensor(64, {dtype = "int64"})
  assert(compiled(a, n):equal(unrolled(a)))
  print(("loop of 64 steps on %d elements: %.3f ms, unrolled %.3f, eager %.3f"):format(size, timed(compiled, a, n),
    timed(lt.compile(unrolled), a), timed(loop, a, n)))
end
local x = lt.rand(1024)
print(("branch: %.4f ms, eager %.4f"):format(timed(lt.compile(branch, {fullgraph = true}), x), timed(branch, x)))

local a = lt.rand(256) + 1
for _ = 1, 3 do compiled(a, lt.tensor(4, {dtype = "int64"})) end
local start = lt.perf_counter()
local ok, problem = pcall(lt.limits {seconds = 1}, function()
  return compiled(a, lt.tensor(2 ^ 52, {dtype = "int64"})):sum():item()
end)
print("endless loop:", ok, problem, ("%.2f s"):format(lt.perf_counter() - start))
assert(not ok and lt.perf_counter() - start < 5)
assert(compiled(a, lt.tensor(64, {dtype = "int64"})):equal(unrolled(a)), "the GPU goes on")
