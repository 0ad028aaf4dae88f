-- Tests guards that check fields of one table by a list: whatever changes in the table and its values, a compiled call
-- gives the same as the function.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal

lt.config.recompile_limit = 1000

local function text_of(ok, v)
  if not ok then return tostring(v):gsub("^.-:%d+: ", "") end
  return type(v) == "userdata" and tostring(v.dtype) .. tostring(v:detach()) .. tostring(v.requires_grad) or tostring(v)
end

-- Calls f after each change, and again after the change before it: a list that has learned must forget.
local function check(f, changes)
  local g = lt.compile(f)
  local x = lt.arange(3):to("float32")
  for round = 1, 3 do
    for i, change in ipairs(changes) do
      change()
      for call = 1, 4 do
        equal(text_of(pcall(g, x)), text_of(pcall(f, x)), ("change %d, call %d, round %d"):format(i, call, round))
      end
    end
  end
end

local function values(c)
  return function(x)
    local s = 0
    if c.a == "one" then s = s + 1 end
    if c.b == 2 then s = s + 2 end
    if c.c == nil then s = s + 4 end
    if c.d == true then s = s + 8 end
    if c.e == "five" then s = s + 16 end
    if type(c.f) == "table" then s = s + 32 end
    return x + s
  end
end

test("values that change, go and come", function()
  local c = {a = "one", b = 2, d = true, e = "five", f = {}}
  local function set(key, value) return function() c[key] = value end end
  check(values(c), {function() end, set("a", "two"), set("a", "one"), set("b", 3), set("b", 2), set("c", false),
    set("c", nil), set("d", false), set("d", true), set("e", nil), set("e", "five"),
    set("f", "no table"), set("f", {})})
end)

test("tables that grow, shrink and are other tables", function()
  local c = {a = "one", b = 2, d = true, e = "five", f = {}}
  local holder = {c = c}
  local f = function(x)
    local t, s = holder.c, 0
    if t.a == "one" then s = s + 1 end
    if t.b == 2 then s = s + 2 end
    if t.d == true then s = s + 8 end
    if t.e == "five" then s = s + 16 end
    if t.g == "six" then s = s + 64 end
    return x + s
  end
  local function other(n, change)
    return function()
      local t = {}
      for i = 1, n do t["k" .. i] = i end
      t.e, t.d, t.b, t.a = "five", true, 2, "one"
      for i = 1, n do t["k" .. i] = nil end
      for k, v in pairs(change or {}) do t[k] = v end
      holder.c = t
    end
  end
  check(f, {function() for i = 1, 100 do c["k" .. i] = i end end, other(0), other(200), other(3, {a = "no"}),
    other(0, {b = 7}), function() holder.c = {} end, other(1, {g = "six"}), function() holder.c = c end,
    function() for i = 1, 100 do c["k" .. i] = nil end c.z = 1 collectgarbage() end})
end)

test("tensors", function()
  local m = {}
  local function fresh() for i = 1, 6 do m["p" .. i] = lt.ones(3) * i end end
  fresh()
  local base = lt.arange(12):to("float32")
  local f = function(x) return x + m.p1 + m.p2 * m.p3 + m.p4 - m.p5 * m.p6 end
  local function set(key, make) return function() fresh() m[key] = make() end end
  check(f, {fresh, set("p2", function() return lt.ones(1) end),
    set("p3", function() return lt.ones(3, {dtype = "float64"}) end),
    set("p4", function() return base:narrow(0, 2, 3) end),
    set("p4", function() return base:narrow(0, 5, 3):detach() end),
    set("p5", function() return lt.ones(2, 3) end),
    set("p6", function() return base:view(4, 3):t():select(1, 1):narrow(0, 0, 3) end),
    set("p1", function() return lt.ones(3, {requires_grad = true}) end), set("p2", function() return 5 end),
    set("p3", function() return m.p1 end), set("p2", function() return m.p3:clone():requires_grad_() * 2 end),
    set("p5", function() local t = lt.ones(3) t:free() return t end), fresh,
    function() m.p1:add_(1) end, function() m.p2.data = lt.full({3}, 9) end})
end)

test("functions", function()
  local m = {}
  for i = 1, 5 do m["f" .. i] = function(x) return x + i end end
  local f = function(x) return m.f1(m.f2(m.f3(m.f4(m.f5(x))))) end
  check(f, {function() end, function() m.f3 = function(x) return x * 2 end collectgarbage() end,
    function() m.f1, m.f5 = m.f5, m.f1 end, function() m.f2 = print and function(x) return x end end})
end)

h.finish()
