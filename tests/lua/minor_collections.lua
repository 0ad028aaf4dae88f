-- Tests minor collections: they free tensors to which nothing refers and keep the others. With stress = "collect" each
-- new tensor starts a search for dead ones, and LuaJIT's own collector checks some of those found.
local h = require "harness"
local lt = require "lutra"
local test, truthy, equal = h.test, h.truthy, h.equal

lt.config.stress = nil

local function stressed(f)
  return function()
    lt.config.stress = "collect"
    local ok, problem = pcall(f)
    lt.config.stress = nil
    if not ok then error(problem, 0) end
  end
end

-- New tensors, each of which looks for dead ones.
local function churn(n)
  local x
  for i = 1, n or 200 do x = lt.full({4}, i) end
  return x
end

local function holds(t, value) equal(t:sum():item(), 4 * value) end

test("dead results give their memory back without a whole collection", function()
  collectgarbage() collectgarbage()
  local x = lt.ones(1024, 1024)
  for _ = 1, 20 do local y = x + 1 end
  local cycles, start, peak = 0, lt.memory().allocated, 0
  getmetatable(newproxy(true)).__gc = function() cycles = cycles + 1 end
  for _ = 1, 300 do
    local y = x + 1
    peak = math.max(peak, lt.memory().allocated - start)
  end
  truthy(peak <= 24 * 2 ^ 20, "peak " .. peak / 2 ^ 20 .. " MB")
  equal(cycles, 0)
end)

test("what tables, old and new, lead to stays", stressed(function()
  local old = {}
  churn()
  for i = 1, 50 do
    old[i] = lt.full({4}, i)
    old["x" .. i] = {deep = {lt.full({4}, i)}}
    old[lt.full({4}, i)] = i
    churn(5)
  end
  for i = 1, 50 do
    holds(old[i], i)
    holds(old["x" .. i].deep[1], i)
  end
  for k, v in pairs(old) do
    if lt.is_tensor(k) then holds(k, v) end
  end
end))

test("tables that change go on to be looked at", stressed(function()
  local t = {inner = {}}
  for i = 1, 300 do
    t.x, t.inner.x = lt.full({4}, i), lt.full({4}, -i)
    churn(2)
    holds(t.x, i)
    holds(t.inner.x, -i)
    t.inner = {x = t.inner.x}
  end
end))

test("variables of closures, open and closed", stressed(function()
  local function make(i)
    local x, y = lt.full({4}, i)
    local function get() return x, y end
    local function set(v) x, y = v, lt.full({4}, i) end
    churn(3) -- the variables are open
    get()
    return get, set
  end
  local gets, sets = {}, {}
  for i = 1, 30 do gets[i], sets[i] = make(i) end
  churn()
  for i = 1, 30 do
    holds(gets[i](), i)
    sets[i](lt.full({4}, 2 * i))
    churn(2)
    local x, y = gets[i]()
    holds(x, 2 * i)
    holds(y, i)
  end
  churn()
  for i = 1, 30 do holds(gets[i](), 2 * i) end
end))

test("variables of a coroutine that is gone", stressed(function()
  for i = 1, 40 do
    local get
    do
      local co = coroutine.create(function()
        local x
        get = function(v)
          if v then x = v end
          return x
        end
        coroutine.yield()
        return x
      end)
      coroutine.resume(co)
      if i % 2 == 0 then churn(3) end
    end
    collectgarbage "step"
    get(lt.full({4}, i))
    churn(4)
    holds(get(), i)
  end
end))

test("coroutines: running, suspended, new, wrapped", stressed(function()
  local function body(a)
    local b = lt.full({4}, 1)
    for i = 1, 20 do
      local c = a + b * i
      local got = coroutine.yield(c)
      churn(2)
      holds(b, 1)
      holds(c, 3 + i)
      holds(got, i)
    end
    return a
  end
  local all = {}
  for k = 1, 5 do
    all[k] = coroutine.create(body)
    coroutine.resume(all[k], lt.full({4}, 3))
    churn(2)
  end
  for i = 1, 20 do
    for k = 1, 5 do
      local ok, c = coroutine.resume(all[k], lt.full({4}, i))
      truthy(ok, c)
      churn(1)
      holds(c, i < 20 and 4 + i or 3)
    end
  end
  local outer = coroutine.wrap(function()
    local mine = lt.full({4}, 7)
    local inner = coroutine.wrap(function()
      local x = lt.full({4}, 8)
      churn(10)
      coroutine.yield(x)
    end)
    holds(inner(), 8)
    churn(10)
    coroutine.yield(mine)
  end)
  holds(outer(), 7)
end))

-- Each makes a new object that refers to a tensor in one way, and returns a function that follows the reference.
local ways_key = {}
local ways = {
  ["a metatable"] = function(x)
    local object = setmetatable({}, {__index = {x = x}})
    return function() return object.x end
  end,
  ["a metatable's metatable"] = function(x)
    local object = setmetatable({}, setmetatable({}, {x = x}))
    return function() return getmetatable(getmetatable(object)).x end
  end,
  ["a metatable of a plain type"] = function(x)
    debug.setmetatable(nil, {__index = {x = x}})
    return function() return (nil).x end
  end,
  ["an environment of a function"] = function(x) return setfenv(function() return _x end, {_x = x}) end,
  ["an environment of a C function"] = function(x)
    local f = coroutine.wrap(function() end)
    debug.setfenv(f, {x = x})
    return function() return debug.getfenv(f).x end
  end,
  ["an environment of userdata"] = function(x)
    local proxy = newproxy()
    debug.setfenv(proxy, {x = x})
    return function() return debug.getfenv(proxy).x end
  end,
  ["an environment of a coroutine"] = function(x)
    local co = coroutine.create(function() end)
    debug.setfenv(co, {x = x})
    return function() return debug.getfenv(co).x end
  end,
  ["a metatable of userdata"] = function(x)
    local proxy = newproxy()
    debug.setmetatable(proxy, {x = x})
    return function() return debug.getmetatable(proxy).x end
  end,
  ["a variable of a C function"] = function(x)
    local next_of = ("x"):gmatch "."
    debug.setupvalue(next_of, 1, x)
    return function() return select(2, debug.getupvalue(next_of, 1)) end
  end,
  ["a coroutine's stack"] = function(x)
    return coroutine.wrap(function()
      while true do coroutine.yield(x) end
    end)
  end,
  ["the registry"] = function(x)
    debug.getregistry().minor_collections = {x}
    return function() return debug.getregistry().minor_collections[1] end
  end,
  ["a table's keys"] = function(x)
    local t = {[x] = true}
    return function() return (next(t)) end
  end,
  ["weak keys' values"] = function(x)
    local t = setmetatable({}, {__mode = "k"})
    t[ways_key] = {x}
    return function() return t[ways_key][1] end
  end,
  ["weak values' keys"] = function(x)
    local t = setmetatable({}, {__mode = "v"})
    t[x] = ways_key
    return function() return (next(t)) end
  end,
  ["a finalizer of cdata"] = function(x)
    local ffi, seen = require "ffi", nil
    local function finalizer(y) return function() seen = y end end
    local cell = ffi.gc(ffi.new "int[1]", finalizer(x))
    x = nil
    return function()
      cell = nil
      collectgarbage() collectgarbage()
      return seen
    end
  end
}

for name, make in pairs(ways) do
  test("a tensor that " .. name .. " leads to", stressed(function()
    for i = 1, 30 do
      local get = make(lt.full({4}, i))
      churn(i % 4 + 1)
      holds(get(), i)
      churn(40)
      holds(get(), i)
    end
    debug.setmetatable(nil, nil)
  end))
end

test("weak tables: a dead tensor is in none, a live one in all", stressed(function()
  local values, keys, both = setmetatable({}, {__mode = "v"}), setmetatable({}, {__mode = "k"}),
    setmetatable({}, {__mode = "kv"})
  local live, n = {}, 0
  local function add(i)
    local x = lt.full({4}, i)
    values[i], keys[x], both[x], both[i] = x, {lt.full({4}, -i)}, i, x
    if i % 3 == 0 then live[i] = x end
  end
  local function check()
    n = 0
    for i, x in pairs(values) do holds(x, i) n = n + 1 end
    for x, boxed in pairs(keys) do holds(boxed[1], -x[1]:item()) end
    for k, v in pairs(both) do
      if lt.is_tensor(k) then holds(k, v) else holds(v, k) end
    end
  end
  for round = 1, 3 do
    for i = 1, 60 do
      add(i)
      check()
    end
    values, live = setmetatable({}, {__mode = "v"}), {}
    for i = 1, 60 do
      add(i)
      check()
    end
    churn()
    check()
    truthy(n >= 20 and n <= 24, n)
    for i = 3, 60, 3 do holds(live[i], i) end
  end
end))

test("what a weak table leads to is whole", stressed(function()
  local weak = setmetatable({}, {__mode = "v"})
  for i = 1, 100 do
    weak[i] = {x = lt.full({4}, i), f = function() return weak, i end}
    churn(1)
    for k, t in pairs(weak) do holds(t.x, k) end
  end
end))

test("finalizers of others see their tensors", stressed(function()
  local seen, wrong = 0, 0
  for i = 1, 60 do
    local x = lt.full({4}, i)
    local proxy = newproxy()
    debug.setmetatable(proxy, {__gc = function()
      local ok, sum = pcall(function() return x:sum():item() end)
      seen, wrong = seen + 1, wrong + (ok and sum == 4 * i and 0 or 1)
    end})
    churn(1)
  end
  collectgarbage() collectgarbage()
  churn()
  truthy(seen > 50, seen)
  equal(wrong, 0)
end))

test("userdata stay one for a tensor", stressed(function()
  local p = lt.full({4}, 2):requires_grad_(true)
  for _ = 1, 20 do
    p.grad = nil
    p:sum():backward()
    local g = p.grad
    churn(3)
    truthy(rawequal(p.grad, g))
    holds(p.grad, 1)
  end
end))

test("tensors made in a finalizer", stressed(function()
  local kept = {}
  for i = 1, 30 do
    getmetatable(newproxy(true)).__gc = function() kept[i] = lt.full({4}, i) + lt.zeros(4) end
  end
  collectgarbage() collectgarbage()
  churn()
  for i = 1, 30 do holds(kept[i], i) end
end))

test("hooks that capture their tensor", stressed(function()
  local x, seen = lt.full({4}, 3):requires_grad_(true), 0
  for _ = 1, 20 do
    local function made()
      local y = x * 2
      y:register_hook(function(g)
        seen = seen + 1
        return g + y:detach() * 0
      end)
      return y:sum()
    end
    local loss = made()
    churn(3)
    loss:backward()
  end
  equal(seen, 20)
  holds(x.grad, 40)
end))

-- LuaJIT before November 2023 forgets a write barrier: a trace that was made while a variable was open goes on to store
-- in it once it is closed. `before_it_closes` is called while it is open. Gives a function that stores by the trace.
local function variable_of_a_trace(before_it_closes)
  local run = loadstring "return function(set, n) for i = 1, n do set(i) end end"()
  local v
  local function set(i) v = {i, tostring(i) .. " of " .. i} end
  run(set, 200)
  before_it_closes()
  return function() run(set, 200) end, function() return v end
end

-- LuaJIT ends the cycle that is on its way, and what it has freed becomes something else.
local function end_cycle()
  repeat until collectgarbage("step", 1000)
  local other = {}
  for i = 1, 2000 do other[i] = {-i, tostring(-i) .. " of " .. -i} end
  return other
end

for what, before in pairs {open = function() churn(3) end, closed = function() end} do
  test("what traces store in closed variables that were " .. what .. " at a minor collection", function()
    local sets, gets = {}, {}
    lt.config.stress = "collect"
    churn(3)
    for i = 1, 20 do sets[i], gets[i] = variable_of_a_trace(before) end
    if what == "closed" then churn(3) end
    lt.config.stress = nil
    for k = 1, 20 do sets[k]() end
    local other = end_cycle()
    for k = 1, 20 do
      equal(gets[k]()[1], 200)
      equal(gets[k]()[2], "200 of 200")
    end
    equal(#other, 2000)
  end)
end

test("compiled functions, and LuaJIT's traces of loops around ops", stressed(function()
  local f = lt.compile(function(o, x)
    o.last = o.w + x
    return o.last * 2
  end)
  local o = {w = lt.full({4}, 1)}
  local sum = lt.zeros(4)
  for i = 1, 150 do
    local r = f(o, lt.full({4}, i))
    holds(o.last, i + 1)
    holds(r, 2 * i + 2)
    sum = sum + r
  end
  equal(sum[1]:item(), 150 * 151 + 300)
  local ring = {}
  for i = 1, 2000 do
    ring[i % 7 + 1] = {x = sum * 0 + i}
    if i > 7 then
      local j = i - 3
      equal(ring[j % 7 + 1].x[2]:item(), j)
    end
  end
end))

test("stop, restart, step, count and limits of the collector go on as before", stressed(function()
  local x = lt.full({4}, 1)
  collectgarbage "stop"
  churn()
  truthy(not collectgarbage "isrunning")
  collectgarbage "restart"
  truthy(collectgarbage "isrunning")
  churn(3)
  local done
  for _ = 1, 10000 do
    done = collectgarbage("step", 1)
    if done then break end
  end
  truthy(done)
  local pause, pace = collectgarbage("setpause", 150), collectgarbage("setstepmul", 300)
  churn()
  equal(collectgarbage("setpause", pause), 150)
  equal(collectgarbage("setstepmul", pace), 300)
  for _ = 1, 20 do
    churn(20)
    collectgarbage()
    local list = {}
    for i = 1, 300 do list[i] = {i, tostring(i) .. "text"} end
  end
  truthy(collectgarbage "count" < 1e5)
  holds(x, 1)
end))

test("states that take turns on a thread each lose their own", function()
  local ffi = require "ffi"
  ffi.cdef [[
    typedef struct lutra_State lutra_State;
    lutra_State* lutra_open(const void*);
    int lutra_do_string(lutra_State*, const char*, const char*);
    void lutra_close(lutra_State*);
  ]]
  local function resident()
    for line in io.lines "/proc/self/status" do
      local kb = line:match "VmRSS:%s+(%d+)"
      if kb then return tonumber(kb) / 1024 end
    end
  end
  local makes, looks = ffi.C.lutra_open(nil), ffi.C.lutra_open(nil)
  local function run(state, source) equal(ffi.C.lutra_do_string(state, source, "=test"), 0) end
  run(makes, "x = lt.ones(1024, 256) function step() local y = x + 1 end")
  run(looks, "small = lt.ones(2) function step() return small:dim() end")
  local most, first = 0, nil
  for i = 1, 300 do
    run(makes, "step()")
    run(looks, "step()")
    if i == 20 then first = resident() end
    if i > 20 then most = math.max(most, resident()) end
  end
  ffi.C.lutra_close(makes)
  ffi.C.lutra_close(looks)
  truthy(h.sanitized or most - first < 60, ("%.0f MB more"):format(most - first))
end)

h.finish()
