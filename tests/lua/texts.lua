-- Tests strings made of numbers and strings that change from call to call: they are made after the run, in one graph,
-- until Lua has to read one. Results are eager's.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local function text(v)
  if type(v) ~= "table" then return type(v) .. " " .. tostring(v) end
  local out = {}
  for i = 1, #v do out[i] = text(v[i]) end
  return "{" .. table.concat(out, ", ") .. "}" .. tostring(v.name)
end
local function outcome(f, ...)
  local r = {pcall(f, ...)}
  for i = 1, 9 do r[i] = text(r[i]) end
  return table.concat(r, " ")
end

local NUMBERS = {3, 4, 1.5, -0.0, 0, 1 / 0, -1 / 0, 2 ^ 60, -7, 1e300, 123456789012345, 0.1, 2 ^ 53, -1e-7, 12, 13, 14}

-- make() gives f, called with a tensor, a number and a string, which change, in `want` graphs.
local function check(name, make, want, breaks)
  test(name, function()
    lt.reset()
    local f, g = make(), lt.compile(make())
    for i, n in ipairs(NUMBERS) do
      local x = lt.ones(3) * i
      equal(outcome(g, x, n, "s" .. i), outcome(f, x, n, "s" .. i), "call " .. i)
    end
    local graphs, found = lt.counters().stats.unique_graphs, {}
    equal(graphs, want or 1, "graphs")
    for _, b in ipairs(lt._report(g).break_reasons) do found[#found + 1] = b.reason .. " at " .. b.line end
    equal(#found, breaks or 0, table.concat(found, "; "))
  end)
end
local function of(f) return function() return f end end

check("a number in a text", of(function(x, n) return x * 2, "step " .. n, n .. "", n .. n, -n .. " of " .. n * 2 end))
check("tostring", of(function(x, n, s) return x * 2, tostring(n), tostring(n + 1), tostring(s), tostring(n) .. s end))
check("string.format", of(function(x, n, s)
  return x * 2, string.format("%d %5.2f %g", n, n, n), ("%s: %q %%"):format(s, s), ("%s"):format(n), ("%x"):format(5)
end))
check("a string that changes in a format of numbers", of(function(x, n)
  return x + 1, ("%d"):format("3"), ("%5.1f|%s"):format(n, "a")
end))
check("texts of texts", of(function(x, n, s)
  local a = "<" .. s .. ">"
  local b = a .. n .. a
  return x * 2, b, b:upper(), b:sub(2, 4), b:reverse() .. a, b:sub(1, n > 0 and 2 or 3)
end), 2)
check("table.concat", of(function(x, n, s)
  return x * 2, table.concat({n, s, "c"}, ", "), table.concat({n, s}, s), table.concat {s}, table.concat({n, n}, n)
end))
-- The result is a string even for one number: as a number it would be another key and have no length.
check("table.concat of one number", function()
  local t = {}
  return function(x, n)
    local s = table.concat({n})
    t[s] = (t[s] or 0) + 1
    local kept = {s, name = table.concat({x:sum():item()}, ", ")}
    lt.graph_break()
    return x * 2, s, #s, type(s), kept, t[s], t[n], s .. "!"
  end
end, 11, 10)
check("table.concat of one number is a string", of(function(x, n)
  local s = table.concat({n})
  return x * 2, s, type(s), {s}, table.concat({n}, "-")
end))
check("many parts", of(function(x, n)
  local parts = {}
  for i = 1, 40 do parts[i] = n end
  return x * 2, table.concat(parts, ",")
end))
check("an element of a tensor", of(function(x, n)
  local m = x:sum():item()
  return x * 2, "loss " .. m, ("%.3f of %d"):format(m, n), tostring(m * 2)
end))
check("a size", of(function(x) return x * 2, "n = " .. x:size(0), tostring(x.shape[1]) end))

check("kept in tables and variables", function()
  local log, last = {}, ""
  return function(x, n, s)
    log[#log + 1] = s .. "=" .. n
    last = "last " .. n
    return x * 2, {name = "n" .. n, s .. 1, s .. 1}, log, last
  end
end, 2)

check("one text at two places", of(function(x, n)
  local s = "n" .. n
  return x + 1, s, {s, s}, rawequal(s, s), type(s)
end))

-- A text that Lua code inspects is a constant of its entry.
check("a text that is a key", function()
  local t = {k1 = 1, k2 = 2}
  return function(x, n) return x * (t["k" .. n % 2] or 3) end
end, 5, 1)
check("a text that is compared", of(function(x, n)
  local s = "v" .. math.floor(math.abs(n) % 2)
  if s == "v1" then return x * 3, s end
  return x * 2, s, s < "v1", #s
end), 6, 1)
check("an element's text that is compared", of(function(x)
  local s = "v" .. x:sum():item()
  if s == "v3" then return x * 3 end
  return x * 2
end), 3, 1)
check("a text that is a number", of(function(x, n) return x * ("1" .. math.floor(math.abs(n) % 2)) end), 0, 1)
check("a text before a break", of(function(x, n, s)
  local a = "step " .. n .. s
  local y = x * 2
  lt.graph_break()
  return y + 1, a, a .. n
end), 2, 1)

check("a text in a text, many times", of(function(x, n, s)
  local t = ""
  for i = 1, 100 do t = t .. s .. i end
  return x * 2, t .. n
end), 4)

check("metamethods see what has been joined", of(function(x, n, s)
  local m = setmetatable({}, {__concat = function(a, b)
    return (type(a) == "table" and "T" or a) .. "|" .. (type(b) == "table" and "T" or b)
  end, __tostring = function() return "text " .. n end})
  return x * 2, m .. n .. s, n .. s .. m, s .. m .. n, tostring(m)
end), 1)

check("what raises", of(function(x, n, s)
  return x, s .. {}, n
end), 0, 1)
check("a format that raises", of(function(x, n, s) return x, ("%d"):format(s) end), 0, 3)
check("tostring of what gives no text", of(function(x)
  return x, tostring(setmetatable({}, {__tostring = function() return 3 end}))
end), 0, 1)

test("string.rep", function()
  local function f(x, n, s) return x * 2, ("ab"):rep(n), ("-"):rep(n) .. s, ("ab"):rep(n, s) end
  local function plain(x, n) return x * 2, ("ab"):rep(n), ("-"):rep(n) .. n end
  lt.reset()
  local g, p, x = lt.compile(f), lt.compile(plain), lt.ones(3)
  for n = 0, 16 do equal(outcome(p, x, n), outcome(plain, x, n), n) end
  truthy(lt.counters().stats.unique_graphs <= 3, lt.counters().stats.unique_graphs .. " graphs")
  for _, n in ipairs {-3, 2.7, 2 ^ 19, 2 ^ 20 + 3, 0 / 0, -1e300} do
    equal(outcome(p, x, n), outcome(plain, x, n), n)
    if n == n then equal(outcome(g, x, n, "s"), outcome(f, x, n, "s"), n) end
  end
  local function huge(x, n) return x * 2, pcall(string.rep, "abcdefgh", n) end
  local h2 = lt.compile(huge)
  for _, n in ipairs {1, 2, 3, 2 ^ 40, 4} do equal(outcome(h2, x, n), outcome(huge, x, n), n) end
end)

test("string.format that is replaced is noticed", function()
  local f = function(x, n) return x * 2, string.format("%d", n), ("%d"):format(n), tostring(n), ("a" .. n):upper() end
  local g = lt.compile(f)
  local format, upper, to_string = string.format, string.upper, tostring
  equal(outcome(g, lt.ones(2), 3), outcome(f, lt.ones(2), 3))
  string.format, string.upper = function(s, n) return s .. "!" .. n end, function(s) return s .. "?" end
  tostring = function(v) return to_string(v) .. "." end
  local ok, message = pcall(function()
    for n = 4, 6 do
      local _, a, b, c, d = g(lt.ones(2), n)
      equal(table.concat({a, b, c, d}, " "), ("%%d!%s %%d!%s %s. a%s?"):gsub("%%s", n):gsub("%%%%", "%%"))
    end
  end)
  string.format, string.upper, tostring = format, upper, to_string
  truthy(ok, message)
end)

test("functions of the library that are written in bytecode", function()
  local function f(x, n)
    local s, out = 0, {}
    table.foreachi({1, 2, n}, function(_, v) s = s + v end)
    table.foreach({a = 1}, function(k, v) out[#out + 1] = k .. v end)
    local moved = table.move({1, 2, 3}, 1, 3, 2)
    return x * s, out, moved, x * math.rad(n) + math.deg(n)
  end
  lt.reset()
  local g = lt.compile(f)
  for n = 1, 5 do equal(outcome(g, lt.ones(2), n), outcome(f, lt.ones(2), n)) end
  truthy(lt.counters().stats.unique_graphs == 1, lt.counters().stats.unique_graphs .. " graphs")
  local function breaks(x, n)
    local y = x * 2
    table.foreachi({1, n}, function(_, v)
      y = y * v
      lt.graph_break()
    end)
    return y + 1
  end
  local cb = lt.compile(breaks)
  for n = 1, 4 do equal(outcome(cb, lt.ones(2), n), outcome(breaks, lt.ones(2), n)) end
  local function wrong(x, v) return x * 2, table.foreach(v, print) end
  local cw = lt.compile(wrong)
  for _, v in ipairs {3, "s", false} do equal(outcome(cw, lt.ones(2), v), outcome(wrong, lt.ones(2), v)) end
end)

h.finish()
