-- Captures with long strings.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

test("a capture does not keep the square of a string", function()
  local function f(x, n)
    local s = ""
    for i = 1, n do s = s .. i end
    return x + #s
  end
  equal(lt.compile(f)(lt.ones(1), 500):item(), 1393)
  local long = lt.compile(function(...) return f(...) end)
  equal(long(lt.ones(1), 20000):item(), 88895)
  local peak = 0
  local status = io.open("/proc/self/status")
  if status then
    peak = tonumber(status:read("*a"):match "VmHWM:%s*(%d+)")
    status:close()
  end
  truthy(peak < 700000, "kB at most: " .. peak)
end)

h.finish()
