-- Tests the costs of graph breaks in each call: closures, hits of portals, rebuilt frames. Results are eager's.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local x = lt.arange(8) / 8

local function leaf(y) lt.graph_break() return y * 2 + 1 end
local function mid(y) return leaf(y) * 2 end

-- Returns the bytes of Lua's memory that a call allocates. The JIT is off, so that traces are not counted.
local function bytes_of(f)
  local on = jit.status()
  jit.off()
  for _ = 1, 40 do f(x) end
  collectgarbage()
  collectgarbage "stop"
  f(x)
  local before = collectgarbage "count"
  for _ = 1, 20 do f(x) end
  local bytes = (collectgarbage "count" - before) * 1024 / 20
  collectgarbage "restart"
  if on then jit.on() end
  return bytes
end

test("what frames go on as is made once", function()
  lt.reset()
  local bytes = bytes_of(lt.compile(function(y) return mid(y) + 1 end))
  truthy(bytes <= 128, bytes .. " bytes a call")
end)

test("what a frame goes on as has the variables and the environment of the function", function()
  Factor = 3
  for _, wrap in ipairs {function(f) return f end, lt.compile} do
    lt.reset()
    local one, other = 1, 100
    local function inner(y)
      local a = y * one
      lt.graph_break()
      return a * Factor + one
    end
    local function read() return other end
    local f = wrap(function(y) return inner(y) + 1 end)
    local function told() return f(x):sum():item() end
    local first = told()
    equal(told(), first)
    one = 2
    equal(told(), 2 * first - 8)
    debug.upvaluejoin(inner, 1, read, 1)
    jit.flush() -- LuaJIT's own traces keep the variable
    local want = (x * 100 * 3 + 101):sum():item()
    for _ = 1, 3 do equal(told(), want) end
    setfenv(inner, {Factor = 5})
    want = (x * 100 * 5 + 101):sum():item()
    for _ = 1, 3 do equal(told(), want) end
    jit.off(inner)
    equal(told(), want)
  end
  Factor = nil
end)

local function hits_of(f)
  local before = lt.counters().cache.hits
  for _ = 1, 10 do f(x) end
  return (lt.counters().cache.hits - before) / 10
end

local function settle(f)
  lt.reset()
  local g, want = lt.compile(f), h.text(f(x))
  for i = 1, 1500 do
    local y = g(x)
    if i < 20 or i % 100 == 0 then equal(h.text(y), want, "call " .. i) end
  end
  return g
end

-- Each round has one op before its break and one behind it, in a frame that is rebuilt: that costs more than it saves.
local idle = {
  ["a closure under pcall"] = function(y)
    for i = 1, 12 do
      local _, z = pcall(function()
        local a = y * 0.5
        lt.graph_break()
        return a + i
      end)
      y = z
    end
    return y
  end,
  ["a closure under xpcall"] = function(y)
    for i = 1, 4 do
      local _, z = xpcall(function()
        local a = y * 0.5
        lt.graph_break()
        return a + i
      end, debug.traceback)
      y = z
    end
    return y
  end,
  ["a closure under no_grad"] = function(y)
    for i = 1, 12 do
      y = lt.no_grad(function()
        local a = y * 0.5
        lt.graph_break()
        return a + i
      end)
    end
    return y
  end,
}

for name, f in pairs(idle) do
  test("frames are not rebuilt for a few ops: " .. name, function()
    local hits = hits_of(settle(f))
    truthy(hits <= 4, hits .. " portals a call")
  end)
end

test("a module of layers that break", function()
  local Layer = lt.nn.Module:extend("Layer")
  function Layer:forward(y)
    y = y * 0.5
    lt.graph_break()
    return y + 1
  end
  local layers = {}
  for i = 1, 24 do layers[i] = i % 4 == 0 and lt.nn.Tanh() or Layer() end
  local hits = hits_of(settle(lt.nn.Sequential(unpack(layers))))
  truthy(hits <= 4, hits .. " portals a call")
end)

test("frames are rebuilt for many ops", function()
  local function layer(y)
    for i = 1, 4 do y = (y * 0.5 + i):tanh() end
    lt.graph_break()
    for i = 1, 4 do y = (y * 0.5 - i):tanh() end
    return y
  end
  local hits = hits_of(settle(function(y)
    for _ = 1, 12 do y = layer(y) end
    return y
  end))
  truthy(hits >= 13, hits .. " portals a call")
end)

test("a callee that is left is a frame of its own where it has ops enough", function()
  local g = settle(function(y)
    for i = 1, 12 do
      y = lt.no_grad(function()
        local a = y * 0.5
        lt.graph_break()
        for k = 1, i == 12 and 8 or 0 do a = (a * 0.5 + k):tanh() end
        return a
      end)
    end
    return y
  end)
  truthy(hits_of(g) >= 1)
end)

h.finish()
