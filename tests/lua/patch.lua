-- Tests patch and unpatch: in place, idempotent, invisible to string.dump, during calls, and without memory growth.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

test("patch returns the function and every reference runs compiled code", function()
  lt.reset()
  local function f(x) return (x * 2 + 1):tanh() end
  local alias, x = f, lt.randn(4)
  local want = f(x)
  truthy(lt.patch(f) == f)
  truthy(lt.patch(f) == f)
  truthy(alias(x):equal(want) and alias(x):equal(want))
  equal(lt.counters().stats.unique_graphs, 1)
  lt.unpatch(f)
  lt.unpatch(f)
  truthy(f(x):equal(want))
end)

test("string.dump shows the original", function()
  local function f(x) return x * 3 - 1 end
  local before = string.dump(f)
  lt.patch(f)
  f(lt.ones(2))
  f(lt.ones(2))
  truthy(string.dump(f) == before)
  lt.unpatch(f)
  truthy(string.dump(f) == before)
end)

test("unpatch while the function is on the stack", function()
  local f
  function f(x, n)
    local y = x * 2 + n
    if n == 0 then
      lt.unpatch(f)
      return y
    end
    local z = f(y:tanh(), n - 1)
    return z + y
  end
  local x = lt.randn(5)
  local want = f(x, 4)
  for _ = 1, 3 do
    lt.patch(f)
    truthy(f(x, 4):equal(want))
    truthy(f(x, 4):equal(want))
  end
end)

test("unpatch while a coroutine is suspended inside", function()
  local function f(x)
    local y = x + 1
    coroutine.yield(y)
    return y * 2
  end
  local x = lt.ones(3)
  lt.patch(f)
  for _ = 1, 2 do
    local co = coroutine.create(f)
    local _, first = coroutine.resume(co, x)
    lt.unpatch(f)
    collectgarbage()
    local _, second = coroutine.resume(co)
    truthy(first:equal(lt.full({3}, 2)) and second:equal(lt.full({3}, 4)))
    lt.patch(f)
  end
  lt.unpatch(f)
end)

test("upvalues stay shared", function()
  local count, scale = 0, 2
  local function f(x)
    count = count + 1
    return x * scale
  end
  lt.patch(f)
  local x = lt.ones(2)
  f(x) f(x)
  scale = 5
  truthy(f(x):equal(lt.full({2}, 5)))
  equal(count, 3)
  lt.unpatch(f)
  f(x)
  equal(count, 4)
end)

test("rounds of patch and unpatch do not grow", function()
  local x = lt.randn(4)
  local function round(i)
    local function f(a) return a * 2 + i end
    lt.patch(f)
    f(x)
    f(x)
    lt.unpatch(f)
    f(x)
  end
  local rounds = math.floor(1000 * h.scale)
  local function resident()
    local pages = tonumber(assert(io.open("/proc/self/statm")):read("*a"):match("^%d+ (%d+)"))
    return pages * 4096 / 2 ^ 20
  end
  for i = 1, rounds / 4 do round(i) end
  collectgarbage() collectgarbage()
  local lua_before, before = collectgarbage("count"), resident()
  for i = 1, rounds do round(i) end
  collectgarbage() collectgarbage()
  truthy(collectgarbage("count") - lua_before < 200 + rounds * 0.02, "Lua heap grew by "
    .. collectgarbage("count") - lua_before .. " KB")
  truthy(resident() - before < 16, "resident memory grew by " .. resident() - before .. " MB")
end)

test("compiled prototypes of functions that are gone are freed", function()
  local lt = require "lutra"
  local x = lt.ones(4)
  local function f(a) return (a * 2 + 1):sum() end
  for round = 1, 400 do
    lt.explain(f)(x)
    local g = lt.compile(loadstring("local a = ... return a * " .. round .. " + 1"))
    g(x)
    if round % 50 == 0 then collectgarbage() collectgarbage() end
  end
  truthy(lt.counters().cache.functions < 400, lt.counters().cache.functions .. " functions")
  -- A function that is still alive works, and finds its code again.
  local kept = lt.compile(f)
  truthy(kept(x):item() == 12)
  local misses = lt.counters().cache.misses
  truthy(lt.compile(f)(x):item() == 12)
  equal(lt.counters().cache.misses, misses, "captures")
end)

test("errors keep their lines in frames that run older bytecode", function()
  local at = debug.getinfo(1, "l").currentline
  local function f(x, n)
    local y = x + n
    if n > 0 then f(x, n - 1) end
    if n == 1 then lt.unpatch(f) end
    if n == 2 then lt.reset() end
    y = y * 2
    if n == 3 then error("here") end
    if n == 4 then y = y + nil end
    return y
  end
  for _, case in ipairs {{3, at + 7, "here"}, {4, at + 7, "here"}} do
    lt.patch(f)
    for _ = 1, 3 do
      local ok, message = pcall(f, lt.ones(case[1]), case[1])
      truthy(not ok and message:find("patch.lua:" .. case[2] .. ": " .. case[3], 1, true), message)
      lt.patch(f)
    end
  end
  local function g(x)
    local y = x + 1
    coroutine.yield(y)
    y = y * 2
    local z = y:mm(y)
    return z
  end
  lt.patch(g)
  local resume = coroutine.wrap(g)
  resume(lt.ones(2))
  lt.unpatch(g)
  local ok, message = pcall(resume)
  truthy(not ok and message:find("patch.lua:" .. at + 23 .. ": mm:", 1, true), message)
end)

-- Jumps to exits, which lie behind its end, do not fit into their instructions.
test("a function that is too long for portals runs its original code, and reports say why", function()
  local lines = {"return function(x, n) local y = x * 2"}
  for i = 1, 12000 do lines[#lines + 1] = ("if n == %d then y = y + 1 end"):format(i) end
  lines[#lines + 1] = "return y end"
  local text, x = "local lt = ... " .. table.concat(lines, "\n"), lt.ones(3)
  local function make() return assert(loadstring(text))(lt) end
  local want = make()(x, 5)
  for kind, change in pairs {compile = lt.compile, patch = lt.patch} do
    lt.reset()
    local f = change(make())
    for _ = 1, 3 do truthy(f(x, 5):equal(want), kind) end
    local breaks = tostring(lt.explain(make())(x, 5))
    truthy(breaks:find("the function is too long for calls of compiled code", 1, true), breaks)
  end
  local ok, message = pcall(lt.compile(make(), {fullgraph = true}), x, 5)
  truthy(not ok and message:find("fullgraph=true, but the graph breaks", 1, true), message)
end)

h.finish()
