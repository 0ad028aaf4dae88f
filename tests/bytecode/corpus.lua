-- Functions that between them use every opcode a dump can hold. Each is {name, function, argument ...} and gives the
-- same results whenever it is called with these arguments.
local ffi_ok = pcall(require, "ffi")
local counter, shared = 0, {n = 0}
G_VALUE = 10

local function id(...) return ... end
local function two(a, b) return a + 1, b + 2 end
local function fact(n) if n <= 1 then return 1 end return n * fact(n - 1) end
local function tail(n, acc) if n == 0 then return acc end return tail(n - 1, acc + n) end

local function straight(a, b)
  local c = a + b
  local d = c * a - b / 2
  local e = -d % 7
  return c, d, e ^ 2, a / b, b % a, 3 - a, 4 / b, 5 % a, 2 * b, 1 + a, a - 1, a * 3, a / 4, b % 3
end

local function compare(a, b)
  local r = {}
  if a < b then r[1] = "lt" end
  if a >= b then r[2] = "ge" end
  if a <= b then r[3] = "le" end
  if a > b then r[4] = "gt" end
  if a == b then r[5] = "eq" else r[5] = "ne" end
  if a ~= b then r[12] = "nev" end
  if a ~= 3 then r[6] = "n3" end
  if a == 3 then r[7] = "is3" end
  if a == "x" then r[8] = "x" end
  if a ~= "x" then r[9] = "not x" end
  if a == nil then r[10] = "nil" end
  if a ~= true then r[11] = "not true" end
  return r
end

local function logic(a, b)
  local c = a and b
  local d = a or b
  local e = not a
  local f = (a and 1) or (b and 2) or 3
  local g = a == nil and "n" or "y"
  if not (a and b) then c = 7 end
  if a and (b or e) then d = 8 end
  return c, d, e, f, g
end

local function sums(n)
  local s, p = 0, 1
  for i = 1, n do
    s = s + i
    for j = n, i, -2 do
      p = (p * 3 + j) % 1009
      if p % 5 == 0 then break end
    end
  end
  for x = 0, 1, 0.25 do s = s + x end
  return s, p
end

local function whiles(n)
  local i, s = 0, 0
  while i < n do
    i = i + 1
    if i % 3 == 0 then goto continue end
    s = s + i
    ::continue::
  end
  repeat
    local last = i
    i = i - 2
    s = s + last
  until last < 3
  while true do
    s = s + 1
    if s > 100 then break end
  end
  return i, s
end

local function iterate(t)
  local keys, s = {}, 0
  for k, v in pairs(t) do
    keys[#keys + 1] = tostring(k)
    s = s + v
  end
  for i, v in ipairs(t) do s = s + i * v end
  for k, v in next, t do s = s + v end
  for w in ("a bc def"):gmatch("%a+") do s = s + #w end
  table.sort(keys)
  return s, table.concat(keys, ",")
end

local function own_iterator(n)
  local function step(state, i)
    if i < state then return i + 1, i * i end
  end
  local s = 0
  for i, sq in step, n, 0 do
    s = s + i * sq
    if s > 500 then break end
  end
  return s
end

local function varargs(a, ...)
  local n = select("#", ...)
  local b, c = ...
  local t = {a, ...}
  local u = {n = n, ...}
  return n, a, b, c, #t, u[1], id(...)
end

local function multres(a, b)
  local t = {two(a, b)}
  local u = {0, two(a, b)}
  local x, y = two(two(a, b))
  local s = id("s", two(x, y))
  return s, t[1], t[2], #u, u[3], two(id(a, b))
end

local function tables(a)
  local t = {1, 2, 3, x = 1, y = "s", z = false, [10] = 2.5}
  local e = {}
  t[a] = 5
  t[1] = t[2]
  t.x = t.y
  e[a] = t[a]
  e.n = #t
  t.fn = function(self, v) return self.x .. v end
  return t:fn("!"), e[a], e.n, t[1], t.x, t.z, t[10], "a" .. a .. "b" .. 1
end

local function closures(n)
  local fs, s = {}, 0
  for i = 1, n do
    local k = i * 2
    fs[i] = function(d) k = k + d; s = s + k; return k end
  end
  local r = 0
  for i = 1, n do r = r + fs[i](i) + fs[i](1) end
  do
    local z = 5
    fs.z = function() z = z + 1; return z end
  end
  return r, s, fs.z(), fs.z()
end

local function upvalues(a)
  counter = 0
  counter = counter + a
  shared.n = counter
  shared.s = "str"
  counter = nil
  counter = "text"
  counter = 3
  counter = true
  local before = G_VALUE
  G_VALUE = before + 1
  G_VALUE = before
  return shared.n, shared.s, counter, before
end

local function nested(n)
  local function inner(k)
    local function leaf(j) return j + n + k end
    if k == 0 then return leaf(0) end
    return inner(k - 1) + leaf(k)
  end
  return inner(n)
end

local function returns(k)
  if k == 0 then return end
  if k == 1 then return nil end
  if k == 2 then return 1, 2, 3 end
  if k == 3 then return two(1, 2) end
  if k == 4 then return id(1, two(3, 4)) end
  return (two(5, 6))
end

local function all_returns()
  local t = {}
  for k = 0, 5 do
    t[#t + 1] = select("#", returns(k))
    t[#t + 1] = tostring((returns(k)))
  end
  return table.concat(t, " ")
end

local function big_numbers(x) return x + 1.5, x * 1e300, 123456789 - x, 1e-5 / x, 2 ^ 53 % x, -0.0 == 0, 70000,
  -40000 end

local function gotos(n)
  local i = 1
  ::top::
  if i < n then
    local f
    do
      local c = i
      f = function() return c end
    end
    i = i + f()
    goto top
  end
  return i
end

local function protected(x)
  local ok, err = pcall(function(y) if y > 2 then error("big", 0) end return y end, x)
  return ok, err, fact(5), tail(100, 0)
end

local function many(a)
  local v1, v2, v3, v4, v5, v6, v7, v8, v9, v10 = a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7, a + 8, a + 9
  local n1, n2, n3
  for i = 1, 3 do
    v1, v2, v3 = v2, v3, v1
    v4 = v4 + v5 * i
    n1 = (n1 or 0) + v4
  end
  return v1 + v2 - v3 + v4 * v5 - v6 + v7 - v8 * v9 + v10, n1, n2, n3
end

local meta = setmetatable({}, {
  __add = function(a, b) return 11 end, __lt = function(a, b) return true end,
    __concat = function(a, b) return "cat" end,
  __index = function(t, k) return k .. "?" end, __newindex = function(t, k, v) rawset(t, k, v) end,
    __call = function(self, x) return x end,
  __unm = function() return "neg" end, __le = function() return false end, __eq = function() return true end,
})
local function metamethods(m)
  local r = {m + 1, m < m, m .. "x", m.foo, m(5), -m, m <= m}
  return r[1], tostring(r[2]), r[3], r[4], r[5], r[6], tostring(r[7])
end

local cases = {
  {"straight", straight, 3, 8}, {"compare", compare, 3, 5}, {"compare2", compare, 5, 3}, {"logic", logic, 1, false},
  {"logic2", logic, nil, 2}, {"sums", sums, 9}, {"whiles", whiles, 20}, {"iterate", iterate, {5, 6, 7, a = 1, b = 2}},
  {"own_iterator", own_iterator, 12}, {"varargs", varargs, 1, 2, 3, 4}, {"varargs0", varargs},
    {"multres", multres, 4, 5},
  {"tables", tables, 2}, {"closures", closures, 4}, {"upvalues", upvalues, 6}, {"nested", nested, 4},
  {"all_returns", all_returns}, {"big_numbers", big_numbers, 7}, {"gotos", gotos, 40}, {"protected", protected, 1},
  {"protected2", protected, 3}, {"many", many, 2}, {"metamethods", metamethods, meta}, {"returns3", returns, 3},
  {"returns4", returns, 4}, {"fact", fact, 10}, {"tail", tail, 50, 1},
}
if ffi_ok then
  cases[#cases + 1] = {"cdata",
    assert(loadstring("local a = ... return tostring(5LL + a), tostring(7ULL * a), tostring(1i)")), 3}
end
return cases
