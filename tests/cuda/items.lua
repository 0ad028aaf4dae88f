-- Tests item() in compiled code on a GPU: one graph, with eager's numbers, also if its runs are recorded.
package.path = "../lua/?.lua;" .. package.path
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

test("numbers stay in the graph", function()
  local function f(x)
    local most = x:abs():max():item()
    local n = x:gt(0):sum():item()
    return x / most, most * 2 + n
  end
  local x, cf = lt.tensor({0.5, -3, 2}):to("cuda"), lt.compile(f)
  for i = 1, 8 do
    local want, number = f(x * i)
    local got, n = cf(x * i)
    truthy(got:equal(want), "call " .. i)
    equal(n, number, "call " .. i)
  end
  equal(lt.counters().stats.unique_graphs, 1)
end)

test("a number of one device does not go into a graph of another", function()
  local y = lt.tensor({1, 2})
  local function f(x)
    local n = (x * 2):max():item()
    return y * n, n
  end
  local x = lt.tensor({4, 1}):to("cuda")
  local want, got = f(x), lt.compile(f)(x)
  truthy(got:equal(want) and got.device == "cpu")
end)

test("a number is an index and a size", function()
  lt.reset()
  local x = lt.arange(60):view(20, 3):float():to("cuda")
  local function f(t)
    local i = (t + 1):max():item() - 1
    local n = (t + 0)[1]:int():item()
    return x[i] * 2, x:narrow(0, i, 1) + i, lt.ones({n, 2}, {device = "cuda"}) * 3, i
  end
  local g = lt.compile(f)
  local function outcome(f, t)
    local r = {pcall(f, t)}
    for k = 2, #r do r[k] = lt.is_tensor(r[k]) and h.text(r[k]:to("cpu")) or tostring(r[k]) end
    return table.concat(r, " ", 2)
  end
  for call, n in ipairs {5, 2, 3, 19, 7, 20, 4, -20, 6} do
    local t = lt.tensor({n, 2}, {dtype = "int64"}):to("cuda")
    equal(outcome(g, t), outcome(f, t), n)
    if call == 5 then equal(lt.counters().stats.unique_graphs .. " " .. #lt._report(g).break_reasons, "1 0") end
  end
end)

-- The GPU has no kernel for unique, so it runs on the CPU.
test("a result of an op that runs on the CPU is laid out as on the CPU, eager and compiled", function()
  local function f(x) return (x:unique {dim = -1, return_inverse = true}) end
  local x = lt.tensor({{1, 2, 1}, {4, 3, 4}})
  for _, run in ipairs {f, lt.compile(f), lt.compile(f, {backend = "eager"})} do
    local got = run(x:cuda())
    equal(h.text(got:cpu()), h.text(f(x)))
    equal(table.concat({got:stride()}, " "), table.concat({f(x):stride()}, " "))
  end
end)

test("a late error names the line of its launch, also if a graph is interpreted", function()
  local function message(run)
    return (select(2, pcall(function() return run(lt.ones(4):cuda(), lt.tensor({9}):long():cuda()):tolist() end)))
  end
  local function f(x, i)
    local y = x * 2
    return y:index_select(0, i)
  end
  local want = message(f)
  truthy(want:find("launched at items.lua:" .. debug.getinfo(f, "S").linedefined + 2, 1, true), want)
  for _, backend in ipairs {"eager", "aot_eager", "native"} do
    equal(message(lt.compile(f, {backend = backend})), want, backend)
  end
end)

h.finish()
