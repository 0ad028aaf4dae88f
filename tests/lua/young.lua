-- Tensors that are freed without a cycle of the collector: each that Lua can still reach keeps its elements. A random
-- program hands tensors on through everything that can hold one; with stress = "collect" a whole cycle confirms each
-- tensor that was found dead.
local lt = require "lutra"
local harness = require "harness"
local test, equal, truthy = harness.test, harness.equal, harness.truthy

local seed = tonumber(arg[1]) or 1
local random = math.random
local made = 0
local function fresh()
  made = made + 1
  return lt.full({160, 128}, made), made
end
local function check(t, number)
  if not lt.is_tensor(t) then error("no tensor: " .. tostring(t)) end
  equal(t[{random(0, 127), random(0, 127)}]:item(), number)
end

-- First: a trace of what follows may forbid walks.
test("results take turns in few blocks", function()
  collectgarbage()
  collectgarbage()
  local x, more = lt.randn(1024, 1024), 0
  for _ = 1, 20 do x:relu() end
  local before = lt.memory().allocated
  for _ = 1, 200 do
    x:relu()
    if lt.memory().allocated - before > 13 * 2 ^ 20 then more = more + 1 end -- a cycle has ended, say
  end
  truthy(more < 50, more)
end)

local registry_like = {}
-- A holder takes a tensor and gives a function that gives it back.
local holders = {
  function(t) return function() return t end end, -- an upvalue
  function(t) -- one that is written late
    local late
    local function set(v) late = v end
    local function get() return late end
    set(t)
    return get
  end,
  function(t) -- a table in an old table
    local key = #registry_like + 1
    registry_like[key] = {deep = {t}}
    return function()
      local v = registry_like[key].deep[1]
      registry_like[key] = false
      return v
    end
  end,
  function(t) -- a key
    local keys = {[t] = true}
    return function() return (next(keys)) end
  end,
  function(t) -- a suspended coroutine's local
    local co = coroutine.wrap(function()
      local kept = t
      t = nil
      coroutine.yield()
      return kept
    end)
    co()
    return co
  end,
  function(t) -- a coroutine's argument
    local co = coroutine.create(function(...)
      coroutine.yield()
      return ...
    end)
    coroutine.resume(co, t)
    return function() return select(2, coroutine.resume(co)) end
  end,
  function(t) -- a metatable
    local o = setmetatable({}, {__index = {t = t}})
    return function() return o.t end
  end,
  function(t) -- an environment
    local f = loadstring "return t"
    setfenv(f, {t = t})
    return f
  end,
  function(t) -- varargs
    return (function(...)
      local n = select("#", ...)
      local packed = {...}
      return function() return packed[n] end
    end)(1, 2, t)
  end,
  function(t) -- an open variable of a coroutine that nothing else holds
    local get
    local co = coroutine.create(function(v)
      local kept = v
      get = function() return kept end
      coroutine.yield()
      return kept
    end)
    coroutine.resume(co, t)
    return get
  end,
  function(t) -- a userdata's metatable
    local proxy = newproxy(true)
    getmetatable(proxy).t = t
    return function() return getmetatable(proxy).t end
  end,
  function(t) -- a metatable that only a buffer names
    local has, buffer = pcall(require, "string.buffer")
    if not has then return function() return t end end
    local mt = {__index = {t = t}}
    local buf = buffer.new {metatable = {mt}}
    buf:encode(setmetatable({}, mt))
    return function() return buf:decode().t end
  end,
  function(t) -- a C function's upvalue
    local co = coroutine.wrap(function(v)
      while true do v = coroutine.yield(v) end
    end)
    co(t)
    return function() return co(t) end
  end,
  function(t) -- a weak value beside a strong one
    local weak = setmetatable({t}, {__mode = "v"})
    return function() return weak[1], t end
  end,
  function(t) -- a view, whose base is gone
    local view = t:t()
    return function() return view end
  end,
  function(t) -- a result that was another's argument
    local sum = t + 0
    return function() return sum end
  end,
}

local function run(steps)
  local live = {}
  for _ = 1, steps do
    local slot = random(12)
    local entry = live[slot]
    if entry then
      local value = entry.get() -- once: some holders give it away
      check(value, entry.number)
      live[slot] = random(2) == 1 and {get = holders[random(#holders)](value), number = entry.number} or nil
    else
      local t, number = fresh()
      live[slot] = {get = holders[random(#holders)](t), number = number}
      if random(4) == 1 then
        local again = live[slot].get
        local value = again()
        live[slot].get = holders[random(#holders)](value)
      end
    end
    for _ = 1, random(0, 3) do fresh() end
    if random(40) == 1 then collectgarbage "step" end
    if random(200) == 1 then collectgarbage() end
  end
  for _, entry in pairs(live) do check(entry.get(), entry.number) end
end

test("what Lua reaches stays", function()
  math.randomseed(seed)
  run(4000)
end)

test("a whole cycle confirms what is found dead", function()
  math.randomseed(seed + 1)
  lt.config.stress = "collect"
  run(1500)
  lt.config.stress = nil
end)

test("finalizers that use tensors find them", function()
  local seen = 0
  for _ = 1, 200 do
    do
      local t, number = fresh()
      getmetatable(newproxy(true)).__gc = function()
        check(t, number)
        seen = seen + 1
      end
    end
    for _ = 1, 5 do fresh() end
  end
  collectgarbage()
  collectgarbage()
  equal(seen, 200)
end)

test("an open variable of a coroutine that nothing holds is written late", function()
  for round = 1, 60 do
    local get, set
    coroutine.resume(coroutine.create(function()
      local kept
      get = function() return kept end
      set = function(v) kept = v end
      coroutine.yield()
      return kept
    end))
    for _ = 1, 10 + round do lt.full({512, 512}, 0) end -- marking ends
    local t, number = fresh()
    -- A trace of LuaJIT before November 2023 that has seen an open variable writes a closed one without a barrier.
    jit.off(set)
    set(t)
    t = nil
    for _ = 1, 8 do lt.full({512, 512}, 0) end
    check(get(), number)
  end
end)

-- Traces of LuaJIT before November 2023 that were recorded while a variable was open write it without a write barrier
-- when it is closed. `text` makes get, set and hot (which calls set n times) of a variable that its caller closes.
local function open_variable(text, value_of, tensor_of)
  for round = 1, 60 do
    local get, hot = assert(loadstring(text))()(value_of(lt.zeros(1)))
    for _ = 1, 10 + round do lt.full({512, 512}, 0) end -- marking ends
    local t, number = fresh()
    hot(8, value_of(t))
    t = nil
    for _ = 1, 8 do lt.full({512, 512}, 0) end
    check(tensor_of(get()), number)
  end
end

local function same(v) return v end
local function wrapped(t) return {deep = {t}} end
local function unwrapped(v) return v.deep[1] end
local function captured(t) return function() return t end end
local function called(f) return f() end

for kind, way in pairs {userdata = {same, same}, table = {wrapped, unwrapped}, ["function"] = {captured, called}} do
  test("a trace writes a variable of one function that is closed by now: " .. kind, function()
    open_variable([[return function(v)
      local kept
      local function set(v) kept = v end
      local function hot(n, v) for _ = 1, n do set(v) end end
      hot(200, v)
      return function() return kept end, hot
    end]], way[1], way[2])
  end)
  test("a trace that begins in a function writes its variable: " .. kind, function()
    open_variable([[return function(v)
      local kept
      local function hot(n, v) for i = 1, n do kept = v end end
      hot(200, v)
      return function() return kept end, hot
    end]], way[1], way[2])
  end)
  test("a trace writes variables of many functions: " .. kind, function()
    open_variable([[
      local function one(v, n)
        local kept
        local function set(v) kept = v end
        local function get() return kept end
        local function hot(n, v) for _ = 1, n do set(v) end end
        hot(n, v)
        return get, hot
      end
      return function(v)
        for _ = 1, 5 do one(v, 200) end
        return one(v, 1)
      end]], way[1], way[2])
  end)
end

harness.finish()
