-- What graph breaks leave behind in each call: closures, hits of portals, frames that are rebuilt. Results are eager's.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local x = lt.arange(8) / 8

local function leaf(y) lt.graph_break() return y * 2 + 1 end
local function mid(y) return leaf(y) * 2 end

-- Of Lua's memory, in a call; traces are not counted.
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

h.finish()
