-- Tests garbage collection: the collector knows the bytes of tensors, and compiled code keeps no argument alive.
local h = require "harness"
local lt = require "lutra"
local test, truthy = h.test, h.truthy

local MB = 2 ^ 20

test("10,000 tensors of 1 MB stay bounded", function()
  collectgarbage()
  local start, peak = lt.memory().allocated, 0
  for i = 1, 10000 do
    local t = lt.empty(256, 1024)
    if i % 64 == 0 then peak = math.max(peak, lt.memory().allocated - start) end
  end
  truthy(peak < 400 * MB, "peak " .. peak / MB .. " MB")
end)

test("results of ops are counted as well", function()
  collectgarbage()
  local x = lt.ones(256, 1024)
  local start, peak = lt.memory().allocated, 0
  for i = 1, 1000 do
    local y = x + 1
    if i % 16 == 0 then peak = math.max(peak, lt.memory().allocated - start) end
  end
  truthy(peak < 400 * MB, "peak " .. peak / MB .. " MB")
end)

test("a collector that was stopped stays stopped", function()
  local small, large = lt.ones(3), lt.ones(256, 1024)
  collectgarbage("stop")
  for _ = 1, 5000 do local y = small + 1 end
  for _ = 1, 100 do local y = large + 1 end
  local running = collectgarbage("isrunning")
  collectgarbage("restart")
  truthy(not running)
end)

test("free gives the bytes back at once", function()
  collectgarbage() collectgarbage() -- or what the tests before have left may go in between
  local before = lt.memory().allocated
  local t = lt.empty(256, 1024)
  truthy(lt.memory().allocated >= before + MB)
  t:free()
  truthy(lt.memory().allocated < before + MB)
end)

test("an impossible size is an error", function()
  h.raises("memory", lt.empty, 2 ^ 40, 2 ^ 10)
  truthy(lt.ones(2):sum():item() == 2)
end)

test("backends go with the functions that were compiled with them", function()
  local alive = setmetatable({}, {__mode = "k"})
  local f = function(x) return x + 1 end
  local kept
  for i = 1, 1000 do
    local backend = function() return function(x) return x + i end end
    alive[backend] = true
    local compiled = lt.compile(f, {backend = backend})
    if i == 10 then kept = compiled end
    collectgarbage()
  end
  local count = 0
  for _ in pairs(alive) do count = count + 1 end
  truthy(count < 300, count .. " alive")
  truthy(kept(lt.zeros(1)):item() == 10)
end)

test("a result that has its function's input as its history does not keep it for ever", function()
  local f = lt.compile(function(b, w) b:add_(w * w) return b * 2 end)
  local w = lt.ones(1000, 100):requires_grad_(true)
  local function run() f(lt.zeros(1000, 100), w) end
  run()
  local weak = setmetatable({}, {__mode = "k"})
  for _ = 1, 20 do
    local b = lt.zeros(1000, 100)
    weak[b] = true
    f(b, w)
  end
  collectgarbage()
  collectgarbage()
  local alive = 0
  for _ in pairs(weak) do alive = alive + 1 end
  truthy(alive <= 1, alive .. " inputs are alive; it")
end)

test("a hook may capture its tensor: both go", function()
  local equal, seen = h.equal, 0
  local function hooked(x, more)
    local y = x * 2
    y:register_hook(function(g)
      seen = seen + 1
      return g + y:detach() * 0
    end)
    return more(y)
  end
  local function held(f)
    f()
    collectgarbage()
    collectgarbage()
    local before = lt.memory().allocated
    for _ = 1, 20 do f() end
    collectgarbage()
    collectgarbage()
    return lt.memory().allocated - before
  end
  local x = lt.ones({1000}, {requires_grad = true})
  equal(held(function() hooked(x, function() end) end), 0)
  equal(held(function() hooked(x, function(y) return y * 3 end) end), 0) -- what leads to it goes first
  equal(held(function() hooked(x, function(y) return y:unbind(0)[1] + y:sum() end) end), 0)
  equal(held(function() hooked(x, function(y) return lt.grad(y:sum(), x, {retain_graph = true}) end) end), 0)
  -- A tensor that depends on it keeps it alive, even if all others are gone.
  seen, x.grad = 0, nil
  local z = hooked(x, function(y)
    local other = y + 1
    other = nil
    collectgarbage()
    return y * 3
  end)
  collectgarbage()
  collectgarbage()
  z:sum():backward()
  equal(seen, 1)
  truthy(x.grad:equal(lt.full({1000}, 6)))
end)

test("inputs that the function lets go live until its results are there", function()
  local function f(o, p)
    local x, w = o.x, o.w
    o.x, o.w, p.grad = nil, w * x, nil
    o.last = o.w + x
    o[1], o[2] = x, o.last * x
    o[1] = nil
    return o.w:sum() + o.last:sum(), w
  end
  local function outcome(g)
    local lines = {}
    for i = 1, 40 do
      local o, p = {x = lt.ones(1000) * i, w = lt.ones(1000) + i}, lt.ones(1000, {requires_grad = true})
      p.grad = lt.ones(1000) * i
      local sum, w = g(o, p)
      for _ = 1, 3 do local filler = lt.zeros(1000) + 7 end
      lines[#lines + 1] = table.concat({sum:item(), w[1]:item(), o.w[999]:item(), o.last[5]:item(), o[2]:sum():item(),
        tostring(o[1]), tostring(o.x), tostring(p.grad)}, " ")
    end
    return table.concat(lines, "\n")
  end
  local want = outcome(f)
  local pause, pace = collectgarbage("setpause", 0), collectgarbage("setstepmul", 5000)
  local got = outcome(lt.compile(f))
  collectgarbage("setpause", pause)
  collectgarbage("setstepmul", pace)
  h.equal(got, want)
end)

test("inputs of a backend's function that collects live until it is done", function()
  local function double(x)
    collectgarbage() collectgarbage()
    return x * 2
  end
  local g = lt.compile(function(o)
    local x = o.x
    o.x, o.y = nil, x
    return x * 2
  end, {backend = function() return double end})
  for i = 1, 5 do
    local o = {x = lt.ones(1000) * i}
    local y = g(o)
    o.x = lt.zeros(1000)
    h.equal(y:sum():item(), 2000 * i)
    h.equal(o.y:sum():item(), 1000 * i)
  end
end)

-- Runs f 12 times under a busy collector. A finalizer computes; what it did is as if nothing had been captured.
local function with_finalizers(f)
  local runs, count, wrong, live = 0, lt.zeros(1), 0, true
  local function leave()
    getmetatable(newproxy(true)).__gc = function()
      if not live then return end
      runs = runs + 1
      count:add_(1)
      local ok, sum = pcall(function() return (lt.ones(2) * runs):sum():item() end)
      if not ok or sum ~= 2 * runs then wrong = wrong + 1 end
      leave()
    end
  end
  leave()
  h.under_busy_collector(function()
    for i = 1, 12 do f(i) end
    live = false
  end)
  truthy(runs > 0)
  h.equal(count:item(), runs)
  h.equal(wrong, 0)
end

test("finalizers that run while a function is captured are no part of it", function()
  lt.reset()
  local f = lt.compile(function(x, k)
    local t = {}
    for i = 1, 3 do t[i] = x * i end
    return t[1] + t[2] * k
  end)
  local a = lt.randn(4)
  with_finalizers(function(i) f(a, i) end)
end)

test("finalizers that run while a backward is captured are no part of it", function()
  lt.reset()
  lt.config.compiled_autograd = true
  local a, b = lt.randn({4}, {requires_grad = true}), lt.randn({4}, {requires_grad = true})
  with_finalizers(function(i)
    a.grad, b.grad = nil, nil
    local s = a:sin()
    s:register_hook(function(g)
      local t = {}
      for k = 1, 3 do t[k] = g * k end
      return t[1] * i + t[2] + b
    end)
    local loss = (s * b + a):sum()
    loss:backward()
  end)
  lt.config.compiled_autograd = false
  h.equal(lt.counters().compiled_autograd.graphs, 1)
end)

-- Both use functions, numbers and tensors that no guard of an existing graph accepts.
local function step_with_hooks(i)
  local functions = {lt.sin, lt.cos, function(g) return g + i end, function(g) return g * 2 end}
  local f, factor = functions[i % 4 + 1], lt.ones(4) * i
  local a, b = lt.randn({4}, {requires_grad = true}), lt.randn({4}, {requires_grad = true})
  local s = a:sin()
  s:register_hook(function(g) return f(g) * (i % 3 + 1) + factor end)
  local loss = (s * b + a):sum()
  loss:backward()
  local rows = f(b) * (i % 3 + 1) + factor
  h.equal(a.grad:sub(a:cos() * rows + 1):abs():lt(1e-5):all():item(), true)
end

for name, resets in pairs {["runs backwards"] = false, ["resets all"] = true} do
  test("a finalizer that " .. name .. " while guards of a backward are asked", function()
    lt.reset()
    lt.config.compiled_autograd = true
    local runs, live, problem = 0, true, nil
    local function leave()
      getmetatable(newproxy(true)).__gc = function()
        if not live then return end
        live, runs = false, runs + 1
        local ok, text = pcall(lt.enable_grad, function() step_with_hooks(math.floor(runs / 3)) end)
        if not ok then problem = text end
        if resets and runs % 7 == 0 then lt.reset() end
        live = true
        leave()
      end
    end
    leave()
    h.under_busy_collector(function()
      for i = 1, 150 do step_with_hooks(i) end
      live = false
    end)
    lt.config.compiled_autograd = false
    h.equal(problem, nil)
    truthy(runs > 0)
  end)
end

-- Bodies that make closures which outlive the segment, or leave closures to Lua. Each closure refers to f.
local kept = {
  ["that it returns"] = "K = function() return i, f end return y + i",
  ["beside a break"] = "K = function() i = i + 1 return i, f end lt.graph_break() return y + i",
  ["that breaks"] = "local function g(z) lt.graph_break() return z * 2, f end return g(y) + i",
  ["that a frame keeps over a break below"] =
    "local function s() return i, f end local function g(z) lt.graph_break() return z * s() end return g(y) + i",
  ["of closures"] = "local function a() return function() i = i + 1 return function() return i, f end end end " ..
    "K = a()() return y + i",
  ["of other functions"] = "local t = {} for k = 1, 3 do t[k] = {on = make(k), v = y * k} end K = t return y + i",
  ["that C calls back"] = "local r = y; ('abc'):gsub('%w', function(c) r = r + i lt.graph_break() return c, f end) " ..
    "return r",
  ["of other functions that C calls back"] = "r = y; ('abc'):gsub('%w', make(i)) return r",
  ["that are metamethods"] =
    "K = setmetatable({y = y}, {__add = function(a, b) lt.graph_break() return a.y + b, f end}) return K + y",
  ["that are iterators"] = "local n = 0 for k in function() n = n + 1 lt.graph_break() if n < 4 then return n, " ..
    "f end end " ..
    "do y = y * 2 + k end return y",
  ["that are coroutines"] = "local c = coroutine.wrap(function(z) coroutine.yield(z * 2) lt.graph_break() " ..
    "return z, f end) " ..
    "local a = c(y) lt.graph_break() return a + c()",
  ["of loops that break"] = "local fl = {} for k = 1, 3 do local q = k fl[k] = function() q = q + 1 return y * " ..
    "q, f end " ..
    "y = y + i lt.graph_break() end for _, g in ipairs(fl) do y = y + g() end return y",
}

-- Returns what compiled code still holds after other functions were compiled. A freed reference is a number.
local function held()
  for k = 1, 1000 do
    lt.compile(assert(loadstring("return function(y) return y end"))())
    if k % 50 == 0 then collectgarbage() end
  end
  local n = 0
  for _, v in next, debug.getregistry() do n = n + (type(v) == "number" and 0 or 1) end
  return n
end

for name, body in pairs(kept) do
  test("functions that make closures " .. name .. " go, with what is compiled of them", function()
    lt.reset()
    local text = ([[local lt = ...
      local f, r
      local function make(k) return function(c) r = (r or 0) + k lt.graph_break() return c, f end end
      f = function(y, i) %s end
      return f]]):format(body)
    local x, made, before = lt.ones(4), 240, held()
    local alive = setmetatable({}, {__mode = "k"})
    for k = 1, made do
      local f = assert(loadstring(text, "=kept"))(lt)
      alive[f] = true
      local g = lt.compile(f)
      g(x, 1)
      g(x, 1)
      if k % 20 == 0 then collectgarbage() end
    end
    K = nil
    local count, references = 0, held() - before
    for _ in pairs(alive) do count = count + 1 end
    truthy(count < made / 4, count .. " functions are alive")
    truthy(references < made / 2, references .. " references")
  end)
end

h.finish()
