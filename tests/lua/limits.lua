-- Tests lt.limits{seconds = n, bytes = n, threads = n}(f, ...): it stops f by an error at any place, completely, and
-- leaves a state that works as before.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, fails = h.test, h.equal, h.truthy, h.raises

-- Runs f under a limit, which ends it. Returns the message and the seconds that it took.
local function limited(seconds, f, ...)
  local start = lt.perf_counter()
  local ok, message = pcall(lt.limits({seconds = seconds}), f, ...)
  truthy(not ok, "f has returned")
  return tostring(message), lt.perf_counter() - start
end

local function is_over(seconds, f, ...)
  local message, took = limited(seconds, f, ...)
  truthy(message:find(("limits: %.14g seconds are over"):format(seconds), 1, true), message)
  truthy(took >= 0.99 * seconds, took)
  truthy(took < seconds + 3, took)
  -- The state goes on.
  truthy((lt.ones(3) * 2):sum():item() == 6)
  local sum = 0
  for i = 1, 100000 do sum = sum + i end
  equal(sum, 5000050000)
  return message
end

-- First, as what compiled code keeps for its runs counts, too.
test("what a call that ran out of bytes leaves takes no room from the next one", function()
  for i = 30, 60 do
    local limited = lt.limits {bytes = 60166156 + i * 500}
    pcall(limited, function() return lt.ones(3000, 3000):tolist() end)
    local ok, message = pcall(limited, function() return {} end)
    truthy(ok, tostring(message))
  end
end)

test("what returns in time returns all", function()
  equal(table.concat({lt.limits({seconds = 30})(function(...) return select("#", ...), ... end, 1, 2)}, " "), "2 1 2")
  fails("of the test", lt.limits({seconds = 30}), error, "of the test", 0)
  fails("limits: argument 'f' must be a function or a module, got a number", lt.limits({seconds = 30}), 1)
end)

test("loops of Lua", function()
  is_over(0.1, function() while true do end end)
  is_over(0.1, function()
    local t = {}
    while true do t[#t % 100 + 1] = {#t} end
  end)
  is_over(0.1, function()
    local function recurse(n) return n == 0 and 0 or recurse(n - 1) end
    while true do recurse(100) end
  end)
end)

test("ops, compiled code, compiling", function()
  local x = lt.ones(64)
  is_over(0.1, function() while true do x = x * 1.0 end end)
  local threads = lt.config.num_threads
  lt.config.num_threads = 1 -- a product of few rows by one panel
  local a, b = lt.ones(1, 1):expand(4, 4e9), lt.ones(1, 16):expand(4e9, 16)
  is_over(0.1, function() return a:matmul(b) end)
  lt.config.num_threads = threads
  local step = lt.compile(function(x) return (x * 2 + 1):tanh() end)
  is_over(0.1, function() while true do x = step(x) end end)
  is_over(0.2, function()
    while true do
      lt.compile(function(x)
        for i = 1, 150 do x = (x * i):sin() + x end
        return x
      end)(x)
    end
  end)
end)

test("a long loop of one kernel", function()
  local x = lt.ones(4000, 4000)
  local f = lt.compile(function(x)
    local y = x
    for _ = 1, 60 do y = (y:sin() + y:cos()):exp():log1p() end
    return y:sum()
  end)
  f(lt.ones(2, 2))
  f(lt.ones(3, 3))
  is_over(0.3, f, x)
end)

test("coroutines made within", function()
  is_over(0.1, function()
    local co = coroutine.wrap(function() while true do coroutine.yield(1) end end)
    while true do co() end
  end)
  is_over(0.1, function()
    coroutine.wrap(function() while true do end end)()
  end)
end)

test("a program that catches errors ends, too", function()
  local caught = 0
  is_over(0.2, function()
    while true do
      pcall(function() while true do end end)
      caught = caught + 1
    end
  end)
  truthy(caught >= 1, caught)
  is_over(0.2, function()
    while true do pcall(function() while true do local _ = lt.ones(2) * 2 end end) end
  end)
end)

test("modes are restored", function()
  is_over(0.1, lt.no_grad, function() while true do end end)
  equal(lt.is_grad_enabled(), true)
  is_over(0.1, lt.autocast, "cpu", function() while true do local _ = lt.ones(2, 2):matmul(lt.ones(2, 2)) end end)
  equal(lt.is_autocast_enabled("cpu"), false)
end)

test("limits within limits", function()
  local inner = lt.limits({seconds = 0.1})
  local seen
  lt.limits({seconds = 30})(function()
    local ok, message = pcall(inner, function() while true do end end)
    seen = not ok and message
    local x = lt.ones(2)
    for _ = 1, 20000 do x = x * 1 end
  end)
  truthy(seen:find("limits: 0.1 seconds are over", 1, true), seen)
  -- The outer one comes first.
  is_over(0.15, function()
    lt.limits({seconds = 30})(function() while true do end end)
  end)
  is_over(0.15, function()
    while true do pcall(lt.limits({seconds = 0.01}), function() while true do end end) end
  end)
  for _ = 1, 100 do lt.limits({seconds = 5})(lt.limits({seconds = 5}), function() end) end
end)

local function used_up(bytes, f, ...)
  local ok, message = pcall(lt.limits({bytes = bytes}), f, ...)
  truthy(not ok, "f has returned")
  truthy(tostring(message):find(("limits: %d bytes are used up"):format(bytes), 1, true), message)
  collectgarbage()
  truthy((lt.ones(3) * 2):sum():item() == 6)
end

local function held()
  collectgarbage()
  return lt.memory().state + lt.memory().lua
end

test("bytes: Lua's heap and tensors together", function()
  local limit = held() + 32 * 2 ^ 20
  local kept = {}
  used_up(limit, function() while true do kept[#kept + 1] = {} end end)
  kept = {}
  used_up(limit, function() while true do kept[#kept + 1] = lt.ones(1e5) end end)
  kept = {}
  used_up(limit, function() return lt.ones(1e9) end)
  used_up(limit, function() return ("x"):rep(1e8) end)
  used_up(limit, function() local s = "x" while true do s = s .. s end end)
  used_up(limit, lt.compile(function(x) return x:expand(1e8) * 2 end), lt.ones(1))
  used_up(limit, function()
    local x, w = lt.ones(1000, 1000), lt.ones(1000, 1000, {requires_grad = true})
    local y = x
    while true do y = y:matmul(w) end
  end)
  used_up(limit, coroutine.wrap(function() while true do kept[#kept + 1] = ("x"):rep(1000) .. #kept end end))
  used_up(1, function() return {} end)
end)

test("bytes: garbage does not count", function()
  local limit = held() + 24 * 2 ^ 20
  local run = lt.limits({bytes = limit})
  run(function()
    for i = 1, 3e6 do local _ = {i} end
    for _ = 1, 200 do local _ = lt.ones(1e6) end
    for i = 1, 2000 do local _ = ("x"):rep(1e5) .. i end
    local f = lt.compile(function(x) return x * 2 + 1 end)
    for _ = 1, 200 do f(lt.ones(1e6)) end
  end)
  truthy(held() < limit)
end)

test("bytes: what is caught may be done without", function()
  local limit = held() + 16 * 2 ^ 20
  local tries = 0
  lt.limits({bytes = limit})(function()
    for _ = 1, 20 do
      local ok, message = pcall(lt.zeros, 1e8)
      truthy(not ok and message:find("bytes are used up; tried to allocate", 1, true), message)
      local t = {}
      pcall(function() while true do t[#t + 1] = {} end end)
      t = nil
      tries = tries + 1
    end
  end)
  equal(tries, 20)
end)

test("bytes and seconds within one another", function()
  local limit = held() + 16 * 2 ^ 20
  used_up(limit, lt.limits({bytes = 1e12, seconds = 60}), function()
    local t = {}
    while true do t[#t + 1] = {} end
  end)
  is_over(0.1, lt.limits({bytes = 1e12}), function() while true do end end)
  lt.limits({bytes = 1e12})(function() used_up(limit, function() return lt.ones(1e8) end) end)
  local _ = lt.ones(1e7) -- no limit is left
end)

test("what returns is the account's again", function()
  for _ = 1, 2 do collectgarbage() end -- what died before must not return meanwhile
  local before = lt.memory().state
  local x = lt.ones(1e6)
  truthy(lt.memory().state >= before + 4e6)
  x:free()
  truthy(lt.memory().state < before + 1e6)
end)

test("threads", function()
  local all = lt.get_num_threads()
  lt.limits({threads = 1})(function()
    equal(lt.get_num_threads(), 1)
    lt.set_num_threads(4)
    equal(lt.get_num_threads(), 1)
    lt.limits({threads = 3})(function() equal(lt.get_num_threads(), 1) end)
    local x = lt.randn(300, 300)
    local y = x:mm(x)
    lt.limits({threads = 2})(function() truthy(lt.equal(x:mm(x), y)) end)
  end)
  equal(lt.get_num_threads(), 4)
  lt.set_num_threads(all)
end)

test("one text that would take longer than the time that is left", function()
  local ok, message = pcall(lt.limits({seconds = 0.2, bytes = 1e12}), string.rep, "x", 1.5e9)
  truthy(not ok and message:find("limits: 0.2 seconds are over", 1, true), message)
end)

test("modes are those of the call's begin where a limit ends it", function()
  local function change()
    lt.set_grad_enabled(false)
    lt.set_autocast_enabled("cpu", true)
  end
  for _, limits in ipairs {{seconds = 0.05}, {bytes = lt.memory().state + 1e6}} do
    fails("limits: ", lt.limits(limits), function()
      change()
      local list = {}
      while true do list[#list + 1] = lt.ones(1e4) end
    end)
    truthy(lt.is_grad_enabled() and not lt.is_autocast_enabled("cpu"))
  end
  lt.limits({seconds = 9})(change)
  truthy(not lt.is_grad_enabled() and lt.is_autocast_enabled("cpu"))
  lt.set_grad_enabled(true)
  lt.set_autocast_enabled("cpu", false)
end)

test("a write that is ended halfway is a write", function()
  local w = lt.tensor(2, {requires_grad = true})
  local function ended(f, ...)
    local ok, message = pcall(lt.limits {seconds = 0.02, threads = 1}, f, ...)
    return not ok and message
  end
  lt.full({8}, 2):lgamma_() -- compiled before the time runs
  local x = lt.full({2e7}, 2)
  local y = x * w
  local message = ended(function() for _ = 1, 1e6 do x:lgamma_() end end)
  truthy(message and message:find("limits: 0.02 seconds are over", 1, true), message)
  local ok, problem = pcall(y.backward, y:sum())
  truthy(not ok and problem:find("modified by an inplace operation", 1, true), tostring(problem))
  local source = lt.full({2e7}, 2)
  message = ended(function() for _ = 1, 1e6 do source:lgamma() end end)
  truthy(message and not message:find("had begun to write", 1, true), message)
end)

test("options", function()
  fails("unknown option 'second' (known: seconds, bytes, threads)", lt.limits, {second = 1})
  fails("option 'bytes' must be a whole number above 0, got 1.5", lt.limits, {bytes = 1.5})
  fails("option 'threads' must be a whole number above 0, got -1", lt.limits, {threads = -1})
  fails("option 'seconds' must be a number above 0, got 0", lt.limits, {seconds = 0})
  fails("option 'seconds' must be a number above 0, got string", lt.limits, {seconds = "x"})
  fails("one of the options 'seconds', 'bytes', 'threads' is needed", lt.limits, {})
  fails("argument 1 must be a table", lt.limits, 3)
  fails("a function to run is needed", lt.limits({seconds = 1}))
end)

h.finish()
