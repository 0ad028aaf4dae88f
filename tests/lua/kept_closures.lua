-- Tests closures that a compiled function makes and that outlive it or a break: they cause no break, and share
-- variables as in eager code.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

-- Compares three results of use(f, i), compiled and eager. Returns the number of graphs.
local function compare(make, use)
  return h.graphs_of(function(wrap)
    local f, seen = wrap(make()), {}
    for i = 1, 3 do seen[i] = h.text({use(f, i)}) end
    return table.concat(seen, "\n")
  end)
end

local function called(f, i) return f(lt.ones(3) * i)(lt.ones(3)) end

test("closures are returned, over numbers, tensors and nothing", function()
  equal(compare(function() return function(x) local y = x * 2 return function() return y, 1 end end end, called), 1)
  equal(compare(function()
    return function(x)
      local k = x.shape[1]
      x = x * k
      return function(z) return z * k + x end
    end
  end, called), 1)
  equal(compare(function()
    local function adder(a) return function(b) return a + b end end
    return function(x) return adder(x * 2) end
  end, called), 1)
end)

test("closures that assign a variable share it", function()
  local graphs = compare(function()
    return function(x)
      local n, total = 0, x * 2
      local function add(z) n, total = n + 1, total + z return n end
      local function get() return n, total end
      local function nested() return function() n = n * 2 return add(x) end end
      add(x)
      return add, get, nested()
    end
  end, function(f, i)
    local add, get, twice = f(lt.ones(3) * i)
    local list = {add(lt.ones(3)), get()}
    list[#list + 1] = twice()
    local n, total = get()
    return n, total, unpack(list)
  end)
  equal(graphs, 1)
end)

test("each call makes closures of its own, each round of a loop variables of its own", function()
  local graphs = compare(function()
    return function(x)
      local list = {}
      for i = 1, 3 do
        local n = i
        list[i] = function() n = n + i return n end
        list[i + 3] = function() return n, x * n end
      end
      return list
    end
  end, function(f, i)
    local a, b = f(lt.ones(3) * i), f(lt.ones(3))
    return a[1](), a[1](), a[3](), a[4](), b[4](), b[1]()
  end)
  truthy(graphs <= 1, graphs)
end)

test("closures go into tables, variables and objects", function()
  local graphs = compare(function()
    local hooks, last = {}, nil
    local class = {}
    class.__index = class
    return function(x)
      local y = x * 2
      hooks[#hooks + 1] = function() return y end
      local before = last
      last = function(k) return y * k end
      function class.scale(self, k) return self.x * k + #hooks end
      local object = setmetatable({x = y, again = function(self) return self:scale(3) end}, class)
      return object, before and before(2) or y, #hooks
    end
  end, function(f, i)
    local object, y, n = f(lt.ones(3) * i)
    return object:again(), y, n
  end)
  truthy(graphs <= 3, graphs)
end)

test("closures have the environment of the function around them", function()
  compare(function()
    local function made(x) return function() return x * scale end end
    setfenv(made, {scale = 3})
    return function(x) return made(x * 2) end
  end, called)
end)

test("a recursive closure, and one that is a key", function()
  local graphs = compare(function()
    return function(x)
      local function power(n) return n == 0 and x or power(n - 1) * 2 end
      return power, {[power] = x * 3}
    end
  end, function(f, i)
    local power, by = f(lt.ones(3) * i)
    return power(3), by[power]
  end)
  equal(graphs, 1)
end)

test("debug.upvalueid tells the same variables", function()
  compare(function()
    return function(x)
      local a, b, y = 1, 2, x * 2
      local function f() a = a + 1 return a end
      local function g() b = b + a return b end
      return f, g, y
    end
  end, function(f, i)
    local a, b = f(lt.ones(3) * i)
    local ids = {}
    for k, fn in ipairs {a, b} do
      for u = 1, 2 do
        local name = debug.getupvalue(fn, u)
        if name then ids[name] = ids[name] or debug.upvalueid(fn, u) equal(ids[name], debug.upvalueid(fn, u), k) end
      end
    end
    return a(), b(), a()
  end)
end)

test("a break keeps closures that share variables of the frame", function()
  local graphs = compare(function()
    return function(x)
      local n = 0
      local function count(by) n = n + by return n end
      x = x * 2
      count(1)
      lt.graph_break()
      n = n * 10
      x = x * count(2)
      return x, count, function() return n end
    end
  end, function(f, i)
    local y, count, get = f(lt.ones(3) * i)
    return y, count(5), get()
  end)
  truthy(graphs <= 3, graphs)  -- the closure is another one in the second call
end)

test("a break in a closure of the frame, or in one that a callee calls", function()
  local graphs = compare(function()
    local function twice(f) f(1) return f(2) end
    return function(x)
      local n, y = 0, x * 2
      local z = twice(function(k)
        n = n + k
        y = y * n
        lt.graph_break()
        n = n * 2
        y = y + n
        return y * 3
      end)
      return y, n, z
    end
  end, function(f, i) return f(lt.ones(3) * i) end)
  truthy(graphs <= 6, graphs)
end)

test("a closure in a protected call, with an error", function()
  compare(function()
    return function(x, i)
      local steps, y = 0, x * 2
      local ok, why = pcall(function()
        steps = steps + 1
        y = y + steps
        lt.graph_break()
        steps = steps + 1
        if i == 2 then error("step " .. steps, 0) end
        y = y * steps
      end)
      return y, steps, ok, tostring(why)
    end
  end, function(f, i) return f(lt.ones(3) * i, i) end)
end)

test("variables of functions that are open elsewhere are read and written", function()
  local steps = 0
  local function tick(x) steps = steps + 1 return x * steps end
  local graphs = compare(function()
    steps = 0
    return function(x)
      local own = 1
      local function bump() own = own + 1 return own end
      bump()
      lt.graph_break()
      return tick(x) + own, bump()
    end
  end, function(f, i) return f(lt.ones(3) * i) end)
  equal(graphs, 1)
  equal(steps, 3)
end)

test("constants of 64 bits of a closure are those of the original", function()
  local function make() return function(x) return function() return 12345678901LL end, x * 2 end end
  local seen
  local f = lt.compile(function(x)
    local function id() return 9876543210LL end
    seen = id()
    return id, x * 2
  end)
  for _ = 1, 2 do
    local id = f(lt.ones(2))
    truthy(rawequal(id(), seen))
  end
  truthy(make()(lt.ones(2))() == 12345678901LL)
end)

test("many closures of many calls are collected", function()
  local f = lt.compile(function(x)
    local n = 0
    local function count() n = n + 1 return n end
    return count, x + 1
  end)
  local weak = setmetatable({}, {__mode = "v"})
  for i = 1, 2000 do weak[i] = f(lt.ones(2)) end
  collectgarbage() collectgarbage()
  local alive = 0
  for _ in pairs(weak) do alive = alive + 1 end
  truthy(alive <= 2, alive)
  collectgarbage("setstepmul", 1000)
  local kept = {}
  for i = 1, 2000 do kept[i % 50 + 1] = f(lt.ones(2)) end
  for i = 1, 50 do equal(kept[i](), 1) end
end)

test("closures live on while the collector works, in coroutines and through errors", function()
  local pause, multiplier = collectgarbage("setpause", 1), collectgarbage("setstepmul", 100000)
  compare(function()
    return function(x, i)
      local n, list = 0, {}
      local function inc() n = n + 1 return n end
      for k = 1, 3 do
        local d = k
        list[k] = function() d = d + n return d, x * d, inc() end
      end
      inc()
      if i % 3 == 0 then lt.graph_break() end
      n = n + i
      pcall(function()
        n = n + 1
        if i % 4 == 0 then error({}) end
        x = x + n
      end)
      return list, inc, x
    end
  end, function(f)
    local seen = {}
    for i = 1, 40 do
      local list, inc, x = coroutine.wrap(function() coroutine.yield(f(lt.ones(2) * i, i)) end)()
      collectgarbage("step")
      seen[#seen + 1] = h.text({x, inc(), list[i % 3 + 1]()})
    end
    return table.concat(seen, " ")
  end)
  collectgarbage("setpause", pause)
  collectgarbage("setstepmul", multiplier)
end)

-- LuaJIT's JIT records a loop over closures that share nothing; then it runs pairs that share a variable. make(f) gives
-- what is called with i = 1 to 8 and gives two closures and a tensor.
local function shares(name, make)
  test("LuaJIT's traces know that variables may be shared: " .. name, function()
    local f = make()
    local adds, gets = {}, {}
    for i = 1, 8 do adds[i], gets[i] = f(i) end
    local function loop(add, get)
      local s = 0
      for _ = 1, 200 do add() s = s + get() end
      return s
    end
    for i = 1, 8 do loop(adds[i], gets[9 - i]) end
    for i = 1, 8 do adds[i], gets[i] = f(i) end
    for i = 1, 8 do equal(loop(adds[i], gets[i]), 20100, "pair " .. i) end
  end)
end
local function pair(x)
  local n = 0
  return function() n = n + 1 end, function() return n end, x + 1
end
local function copy(f) return loadstring(string.dump(f)) end

shares("two entries", function()
  local f = lt.compile(copy(pair), {dynamic = false})
  return function(i) return f(lt.ones(i < 5 and 1 or 2)) end
end)
shares("eager, then compiled", function()
  local f = copy(pair)
  return function(i)
    if i == 5 then lt.compile(f) end
    return f(lt.ones(2))
  end
end)
shares("a callee's, by itself and compiled", function()
  local own = copy(pair)
  local f = lt.compile(function(x) return own(x) end)
  return function(i) return (i % 2 == 0 and f or own)(lt.ones(2)) end
end)
shares("an entry and its miss", function()
  local f = lt.compile(copy(pair), {dynamic = false})
  return function(i) return f(lt.ones(i < 5 and 2 or 3 + i)) end
end)
shares("in front of a break, behind it and without one", function()
  local function plain(x, breaks)
    local n = 0
    local function add() n = n + 1 end
    x = x * 2
    if breaks then lt.graph_break() end
    return add, function() return n end, x + 1
  end
  local f = lt.compile(plain)
  return function(i) return f(lt.ones(2), i < 5) end
end)
shares("in the rest of a frame", function()
  local function callee(x, breaks)
    x = x * 2
    if breaks then lt.graph_break() end
    local n = 0
    return function() n = n + 1 end, function() return n end, x + 1
  end
  local f = lt.compile(function(x, breaks)
    local add, get = callee(x, breaks)
    return add, get
  end)
  return function(i) return f(lt.ones(2), i % 2 == 0) end
end)
shares("in a closure that the trace made", function()
  local f = lt.compile(function(x)
    local y = x * 2
    return function()
      local n = 0
      return function() n = n + 1 end, function() return n end, y
    end
  end)
  local twice = lt.compile(function(x)
    local function made()
      local n = 0
      return function() n = n + 1 end, function() return n end, x * 3
    end
    local add, get = made()
    return add, get, made
  end)
  local made
  return function(i)
    if i % 2 == 0 then return f(lt.ones(2))() end
    if i % 4 == 1 then
      local add, get
      add, get, made = twice(lt.ones(2))
      return add, get
    end
    return made()
  end
end)

-- Overwrites what calls before it have left on the stack.
local names, numbers = {}, {}
for i = 1, 199 do names[i], numbers[i] = "t" .. i, 77 end
local overwrite = loadstring("local function f(x) local " .. table.concat(names, ",") .. " = "
  .. table.concat(numbers, ",") .. " return x end return function() return f(1) end")()

test("frames that have little room, or none", function()
  for n = 42, 55 do
    local names, numbers = {}, {}
    for i = 1, 190 do names[i], numbers[i] = "v" .. i, i end
    local make = loadstring(([[
      local lt = ...
      local function count(...) return select("#", ...) end
      local function callee(x, breaks)
        local %s = %s
        x = x * 2
        if breaks then lt.graph_break() end
        local q, c = count(%s), 0
        return function() c = c + 1 end, function() return c end, x + q + v190
      end
      return callee, function(x, breaks) local add, get, y = callee(x, breaks) return add, get, y + 1 end
    ]]):format(table.concat(names, ","), table.concat(numbers, ","), ("1,"):rep(n - 1) .. "1"))
    local callee, caller = make(lt)
    local function run(f, breaks)
      local add, get, y = f(lt.ones(2), breaks)
      add()
      overwrite()
      return h.text({get(), y})
    end
    for _, f in ipairs {callee, caller} do
      local want, broken = run(f, false), run(f, true)
      local g = lt.compile(f)
      for _ = 1, 2 do
        equal(run(g, true), broken, n)
        equal(run(g, false), want, n)
      end
    end
  end
end)

h.finish()
