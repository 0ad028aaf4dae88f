-- Numbers that item() reads in compiled code of a GPU: one graph, eager's numbers, also where its runs are recorded.
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

h.finish()
