-- Tests a break under calls in loops, or under functions with varargs: the rest of their rounds and of the frames above
-- is one graph.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local compare = require("noted_calls").compare

local x = lt.arange(6):view(2, 3):to("float32") / 10

-- First in this file: tables of the portal are made at the first such frame of a state.
test("a frame is rebuilt for the first time while LuaJIT collects", function()
  local function inner(x, i) local y = i + 1 lt.graph_break() return x + y end
  local f = lt.compile(function(x, i) local y = inner(x, i) return y * 2 end)
  local x = lt.ones(2)
  collectgarbage()
  collectgarbage "stop"
  f(x, 1)
  local multiplier, pause = collectgarbage("setstepmul", 1000000), collectgarbage("setpause", 0)
  collectgarbage "restart"
  for i = 1, 10 do equal(f(x, i):sum():item(), 4 * (i + 2)) end
  collectgarbage("setstepmul", multiplier)
  collectgarbage("setpause", pause)
end)

-- A leaf that breaks under so many functions of their own, each with that body: %s is the function below.
local function nest(body, depth, leaf)
  local lines = {
    "local lt, note, list = ...",
    "local function iterate(s, c) if c < s then return c + 1 end end",
    "local function upto(n) local i = 0 return function() i = i + 1 if i <= n then return i end end end",
    "local function m0(y, ...) local a = y:tanh() lt.graph_break() return (a + 1):exp() * 0.1, ... end",
  }
  if leaf then lines[#lines] = leaf end
  for i = 1, depth do
    lines[#lines + 1] = ("local function m%d(y, ...) %s end"):format(i, (body:gsub("%%s", "m" .. i - 1)))
  end
  lines[#lines + 1] = ("return m%d"):format(depth)
  return table.concat(lines, "\n")
end

local function graphs(body, depth, leaf)
  local text = nest(body, depth, leaf)
  local rows = {{x, 5, 6}, {x * 2, 5, 6}}
  return compare(function() return assert(loadstring(text, "=nest"))(lt, nil, {3}) end, rows)
end

local once = {
  "for i = 1, 1 do y = %s(y) * i + 1 end return y",
  "for i = 0.5, 0.25, -1 do y = %s(y) + i end return y:sin()",
  "local n = 3 for i = n, n, 2 do y = %s(y) + i n = n + i end return y * n",
  "for i = 1, 3 do if i == 1 then y = %s(y) + i else y = y * i end end return y",
  "for i = 1, 3 do if i == 2 then y = %s(y) + i else y = y * i end end return y",
  "for i = 1, 30 do if i == 30 then y = %s(y) + i else y = y + 1 end end return y",
  "for i = 1, 2 do for k = 1, i do if k == 2 then y = %s(y) - k end y = y + i end end return y",
  "for i = 1, 3 do y = %s(y) + i break end return y * 2",
  "for i = 1, 1 do local function add(v) return v + i end y = add(%s(y)) end return y",
  "for k, v in pairs {a = 1} do y = %s(y) + v end return y:cos()",
  "for k, v in pairs(list) do y = %s(y) + v * k end return y",
  "for k, v in next, list do y = %s(y) + v end return y",
  "for k, v in ipairs {3} do y = %s(y) + v end return y * 2",
  "for k, v in ipairs(list) do y = %s(y) + v end return y",
  "for k, v in ipairs {1, 2, 3} do if k == 1 then y = %s(y) + v else y = y * k end end return y",
  "local k = 0 while k < 1 do k = k + 1 y = %s(y) + k end return y",
}

test("a loop in each frame leaves two graphs", function()
  for _, body in ipairs(once) do
    for _, depth in ipairs {1, 2, 5, 15} do equal(graphs(body, depth), 2, body .. " " .. depth) end
  end
end)

test("a loop of a Lua function in each frame leaves few graphs", function()
  for _, depth in ipairs {1, 5, 15} do
    equal(graphs("for k in iterate, 1, 0 do y = %s(y) + k end return y", depth), 2)
    truthy(graphs("for k in upto(1) do y = %s(y) + k end return y * 2", depth) <= 3)
  end
end)

test("loops that come round pass through a break in each round", function()
  for _, body in ipairs {
    "for i = 1, 2 do y = %s(y) + i end return y", "for i = 1, 4 do y = %s(y) + i end return y",
    "local k = 0 while k < 3 do k = k + 1 y = %s(y) + k end return y",
  } do
    equal(graphs(body, 1), 3, body)
    equal(graphs(body, 2), 4, body)
    truthy(graphs(body, 4) <= 10, body)
  end
  truthy(graphs("for k, v in ipairs {3, 4, 5} do y = %s(y) + v end return y", 1) <= 5)
  truthy(graphs("for k, v in ipairs {3, 4, 5} do y = %s(y) + v end return y", 3) <= 20)
end)

test("other bounds, lists and ways in each call", function()
  local function make()
    local function leaf(y, i)
      local a = y * i
      if i % 2 == 1 then lt.graph_break() end
      return (a + 1):tanh()
    end
    local function mid(y, from, to, list)
      for i = from, to do y = leaf(y, i) + i end
      for k, v in pairs(list) do y = leaf(y, v) * #k end
      return y
    end
    return function(y, from, to, list)
      for i = from, to, 2 do y = mid(y, i, to, list) / 2 end
      for i, v in ipairs(list) do y = mid(y, v, v, {}) + i end
      return y, from + to
    end
  end
  local lists = {{}, {a = 1}, {a = 2, bc = 3}, {1, 3}, {5}}
  local rows = {}
  for n = 1, 12 do rows[n] = {x, n % 3, n % 5, n % 4 == 0 and {} or {ab = n}} end
  for n = 1, 3 do rows[#rows + 1] = {x, 1, n, lists[n]} end
  compare(make, rows)
end)

test("what the real frame's loop leaves to its rest", function()
  local function make()
    local function leaf(y, own)
      own(y)
      local a = y * 2
      lt.graph_break()
      own(a)
      return a:exp(), 1, a
    end
    return function(y, n, ...)
      local total, names = y * 0, {}
      local function add(v) total = total + v end
      for i = n, n do
        local kept = y
        local a, b, c = leaf(y, function(v) kept = kept + v add(v) end)
        y = a + b * i - kept
        names[#names + 1] = c
        if select("#", ...) > i then y = y + select(i, ...) end
      end
      for k in pairs {z = 1} do y = leaf(y, add) + #k end
      if n == 3 then error("at three") end
      return y, total, #names, debug.traceback():match("in function <[^\n]*") ~= nil, ...
    end
  end
  truthy(compare(make, {{x, 1, 2, 3}, {x, 2, 3, 4}, {x, 3, 1, 1}, {x, 2, 3, 4}}) <= 12)
end)

test("frames with varargs", function()
  for _, depth in ipairs {1, 2, 5, 15} do
    local function make()
      local function f(y, ...)
        local a = y:tanh()
        lt.graph_break()
        return (a + select("#", ...)):exp(), ...
      end
      for _ = 1, depth do
        local inner = f
        f = function(y, ...)
          local r, one = inner(y + 1, 1, ...)
          return r * one, ...
        end
      end
      return f
    end
    equal(compare(make, {{x}, {x * 2}}), 2, "depth " .. depth)
    compare(make, {{x}, {x, 2, x}, {x, nil, nil}, {x, x + 1}, {x, unpack({}, 1, 40)}})
  end
end)

h.finish()
