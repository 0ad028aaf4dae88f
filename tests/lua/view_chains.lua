-- Tests views of views of views, and deep chains of history: memory stays bounded unless the program needs more, and
-- nothing recurses.
local h = require "harness"
local lt = require "lutra"
local test, equal, truthy = h.test, h.equal, h.truthy

-- Kilobytes of the process.
local function resident()
  local file = io.open("/proc/self/statm")
  if not file then return 0 end
  local pages = tonumber(file:read("*l"):match("%d+ (%d+)"))
  file:close()
  return pages * 4
end

test("a chain of views keeps only its base", function()
  local x = lt.arange(6):to("float32"):view(2, 3)
  for _ = 1, 1000 do x = x:t() end
  collectgarbage()
  local before = resident()
  for _ = 1, 300000 do x = x:t() end
  collectgarbage()
  truthy(resident() - before < 16000 + h.quarantine, "kilobytes more: " .. resident() - before)
  h.deep(x:totable(), {{0, 1, 2}, {3, 4, 5}})
end)

test("a chain of views with a gradient is walked, not recursed into", function()
  local a = lt.arange(6):to("float32"):view(2, 3):clone():requires_grad_(true)
  local x = a * 1
  for _ = 1, 100000 do x = x:t() end
  (x * lt.tensor {{1, 2, 3}, {4, 5, 6}}):sum():backward()
  h.deep(a.grad:totable(), {{1, 2, 3}, {4, 5, 6}})
  x = nil
  collectgarbage()
end)

-- n views, each a different one, of a tensor that does not lie row-major: the last, and where its elements are.
local function chain(base, n)
  local v = base
  for i = 1, n do
    local form = i % 4
    v = form == 0 and v:t() or form == 1 and v:unsqueeze(0):transpose(0, 1):squeeze(1) or form == 2
      and v:narrow(0, 0, v:size(0)) or v:as_strided(
      {v:size(0), v:size(1)}, {v:stride(0), v:stride(1)}, v:storage_offset())
  end
  return v
end

test("writes through long chains reach the base and its other views", function()
  for _, n in ipairs {1, 3, 7, 8, 9, 30} do
    local function program(step)
      local a, w = lt.arange(12):to("float64"):view(3, 4):clone():requires_grad_(true),
        lt.rand(2, 2, {dtype = "float64"}):requires_grad_(true)
      local base = (a * 2):t()
      local other = base[1]
      local v = step(base, n):narrow(0, 1, 2):narrow(1, 0, 2)
      v:mul_(w)
      v:add_(1)
      local loss = (base * base):sum() + other:sum() * 3
      loss:backward()
      return base:detach():clone(), a.grad, w.grad
    end
    lt.manual_seed(5)
    local want, ga, gw = program(function(base) return base end)
    lt.manual_seed(5)
    local swaps = 0
    for i = 1, n do swaps = swaps + (i % 4 == 0 and 1 or 0) end
    local got, gb,
      gv = program(function(base, count) local v = chain(base, count) return swaps % 2 == 1 and v:t() or v end)
    truthy(got:equal(want) and gb:equal(ga) and gv:equal(gw), n .. " views")
  end
end)

test("as_strided into memory before and around a view", function()
  local a = lt.arange(8):to("float64"):requires_grad_(true)
  local x = a * 1
  local v = x["2:6"]
  ;(v:as_strided({3}, {1}, 0) * lt.tensor({1, 2, 4}, {dtype = "float64"})):sum():backward()
  -- The part that v shows, and no more.
  h.deep(a.grad:totable(), {0, 0, 4, 0, 0, 0, 0, 0})
  a.grad = nil
  x = a * 1
  ;(x:as_strided({3, 2}, {1, 1}, 2) * 3):sum():backward()
  h.deep(a.grad:totable(), {0, 0, 3, 6, 6, 3, 0, 0})
  a.grad = nil
  -- Elements that lie in one place share what it is given.
  local one = lt.tensor({5}, {requires_grad = true, dtype = "float64"})
  ;(one:expand(4):as_strided({1}, {1}, 0) * 8):sum():backward()
  h.deep(one.grad:totable(), {8})
  local base = lt.arange(8):to("float64") * 1
  base = base["1:"]:detach()
  local w = lt.tensor({2, 3}, {requires_grad = true, dtype = "float64"})
  base:as_strided({2}, {2}, 2):mul_(w)
  ;(base * base):sum():backward()
  h.deep(w.grad:totable(), {2 * 2 * 4, 2 * 3 * 16})
end)

test("chains of a million ops", function()
  local n = 200000 * h.scale
  local a = lt.tensor({1, 2}, {requires_grad = true})
  local x = a
  for _ = 1, n do x = x + 1 end
  x:sum():backward()
  h.deep(a.grad:totable(), {1, 1})
  x = a
  for _ = 1, n do x = x * 1 end
  x = nil -- dies without a backward
  collectgarbage()
  local y = a * 1
  for _ = 1, n / 4 do y:add_(1):mul_(1) end
  y:sum():backward()
  y = a
  for _ = 1, n / 10 do y = y * a end
  local g = lt.grad((a * 1e-3 + y * 0):sum(), a, {create_graph = true})
  lt.grad(g:sum(), a)
end)

test("a sum over many leaves is linear in their number", function()
  local leaves = {}
  for i = 1, 20000 do leaves[i] = lt.tensor({i}, {requires_grad = true}) end
  local start = os.clock()
  lt.cat(leaves):sum():backward()
  truthy(os.clock() - start < 3 * h.patience, "seconds: " .. os.clock() - start)
  equal(leaves[7].grad:item(), 1)
end)

test("joins of many tensors are linear in their number", function()
  local list = {}
  for i = 1, 20000 do list[i] = lt.tensor({i, -i}) end
  local start = os.clock()
  local joined, stacked, wide = lt.cat(list), lt.stack(list), lt.stack(list, 1)
  truthy(os.clock() - start < h.patience, "seconds: " .. os.clock() - start)
  equal(joined[19999 * 2]:item(), 20000)
  equal(stacked[19999][1]:item(), -20000)
  equal(wide[1][19999]:item(), -20000)
  local mixed = {}
  for i = 1, 200 do
    mixed[i] = i % 3 == 0 and lt.tensor({i}, {dtype = "int64"}) or i % 3 == 1 and lt.ones(0) or lt.full({2}, i)
  end
  local few = lt.cat(mixed)
  equal(few.dtype, "float32")
  local parts = {}
  for i = 1, 200, 50 do
    local some = {}
    for k = i, i + 49 do some[#some + 1] = mixed[k] end
    parts[#parts + 1] = lt.cat(some)
  end
  truthy(few:equal(lt.cat(parts)))
end)

test("a view of one element with any stride is written", function()
  local x = lt.arange(6):to("float32")
  local function f(x) x:as_strided({1}, {0}, 2):div_(2) x:as_strided({1, 2}, {0, 3}, 1):mul_(4) return x end
  local want = f(x:clone())
  local compiled = lt.compile(f, {fullgraph = true})
  for _ = 1, 2 do truthy(compiled(x:clone()):equal(want)) end
end)

h.finish()
