-- Tests Lua values in compiled code: objects that are the same in one call and different in the next, replaced library
-- functions and metatables, Lua's equality and coercions, tables and argument lists of any length. Each program runs
-- eagerly and compiled in separate worlds, call by call.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal
local ffi = require "ffi"
local tensors = getmetatable(lt.ones(1))

local function show(v)
  if type(v) == "userdata" and getmetatable(v) == tensors then
    return "tensor " .. table.concat(v:flatten():totable(), ",")
  end
  if type(v) == "table" then return "a table of " .. #v end
  if type(v) == "function" or type(v) == "userdata" then return type(v) end
  return type(v) .. " " .. tostring(v)
end

local concat, gsub = table.concat, string.gsub -- the library may be replaced
local function results(f, ...)
  local r = {pcall(f, ...)}
  local ok = r[1]
  for i = 1, table.maxn(r) do r[i] = show(r[i]) end
  if not ok then r[2] = gsub(r[2], "^string [^:]*:%d+: ", "") end
  return concat(r, " | ")
end

-- make() gives f, then a function that gives the arguments of call i and may change the world before it.
local function check(name, make, calls)
  test(name, function()
    local want = {}
    for _, compiled in ipairs {false, true} do
      lt.reset()
      local f, arguments, undo = make()
      if compiled then f = lt.compile(f) end
      for i = 1, calls or 4 do
        local got = results(f, arguments(i))
        if compiled then
          equal(got, want[i], "call " .. i)
        else
          want[i] = got
        end
      end
      if undo then undo() end
    end
  end)
end

local function one() return lt.ones(1) end
-- Calls 1 and 4 with two objects, 2 and 3 with one twice.
local function merging(new)
  return function(i)
    local a, b = new(), new()
    if i == 2 or i == 3 then b = a end
    return a, b, one()
  end
end
local function splitting(new)
  return function(i)
    local a, b = new(), new()
    if i ~= 2 and i ~= 3 then b = a end
    return a, b, one()
  end
end
local function both(name, f, new)
  check(name .. ", merging", function() return f, merging(new) end)
  check(name .. ", splitting", function() return f, splitting(new) end)
end

local function list() return {1, 2} end
both("a list that grows and another's length", function(a, b, x) a[#a + 1] = x; return x + 1, #b end, list)
both("a key and another's pairs", function(a, b, x)
  a.k = 5
  local n = 0
  for _, v in pairs(b) do n = n + v end
  return x + n
end, function() return {k = 1, l = 2} end)
both("a key and another's next", function(a, b, x) a.k = nil; return x + 1, (next(b)) end,
  function() return {k = 1} end)
-- LuaJIT makes room for the key, which changes the order of some. The order goes by when a text was made: texts stay.
local names = {}
for i = 1, 8 do
  names[i] = {}
  for _, name in ipairs {"a", "b", "c", "d"} do names[i][#names[i] + 1] = name .. i end
end
check("the order of pairs after a key that is not there gets nil", function()
  return function(t, x)
    local order = {(next(t))}
    t.absent = nil
    for k in pairs(t) do order[#order + 1] = k end
    return x + 1, concat(order, " ")
  end, function(i)
    local t = {}
    for _, name in ipairs(names[i]) do t[name] = 1 end
    return t, one()
  end
end, 8)
both("a field and another's field", function(a, b, x) a.v = x * 2; return b.v + 1 end,
  function() return {v = lt.zeros(1)} end)
both("one field of two tables", function(a, b, x) a.v = 1; b.v = 2; return x + a.v end, function() return {} end)
both("a table.insert and another's concat", function(a, b, x)
  table.insert(a, 1, "z")
  return x + 1, table.concat(b, ",")
end, list)
both("unpack of the other", function(a, b, x) a[2] = 7; return x + 1, unpack(b) end, list)
both("objects that are keys", function(a, b, x)
  local t = {}
  t[a], t[b] = 1, 2
  return x + t[a]
end, list)
both("an object that is no key yet", function(a, b, x)
  local t = {}
  t[a] = 1
  return x + (t[b] or 5)
end, list)
both("tensors that are keys", function(a, b, x)
  local t = {}
  t[a], t[b] = 1, 2
  return x + t[a]
end, function() return lt.ones(2) end)
both("leaves that a backward reaches", function(a, b, x)
  (a * 2 * x + b * 3):sum():backward()
  return a.grad, b.grad
end, function() return lt.ones(1, {requires_grad = true}) end)
both("a gradient that is set", function(a, b, x)
  a.grad = x * 2
  return x + 1, b.grad
end, function() return lt.ones(1, {requires_grad = true}) end)
both("requires_grad that is set", function(a, b, x)
  a:requires_grad_(true)
  return (b * x).requires_grad, x + 1
end, function() return lt.ones(1) end)
both("the gradient and a tensor", function(a, b, x) return a.grad == b, x + 1 end, function()
  local w = lt.ones(1)
  w.grad = lt.ones(1)
  return w
end)
both("many tables", function(a, b, x)
  for i = 1, 40 do a[i].v = i end
  local n = 0
  for i = 1, 40 do n = n + b[i].v * i end
  return x + n
end, function()
  local t = {}
  for i = 1, 40 do t[i] = {v = 0} end
  return t
end)
check("one of many tables", function()
  local tables = {}
  for i = 1, 60 do tables[i] = {v = i} end
  return function(list, x)
    local s = 0
    for i = 1, #list do list[i].v = list[i].v + 1 end
    for i = 1, #list do s = s + list[i].v end
    return x + s
  end, function(i)
    local list = {unpack(tables)}
    if i > 1 then list[60] = tables[i] end
    return list, one()
  end
end)
check("closures that share a variable later", function()
  local function pair(v) return function(n) v = n end, function() return v end end
  return function(set, get, x) set(x * 2); return get() + 1 end, function(i)
    local set, get = pair(lt.zeros(1))
    local _, other = pair(lt.zeros(1))
    return set, i < 5 and other or get, one()
  end
end, 6)
check("closures that share a variable at first", function()
  local function pair(v) return function(n) v = n end, function() return v end end
  return function(set, get, x) set(x * 2); return get() + 1 end, function(i)
    local set, get = pair(lt.zeros(1))
    local _, other = pair(lt.zeros(1))
    return set, (i == 3 or i == 5) and other or get, one()
  end
end, 6)
check("the function's own variable, shared by another", function()
  local function make(shared)
    local v = lt.zeros(1)
    local own = function() return v end
    local far = (function() local v = lt.zeros(1); return function() return v end end)()
    return function(x) v = x * 2; return shared and own() or far() end
  end
  local fs = {make(true), make(false)}
  return function(i, x) return fs[i](x) end, function(i) return i % 2 + 1, one() end
end)

-- -- what is replaced

local function replacing(name, holder, key, new, f, ...)
  local args = {...}
  local saved = rawget(holder, key)
  check(name, function()
    return f, function(i)
      rawset(holder, key, i == 3 and new or saved)
      return one(), unpack(args)
    end, function() rawset(holder, key, saved) end
  end)
  rawset(holder, key, saved)
end
local strings = getmetatable("")
replacing("string.rep, as a method", string, "rep", function(s, n) return s .. n end, function(x, s) return x + 1,
  s:rep(3) end, "x")
replacing("string.upper, of a constant", string, "upper", function() return "abc" end,
  function(x) return x * #("ab"):upper() end)
replacing("the __index of strings", strings, "__index", function(s, k) return function() return k end end,
  function(x, s) return x + 1, s:rep(3) end, "x")
replacing("the __index of strings, a table", strings, "__index", {rep = function() return "other" end},
  function(x, s) return x + 1, s:rep(3) end, "x")
replacing("the __tostring of strings", strings, "__tostring", function() return "s" end,
  function(x, s) return x + 1, tostring(s) end, "x")
replacing("math.floor", math, "floor", function() return 9 end, function(x, n) return x + math.floor(n) end, 2.5)
replacing("next", _G, "next", function() end, function(x, t)
  local n = 0
  for _, v in pairs(t) do n = n + v end
  return x + n
end, {a = 1, b = 2})
replacing("ipairs", _G, "ipairs", function() return function() end end, function(x, t)
  local n = 0
  for _, v in ipairs(t) do n = n + v end
  return x + n
end, {1, 2})
replacing("lt.relu", lt, "relu", function(x) return x + 100 end, function(x) return lt.relu(x) end)
local index, newindex, add, unm, len = tensors.__index, tensors.__newindex, tensors.__add, tensors.__unm, tensors.__len
replacing("the __index of tensors", tensors, "__index", function(t, k)
  if k == "relu" then return function(x) return x + 100 end end
  return index(t, k)
end, function(x) return x:relu() + x.shape[1] end)
replacing("the __add of tensors", tensors, "__add", function(a, b) return add(a, b) * 2 end, function(x) return x
  + 1 end)
rawset(tensors, "__add", function(a, b) return type(a) == "string" and b * 2 or add(a, b) end)
replacing("the __add of strings, beside that of tensors", strings, "__add", function() return 3 end, function(x, s)
  return x * 2, s + x
end, "x")
rawset(tensors, "__add", add)
replacing("the __unm of tensors", tensors, "__unm", function(a) return unm(a) * 3 end, function(x) return -x end)
replacing("the __len of tensors", tensors, "__len", function(a) return len(a) + 5 end, function(x) return x * #x end)
replacing("the __eq of tensors", tensors, "__eq", function() return true end, function(x, y) return x == y, x * 2 end,
  lt.zeros(1))
replacing("the __newindex of tensors", tensors, "__newindex", function(t, k, v) newindex(t, k, v * 2) end, function(x)
  local y = x * 1
  y[0] = 3
  return y
end)
check("a metamethod that is set later", function()
  local mt = {}
  return function(a, x) return x + a.v, rawget(a, "v") end, function(i)
    if i == 3 then mt.__index = function() return 7 end end
    return setmetatable(i < 3 and {v = 1} or {}, mt), one()
  end
end)

-- -- equality and coercions

local NULL = ffi.cast("void *", 0)
for name, pair in pairs {
  ["int64 and number"] = {1LL, 1}, ["two int64"] = {2LL, 2LL}, ["int64 and uint64"] = {3LL, 3ULL},
    ["unequal"] = {3LL, 4LL},
  ["NULL and nil"] = {NULL, nil}, ["two NULL"] = {NULL, ffi.cast("void *", 0)}, ["int64 and a string"] = {1LL, "1"},
} do
  check("== of cdata: " .. name, function()
    return function(x, a, b) return a == b, a ~= b, rawequal(a, b), x + 1 end, function() return one(), pair[1],
      pair[2] end
  end)
end
check("int64 and a constant", function()
  return function(a, x) return a == 1 and "one" or "other", x + 1 end, function(i) return i % 2 + 0LL, one() end
end)
check("== of userdata", function()
  local a = newproxy(true)
  local b = newproxy(a)
  return function(x, a, b) return a == b, x + 1 end, function(i)
    getmetatable(a).__eq = i % 2 == 0 and function() return true end or nil
    return one(), a, b
  end
end)
check("orders, lengths and texts of tables", function()
  local mt = {__lt = function() return true end, __le = function() return false end,
    __concat = function() return "c" end,
    __len = function() return 9 end}
  return function(x, a, b) return a < b, a <= b, a .. "x", #a, x + 1 end, function()
    return one(), setmetatable({}, mt), setmetatable({}, mt)
  end
end)
check("a tensor and a text are no product", function()
  return function(x, s) return x * s end, function(i) return one(), i == 2 and 3 or "3" end
end)
check("a metamethod gets a text as it is", function()
  local mt = {__add = function(a, b) return type(b) end}
  return function(x, a) return a + "3", x + 1 end, function() return one(), setmetatable({}, mt) end
end)
check("a text in arithmetic", function()
  return function(x, s) return x * (s + 1) * (s * 2) * -s end, function(i) return one(), i < 3 and "3" or "0x10" end
end)
check("keys that are NaN or 0", function()
  return function(x, t, k) return t[k], rawget(t, k), x + 1 end, function(i)
    return one(), {[0] = "zero", "one"}, ({0 / 0, 0, -0, 1})[i]
  end
end)
check("a write of a NaN key", function()
  return function(x, t, k) t[k] = x; return x + 1 end, function() return one(), {}, 0 / 0 end
end)
check("lengths of lists with holes", function()
  return function(x, a)
    local y = x + 1
    local t = {x, nil, x}
    local u = {unpack({1, nil, 3}, 1, 3)}
    local v = {}
    for i = 1, 9 do v[i] = i end
    v[4], v[9] = nil, nil
    local n, m, k = #t, #u, #v
    a[#a] = nil
    return n, m, k, #a, y
  end, function(i) return one(), i % 2 == 0 and {1, 2, 3, 4} or {1, nil, 3, 4} end
end)
-- A constructor makes room for all that its last call gives, when that has come: what stood there before, and a break
-- inside, show in the length of lists with holes and in the order of pairs.
for _, text in ipairs {"{k = 1, y, y, nil, unpack({nil, nil, y, y}, 1, 6)}",
  "{[6] = y, [4] = y, cut(y), unpack({y, y, 3}, 1, 5)}",
  "{1, cut(nil), y, y, unpack({y, y, nil, y}, 1, 5)}", "{cut(nil), k = nil, unpack({y, y, nil, y}, 1, 5)}"} do
  test("the room in " .. text, function()
    cut = function(...) lt.graph_break() return ... end
    local f = loadstring("local x = ... local y = x * 2 local t = " .. text .. " if #t > 9 then cut() end return t")
    local function seen(f)
      local t, lengths = f(one()), {}
      local function see() lengths[#lengths + 1] = #t end
      see()
      for _, k in ipairs {7, 1, 4, "d", 9, 3} do t[k] = 1 see() end
      for _ = 1, 3 do t[#t + 1] = 1 see() end
      for k in next, t do lengths[#lengths + 1] = tostring(k) end
      return concat(lengths, " ")
    end
    local want, g = seen(f), lt.compile(f)
    for _ = 1, 3 do equal(seen(g), want) end
    cut = nil
  end)
end
check("pairs of a new table that keys were removed from", function()
  return function(x)
    local t = {}
    for _, k in ipairs {"a", "b", "c", "d"} do t[k] = k end
    t.b, t.c = nil, nil
    for _, k in ipairs {"e", "f", "b"} do t[k] = k end
    local text = ""
    for k in pairs(t) do text = text .. k end
    return text, x + 1
  end, one
end)

-- Calls of the library with arguments of every sort, as plain LuaJIT answers them.
local arguments = {"nil", "true", "0", "1", "2", "-1", "1.5", "-0.5", "0/0", "'2'", "'a'", "''", "{}", "{1, 2, 3}",
  "{'a', 'b'}"}
for name, most in pairs {
  ["table.concat"] = 4, ["string.rep"] = 3, unpack = 3, select = 3, tostring = 1, tonumber = 2, ["string.format"] = 2,
    ["math.floor"] = 1,
  ["math.sqrt"] = 1, ["math.abs"] = 1, ["math.max"] = 2, ["math.fmod"] = 2, ["math.modf"] = 1, ["string.sub"] = 3,
    ["string.byte"] = 2,
  ["table.insert"] = 3, ["table.remove"] = 2, ["table.getn"] = 1, rawequal = 2, rawget = 2, next = 2, ipairs = 1,
    pairs = 1,
  ["string.char"] = 2, ["string.find"] = 3, type = 1, setmetatable = 2, getmetatable = 1, rawset = 3, assert = 2,
} do
  test("arguments of " .. name, function()
    local state = 7
    local function pick(n) state = (state * 1103515245 + 12345) % 2 ^ 31; return math.floor(state / 65536) % n + 1 end
    for _ = 1, 25 * h.scale do
      local list = {}
      -- LuaJIT's math functions read whatever lies on the stack where they get no argument.
      for i = 1, math.max(pick(most + 1) - 1, name:find "^math" and 1 or 0) do list[i] = arguments[pick(#arguments)] end
      if name == "string.format" and list[1] then
        list[1] = ({"'%d'", "'%s'", "'%5.2f'", "'%q'", "'%x'", "'%c'"})[pick(6)]
      end
      local call = name .. "(" .. table.concat(list, ", ") .. ")"
      local source = "return function(x) local y = x + 1; return y, " .. call .. " end"
      local f, g = loadstring(source)(), loadstring(source)()
      equal(results(lt.compile(g), one()):gsub("0x%x+", "?"), results(f, one()):gsub("0x%x+", "?"), call)
    end
  end)
end

-- -- where a tensor begins

local base = lt.arange(10, {dtype = "float32"})
check("storage_offset", function()
  return function(x) return x * 1 + x:storage_offset() + x["1:"]:storage_offset() end, function(i)
    return base:narrow(0, i, 3)
  end
end)
check("as_strided by an offset", function()
  return function(x) return x:as_strided({2}, {1}, 1) * 2 end,
    function(i) return base:narrow(0, i > 2 and 0 or i, 4) end
end)
check("as_strided without an offset", function()
  return function(x) return x:as_strided({2}, {1}) * 2 end, function(i) return base:narrow(0, i, 4) end
end)
check("_version", function()
  return function(x) return x._version, x + 1 end, function(i)
    local x = one()
    for _ = 1, i do x:add_(1) end
    return x
  end
end)
test("where an input begins is no reason to compile again", function()
  lt.reset()
  local f = lt.compile(function(x) return x * 2 + x:storage_offset() end)
  for i = 0, 6 do equal(f(base:narrow(0, i, 2)):totable()[1], 3 * i) end
  equal(lt.counters().stats.unique_graphs, 1, "graphs")
end)

-- -- sizes

local function numbers(n)
  local t = {}
  for i = 1, n do t[i] = i % 7 end
  return t
end
for name, f in pairs {
  ["lt.tensor"] = function(t) return lt.tensor(t):sum() end,
  ["ipairs"] = function(t, x) for _, v in ipairs(t) do x = x + v end return x end,
  ["pairs"] = function(t, x) local n = 0; for k, v in pairs(t) do n = n + k * v end return x + n end,
  ["table.concat"] = function(t, x) return x + #table.concat(t) end,
  ["table.remove"] = function(t, x) local n = 0; while #t > 0 do n = n + table.remove(t, 1) * #t end return x + n end,
  ["table.insert"] = function(t, x) local u = {}; for i = 1, #t do table.insert(u, 1, t[i]) end return x + u[1]
    + #u end,
  ["push and pop"] = function(t, x) for i = 1, 100 do t[#t + 1] = i end for i = 1, 50 do t[#t] = nil end return x
    + #t end,
  ["copies"] = function(t, x) local u = {}; for i = 1, #t do u[i] = t[i] end return x + #u, u end,
  ["a write to each"] = function(t, x) for i = 1, #t do t[i] = t[i] + 1 end return x + t[#t] end,
} do
  for _, n in ipairs {3000, 20000} do
    if not (n > 3000 and name:find "^table%.[ri]") then
      check(name .. " of " .. n, function()
        return f, function(i) return numbers(i == 2 and n or 3), one() end
      end, 3)
    end
  end
end
check("7,000 arguments", function()
  return function(...) return lt.ones(1) + select("#", ...) + (select(-1, ...)) end, function(i)
    return unpack(numbers(i == 2 and 7000 or 3))
  end
end, 3)
check("many results", function()
  return function(x, ...)
    local y = x + 1
    return y, select("#", ...), ...
  end, function(i) return one(), unpack(numbers(i == 2 and 3000 or 3)) end
end, 3)
test("guards that find no room on the stack are a miss", function()
  local f = lt.compile(function(x, list) for i = 1, 3000 do x = x + list[i] end return x end)
  local items = numbers(3000)
  local want = f(lt.zeros(1), items):totable()[1]
  local function many(n, ...) if n == 0 then return f(lt.zeros(1), items):totable()[1] end return many(n - 1, ...) end
  equal(many(3, unpack(items)), want)
end)
h.finish()
