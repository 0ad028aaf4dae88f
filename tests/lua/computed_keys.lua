-- Tests lists that are read and written at places computed from changing numbers and sizes: at most two recompiles for
-- any stream of values, no break, eager's results.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, outcome = h.test, h.equal, h.truthy, h.outcome

local VALUES = {2, 3, 1, 5, 7, 4, 9, 8, 6, 3, 2, 1, 9, 5, 10, 8, 4, 6, 7, 2, 3, 1, 5, 7, 4, 9, 8, 6, 3, 2}
local BEYOND = {0, -1, -20, 20, 64, 0.5, 2 ^ 53, -2 ^ 53, 1 / 0, 0 / 0}

-- make() gives a function of (x, n, i).
local function stream(name, make, most, rows)
  test(name, function()
    lt.reset()
    local f, g = make(), lt.compile(make())
    local function same(n, i)
      local x = lt.ones(rows and rows(n) or 2, 3) * i
      equal(outcome(g, x, n, i), outcome(f, x, n, i), ("%s, call %d"):format(n, i))
    end
    for i, n in ipairs(VALUES) do same(n, i) end
    equal(#lt._report(g).break_reasons, 0)
    truthy(#lt.recompiles(g) <= (most or 2), #lt.recompiles(g) .. " recompiles")
    for i, n in ipairs(BEYOND) do same(n, i) end
  end)
end

local function tensors()
  local list = {}
  for i = 1, 24 do list[i] = lt.ones(3) * i end
  return list
end
local function numbers()
  local list = {}
  for i = 1, 24 do list[i] = i * 0.5 end
  return list
end

for _, key in ipairs {"n + 1", "n - 1 + 1", "2 * n", "#list - n", "i % 3 + 1", "n + m", "n * 2 + m", "math.max(n, 2)",
  "math.floor(i / 4) + 1", "#x + 1", "#x + n", "x.shape[1] * 2", "bit.band(n, 3) + 1", "(n + 1) % #list + 1",
  "math.abs(-n)", "n ^ 1", "n / 2 * 2", "i % #x + 1", "-n + 20"} do
  for kind, make in pairs {tensors = tensors, numbers = numbers} do
    stream(kind .. "[" .. key .. "]", function()
      local text = "local list, m = ... return function(x, n, i) return x * list[" .. key .. "] end"
      return assert(loadstring(text, "=keys"))(make(), 3)
    end, 2, key:find "x" and function(n) return n % 1 == 0 and n > 0 and n < 20 and n + 1 or 2 end)
  end
end

stream("the tables of a list", function()
  local list = {}
  for i = 1, 24 do list[i] = {weight = lt.ones(3) * i, bias = {i}} end
  return function(x, n)
    local layer = list[n + 1]
    return x * layer.weight + layer.bias[1]
  end
end)
stream("a list of lists", function()
  local list = {}
  for i = 1, 24 do
    list[i] = {}
    for k = 1, 24 do list[i][k] = i * k end
  end
  return function(x, n, i) return x * list[n + 1][i % 4 + n] end
end)
stream("several places", function()
  local list = tensors()
  return function(x, n)
    for k = 1, 3 do x = x + list[n + k] * list[2 * n + k] end
    return x
  end
end)
stream("a place that the value at another tells", function()
  local order, list = {}, tensors()
  for i = 1, 24 do order[i] = (i * 7) % 23 end
  return function(x, n) return x + list[order[n + 1] + 1] end
end)
stream("what may be missing", function()
  local list = numbers()
  list[6], list[9] = nil, nil
  return function(x, n) return x * (list[n + 1] or 3) end
end, 3)
stream("a list with a metatable", function()
  local list = setmetatable(numbers(), {__index = function(_, k) return k == k and k % 5 or 1 end})
  return function(x, n) return x * list[n + 1] end
end, 3)
stream("one value at two places", function()
  local list = tensors()
  list[7] = list[3]
  return function(x, n) return x * list[n + 1] + list[n + 5] end
end, 4)

-- Writes to a list of numbers, made from x, n and i. The list is a result.
local writes = {
  ["list[n] = i"] = 2,
  ["list[n + 1] = i"] = 2,
  ["list[2 * n + 1] = x * 2"] = 2,
  ["list[n + 1] = list[n + 1] + 1"] = 2,
  ["list[n + 1] = list[n] + 1 x = x * list[n + 1]"] = 2,
  ["list[n], list[n + 1] = list[n + 1], list[n]"] = 2,
  ["x = x * list[n] list[n + 1] = 7 x = x * list[n]"] = 2,
  ["list[n] = 3 x = x * list[2] list[2] = 4 x = x + list[n]"] = 3,
  ["list[1] = i list[n + 1] = 5 x = x * list[1]"] = 2,
  ["list[n] = 5 x = x * #list"] = 2,
  ["list[n] = 5 list[#list + 1] = n x = x * list[#list] * list[n]"] = 4,
  ["list[#list + 1] = n list[n] = 2 list[#list] = 4 x = x + list[1] * #list"] = 4,
  ["list[n] = i list[i % 5 + 1] = n x = x * list[n]"] = 4,
  ["for k = 1, 3 do list[n + k] = list[n + k - 1] end"] = 2,
  ["list[#list] = n x = x * list[#list - 1]"] = 2,
  ["list[n] = nil x = x * (list[n + 1] or 2) list[n] = 2"] = 8,
}
for body, most in pairs(writes) do
  test(body, function()
    lt.reset()
    local text = "local list = ... return function(x, n, i) " .. body .. " return x * 2, list end"
    local f, g = assert(loadstring(text))(numbers()), lt.compile(assert(loadstring(text))(numbers()))
    local x = lt.ones(3)
    for i, n in ipairs(VALUES) do equal(outcome(g, x, n, i), outcome(f, x, n, i), ("%s, call %d"):format(n, i)) end
    truthy(#lt.recompiles(g) <= most, #lt.recompiles(g) .. " recompiles")
    if most < 8 then equal(#lt._report(g).break_reasons, 0) end
    for i, n in ipairs(BEYOND) do equal(outcome(g, x, n, i), outcome(f, x, n, i), ("%s, call %d"):format(n, i)) end
  end)
end

test("functions of a list", function()
  lt.reset()
  local list = {}
  for i = 1, 3 do list[i] = assert(loadstring("return function(x) return x * " .. i .. " end"))() end
  local function f(x, n) return list[n % 3 + 1](x) end
  local g, x = lt.compile(f), lt.ones(3)
  for i = 1, 30 do equal(h.text(g(x, i)), h.text(f(x, i))) end
  truthy(h.graphs() <= 4, h.graphs() .. " graphs")
end)

test("a report names the place as the program wrote it", function()
  lt.reset()
  local list, m = tensors(), 3
  local g = lt.compile(function(x, n) return x * list[2 * n + m] end)
  for n = 1, 4 do g(lt.ones(3), n) end
  truthy(lt._report(g).graphs[2]._text:find("input 'list[m + n * 2]'", 1, true))
end)

h.finish()
