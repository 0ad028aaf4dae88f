-- Tests functions of Lua's library and metamethods in captured frames: they give eager's results, in one graph.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local function text(v, seen)
  if type(v) == "userdata" then return tostring(v) end
  if type(v) ~= "table" then return type(v) .. " " .. tostring(v) end
  local out = {}
  for i = 1, #v do out[i] = text(v[i]) end
  for _, k in ipairs {"x", "y", "name", "calls"} do
    if v[k] ~= nil then out[#out + 1] = k .. "=" .. text(v[k]) end
  end
  return "{" .. table.concat(out, ", ") .. "}" .. (getmetatable(v) and "with" or "")
end

local function outcome(f, ...)
  local r = {pcall(f, ...)}
  for i = 1, #r do r[i] = text(r[i]) end
  return table.concat(r, " ")
end

-- make() gives f, which is called four times with a tensor and the number of the call; breaks: how many are allowed.
local function check(name, make, breaks)
  test(name, function()
    lt.reset()
    local f, g = make(), lt.compile(make())
    for i = 1, 4 do equal(outcome(g, lt.ones(3) * i, i), outcome(f, lt.ones(3) * i, i), "call " .. i) end
    local found = {}
    for _, b in ipairs(lt._report(g).break_reasons) do found[#found + 1] = b.reason .. " at " .. b.line end
    truthy(#found <= (breaks or 0), table.concat(found, "; "))
  end)
end
local function of(f) return function() return f end end

check("table.maxn", of(function(x, n)
  local list = {1, 2, 3, nil, 5, x = 9, [7.5] = 1, [-3] = 2}
  list[10 + n % 2] = 4
  return x * table.maxn(list), table.maxn({}), table.maxn({x}), table.maxn({[0] = 1, [-2] = 1})
end))

check("math.ldexp", of(function(x, n)
  local ldexp = math.ldexp
  return x * ldexp(n, 3), ldexp(1.5, n), ldexp(n / 3, -n), ldexp(n, -1022), ldexp(0.1, 1000 + n)
end))

check("table.sort of numbers, texts and equals", of(function(x)
  local a = {5, 3, 8, 1, 9, 2, 7, 7, 3}
  table.sort(a)
  local b = {"pear", "fig", "apple", "fig"}
  table.sort(b)
  local one, none = {4}, {}
  table.sort(one)
  table.sort(none)
  return x * a[1], a, b, one, none
end))

check("table.sort with a comparison that counts", of(function(x)
  local calls, list = 0, {}
  for i = 1, 30 do list[i] = {name = (i * 7) % 10, x = i} end
  table.sort(list, function(a, b)
    calls = calls + 1
    return a.name < b.name
  end)
  for i = 1, #list do list[i] = list[i].x end
  return x * calls, list
end))

check("table.sort of a list that stays", function()
  local list = {3, 1, 2}
  return function(x)
    table.sort(list, function(a, b) return a > b end)
    list[#list + 1] = 10
    return x * list[1], list
  end
end, 4)

check("table.sort by an order that is none", of(function(x)
  local list = {3, 1, 2, 5, 4, 6}
  table.sort(list, function() return true end)
  return x, list
end), 8)

check("table.sort with a break in the comparison", of(function(x)
  local list = {3, 1, 2}
  x = x * 2
  table.sort(list, function(a, b)
    lt.graph_break()
    return a < b
  end)
  return x + 1, list
end), 8)

check("string.gsub with functions and tables", of(function(x)
  local s, n = ("hello world"):gsub("%w+", function(w) return #w > 4 and w:upper() or nil end)
  local t = ("$name is $age, $other"):gsub("%$(%w+)", {name = "Lua", age = 30})
  local u, m = ("abc"):gsub("", function() return "-" end)
  local v = ("abc abc"):gsub("(a)(b)", function(a, b) return b .. a end, 1)
  local w = ("abc"):gsub("^a", function() return "x" end)
  local p = ("abc"):gsub("()", function(at) return at end)
  local q, k = ("abc"):gsub("%w*", function(at) return false end)
  return x * n, s, t, u, m, v, w, p, q, k
end))

check("string.gsub whose function gives no text", of(function(x)
  return x, (("a"):gsub("a", function() return {} end))
end), 8)

check("string.gmatch", of(function(x)
  local out = {}
  for w in ("one two  three"):gmatch("%a+") do out[#out + 1] = w end
  for k, v in ("a=1, b=2"):gmatch("(%w)=(%w)") do out[#out + 1] = k .. v end
  for w in ("abc"):gmatch("b*") do out[#out + 1] = "[" .. w .. "]" end
  for at in ("abc"):gmatch("()") do out[#out + 1] = at end
  for w in ("^a^a"):gmatch("^a") do out[#out + 1] = w end
  for w in (""):gmatch(".*") do out[#out + 1] = "<" .. w .. ">" end
  return x * #out, out
end))

check("__lt, __le and __concat of tables", function()
  local V = {}
  V.__lt = function(a, b) return a.x < b.x end
  V.__concat = function(a, b)
    local function t(v) return type(v) == "table" and "V" .. v.x or tostring(v) end
    return t(a) .. "|" .. t(b)
  end
  local L = {__lt = V.__lt, __le = function(a, b) return a.x <= b.x end}
  return function(x, i)
    local a, b = setmetatable({x = 1}, V), setmetatable({x = i}, V)
    local c, d = setmetatable({x = 1}, L), setmetatable({x = i}, L)
    return x * 2, a < b, a > b, a <= b, a >= b, c <= d, c >= d, a .. "s", "s" .. a, 1 .. a .. 2 .. a .. "e", a .. a
  end
end)

check("a comparison of tables without a metamethod", of(function(x) return x, {} < {} end), 8)
check("a comparison of tables of two classes", of(function(x)
  return x, setmetatable({}, {__lt = function() return true end}) < setmetatable({}, {__lt = function() end})
end), 8)

check("setmetatable of a table that was there before", function()
  local A, B = {__index = {name = "A"}}, {__index = {name = "B"}}
  local object, other = setmetatable({}, A), setmetatable({}, A)
  return function(x, i)
    local before = object.name
    setmetatable(object, i % 2 == 0 and A or B)
    local after = object.name
    if i == 3 then setmetatable(other, nil) end
    return x * #before, before, after, other.name, getmetatable(object) == A
  end
end)

check("a metatable that is protected", function()
  local object = setmetatable({}, {__metatable = "no"})
  return function(x)
    setmetatable(object, {})
    return x
  end
end, 8)

check("iterators in Lua, with state and without", function()
  local function range(n)
    local i = 0
    return function()
      i = i + 1
      if i <= n then return i, i * 2 end
    end
  end
  local function step(list, i)
    if list[i + 1] then return i + 1, list[i + 1] end
  end
  local callable = setmetatable({}, {__call = function(_, n, i) if (i or 0) < n then return (i or 0) + 1 end end})
  return function(x)
    local s = 0
    for i, d in range(3) do s = s + i * d end
    for i, v in step, {4, 5, 6}, 0 do s = s + i * v end
    for i in callable, 4 do s = s + i end
    for k, v in next, {7, 8} do s = s + k * v end
    return x * s, s
  end
end)

check("select, rawequal, next, unpack", of(function(x, i)
  local t = {x = 1}
  return x * select("#", x, i, nil), rawequal(t, t), rawequal(t, {}), next({}), next({5}), unpack({1, 2, 3}, 2)
end))

check("bit operations", of(function(x)
  return x * bit.band(12, 10), bit.bor(1, 6), bit.bxor(7, 2), bit.lshift(1, 4), bit.rshift(-1, 28), bit.tohex(255),
    bit.bnot(0)
end))

check("a module that is loaded", of(function(x)
  local m, lib = require "string", require "lutra"
  return lib.exp(x) * #m.rep("a", 3), m == string
end))

check("a module that is replaced, is made and is none", function()
  package.loaded.made_here = nil
  package.preload.made_here = function() return {n = 7} end
  return function(x, i)
    if i > 2 then package.loaded.made_here = i > 3 and {n = i} or nil end
    return x * require("made_here").n, require "made_here" == package.loaded.made_here
  end
end, 9)
check("a module that is not there", of(function(x) return x, require "no.such.module" end), 9)

check("getmetatable of tensors and texts", of(function(x)
  return x + 1, getmetatable(x) == getmetatable(x * 2), getmetatable("").__index == string, getmetatable({})
end))

check("tonumber of what is a number, a text and neither", of(function(x, i)
  return x * tonumber(i), tonumber(i), tonumber("0x10"), tonumber("ff", 16), tonumber("z"), tonumber({}), tonumber(nil),
    tonumber(true), tonumber(x), tonumber(print), tonumber(3LL)
end))

check("math.pow and math.fmod of what changes", of(function(x, i)
  return x * math.pow(i, 2), math.pow(2, i), math.fmod(i, 3), math.fmod(7, 4), math.fmod(-i, 3), math.fmod(i, -3),
    math.fmod(i + 0.5, 2), lt.zeros(math.fmod(i, 2) + 2)
end), 1)

-- They have a __call, for portals. Libraries ask `getmetatable(v)` and its __call whether a value can be called.
test("numbers do not look as if they could be called", function()
  truthy(not getmetatable(0), "a metatable")
  equal(select(2, pcall(function()
    local n = 5
    n()
  end)):match "attempt.*", "attempt to call local 'n' (a number value)")
end)

-- Limits that C takes as another number, and patterns with a zero, are left to the real function.
for _, most in ipairs {2, 0, -1} do
  check("gsub with at most " .. most, of(function(x)
    return x + 1, (("aaaa"):gsub("a", function() return "b" end, most))
  end))
end
for _, most in ipairs {1.5, 0.5, math.huge, 2 ^ 32 + 1} do
  check("gsub with at most " .. most, of(function(x)
    return x + 1, (("aaaa"):gsub("a", function() return "b" end, most))
  end), 2)
end
check("gsub of a pattern with a zero", of(function(x)
  return x + 1, (("a\0b\0"):gsub("\0b", function(c) return "<" .. #c .. ">" end))
end), 2)

h.finish()
