-- Tests setfenv of compiled functions: for a running frame, frames that are rebuilt at a break, callers, functions, and
-- results of lt.compile. All functions that stand for one function share its environment.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal

local function environment(values) return setmetatable(values, {__index = _G}) end
scale = 2

-- make() gives the function to run and functions whose environments are seen.
local function check(name, make, calls)
  test(name, function()
    local function run(wrap)
      local f, watched = make()
      local g, seen = wrap(f), {}
      for _ = 1, calls or 4 do
        seen[#seen + 1] = h.text(g(lt.ones(2)))
        for _, at in ipairs {f, g, unpack(watched or {})} do seen[#seen + 1] = tostring(getfenv(at).scale) end
      end
      return table.concat(seen, " ")
    end
    local want = run(function(f) return f end)
    lt.reset()
    equal(run(lt.compile), want)
    equal(run(lt.patch), want)
    equal(run(function(f) return lt.compile(f, {dynamic = true}) end), want)
  end)
end

check("of the compiled function", function()
  return function(x)
    local y = x * scale
    setfenv(1, environment {scale = scale + 1})
    return y * scale
  end
end)

check("of a callee that is rebuilt at a break", function()
  local function callee(x)
    local y = x * scale
    lt.graph_break()
    setfenv(1, environment {scale = scale + 1})
    lt.graph_break()
    y = y * scale
    scale = scale + 1
    return y
  end
  return function(x) return callee(x + 1) * 2 end, {callee}
end)

check("of a caller that is rebuilt at a break", function()
  local function set(x)
    setfenv(2, environment {scale = getfenv(2).scale + 1})
    return x
  end
  local function callee(x)
    local y = set(x)
    lt.graph_break()
    return y * scale
  end
  return function(x) return callee(x + 1) * 2 end, {callee, set}
end)

check("of a function by another", function()
  local callee
  local function set() setfenv(callee, environment {scale = getfenv(callee).scale + 1}) end
  function callee(x)
    local y = x * scale
    lt.graph_break()
    set()
    return y * scale
  end
  return function(x) return callee(x + 1) * 2 end, {callee}
end)

check("by debug.setfenv, of the function that compiled code is of", function()
  local f
  f = function(x)
    local y = x * scale
    debug.setfenv(f, environment {scale = scale + 1})
    return y * scale
  end
  return f
end)

check("in a coroutine whose frame waits", function()
  local function callee(x)
    local y = x * scale
    coroutine.yield(y)
    lt.graph_break()
    y = y * scale
    coroutine.yield(y)
    return y * scale
  end
  return function(x)
    local co = coroutine.wrap(callee)
    local a = co(x)
    setfenv(callee, environment {scale = getfenv(callee).scale + 1})
    local b = co()
    setfenv(callee, environment {scale = getfenv(callee).scale + 1})
    return a + b + co()
  end, {callee}
end)

check("of a callback", function()
  local function callback(x)
    local y = x
    for _ = 1, 8 do y = y * scale end
    setfenv(1, environment {scale = scale + 1})
    return y
  end
  return function(x)
    local sum = x
    string.gsub("abc", ".", function() sum = sum + callback(x) end)
    return sum
  end, {callback}
end)

test("of one closure only", function()
  local function make() return function(x) lt.graph_break() return x * scale end end
  local f, other = make(), make()
  local g, h = lt.compile(f), lt.compile(other)
  for _ = 1, 2 do equal(g(3) + h(3), 12) end
  setfenv(g, environment {scale = 5})
  for _ = 1, 2 do equal(g(3) + h(3), 21) end
  equal(f(3) + other(3), 21)
  equal(getfenv(other), _G)
end)

test("what it gives, and its errors", function()
  local own
  local function f(x)
    own = setfenv(1, getfenv(1))
    lt.graph_break()
    return x * 2
  end
  local g = lt.compile(f)
  for _ = 1, 3 do
    g(lt.ones(2))
    equal(own, g)
    f(lt.ones(2))
    equal(own, f)
  end
  equal(debug.setfenv(f, _G), f)
  for _, case in ipairs {
    {"bad argument #2 to 'setfenv' (table expected, got nil)", f, nil},
    {"bad argument #1 to 'setfenv' (number expected, got string)", "x", {}},
    {"bad argument #1 to 'setfenv' (invalid level)", 1000, {}},
    {"'setfenv' cannot change environment of given object", print, {}},
  } do
    local _, message = pcall(function() setfenv(case[2], case[3]) end)
    equal(message:gsub("^.-:%d+: ", ""), case[1])
  end
  equal(select(2, pcall(debug.setfenv, 1, {})), "'setfenv' cannot change environment of given object")
  local thread = coroutine.wrap(function() setfenv(0, {scale = 9}) return getfenv(0).scale end)
  equal(thread(), 9)
  equal(scale, 2)
end)

test("functions and compiled ones that reach each other are collected", function()
  local dead = setmetatable({}, {__mode = "k"})
  do
    local f
    f = function(x) lt.graph_break() return f and x * 2 end
    dead[f] = true
    f = lt.compile(f)
    dead[f] = true
    f(lt.ones(2))
  end
  lt.reset()
  collectgarbage() collectgarbage()
  equal(next(dead), nil)
end)

test("getfenv of the function that calls it is part of the graph", function()
  local inner = setfenv(function(x) return x * getfenv().scale, getfenv(1) end, environment {scale = 5})
  local function f(x)
    local env = getfenv()
    local y, other = inner(x * env.scale)
    local tail = (function() return getfenv() end)()
    local ok, called = pcall(getfenv)
    return y, env, other, rawequal(env, getfenv(1)), tail, ok and called
  end
  lt.reset()
  local cf, x = lt.compile(f), lt.ones(2)
  local function same()
    local want, got = {f(x)}, {cf(x)}
    equal(h.text(got[1]), h.text(want[1]))
    for k = 2, 6 do equal(got[k], want[k]) end
  end
  local whole = lt.compile(function(v) return v * getfenv().scale end, {fullgraph = true})
  for _ = 1, 3 do same() end
  equal(whole(x):sum():item(), 4)
  scale = 7
  same()
  equal(whole(x):sum():item(), 14)
  local own = environment {scale = 3}
  setfenv(f, own)
  setfenv(inner, environment {scale = 11})
  for _ = 1, 2 do same() end
  setfenv(whole, own)
  equal(whole(x):sum():item(), 6)
  scale = 2
end)

h.finish()
