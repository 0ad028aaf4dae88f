-- Tests that tables which compiled frames make and write have the memory layout of Lua's own: their pairs have the same
-- order, and with a hole their length is the same.
local lt = require "lutra"
local h = require "harness"

local function total(counts)
  local n = 0
  for _, c in pairs(counts) do n = n + c end
  return n
end

local function laid_out(t)
  local out = {"#" .. #t}
  for k in next, t do out[#out + 1] = tostring(k) end
  return table.concat(out, " ")
end

local layouts = {
  cleared = function(x, n)
    local t = {n, b = 1}
    t[#t + 1] = n
    table.remove(t)
    t.c, t.d, t.c = 1, 2, nil
    return t, x * 2
  end,
  constructed = function(x, n)
    local t = {a = n, b = n, c = 3, d = n, e = n, f = 6, g = nil}
    t.h, t.i = n, n
    return t, x * 2
  end,
  ["read in the frame"] = function(x, n)
    local t, order = {a = n, b = nil, c = 3, d = 4}, 0
    t.e, t.f = 5, 6
    for k, v in pairs(t) do order = order * 7 + v end
    t.order = order
    return t, x * order
  end,
  broken = function(x, n)
    local t = {a = n, b = n, c = 3, d = n, e = n, f = 6, g = nil, n, nil}
    lt.graph_break()
    t.h = 1
    return t, x * 2
  end,
}
for name, f in pairs(layouts) do
  h.test("tables lie in memory as Lua makes them: " .. name, function()
    for _, mode in ipairs {"compile", "patch"} do
      lt.reset()
      local want = laid_out((f(lt.ones(2), 3)))
      local g = lt[mode](f)
      for call = 1, 3 do h.equal(laid_out((g(lt.ones(2), 3))), want, mode .. ", call " .. call) end
      h.equal(total(lt.counters().graph_break), name == "broken" and 1 or 0, "breaks")
      lt.unpatch(f)
    end
  end)
end

h.test("a key that a real table gets may change its length beside a hole", function()
  local function grow(t, x)
    t.e = 1
    return #t, x * 2
  end
  local compiled = lt.compile(grow)
  for call = 1, 3 do
    for _, make in ipairs {function() return {1, 2, nil, 4} end, function() return {[2] = 1, [3] = 2} end} do
      h.equal((compiled(make(), lt.ones(2))), (grow(make(), lt.ones(2))), "call " .. call)
    end
  end
end)

h.finish()
