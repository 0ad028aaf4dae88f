-- Tests callees that break before their first op, and protected calls: the code behind the break is compiled, errors
-- are caught as in eager code, and what callees did before is done only once.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local nn = lt.nn

local noted = 0
local function note()
  noted = noted + 1
  io.write("")
end
local function heavy(y)
  for _ = 1, 3 do y = (y * 2):tanh() end
  return y
end

-- make() gives f; its results, errors and log of three calls must be eager's.
local function compare(make, ...)
  local arguments = {...}
  local function run(wrap)
    local f, seen = wrap(make()), {}
    noted = 0
    for i = 1, 4 do
      local r = {pcall(f, unpack(arguments))}
      for k, v in ipairs(r) do
        if type(v) == "userdata" then r[k] = tostring(v:detach()) .. tostring(v.requires_grad) end
        r[k] = tostring(r[k])
      end
      seen[i] = table.concat(r, "|") .. "|" .. noted
    end
    return table.concat(seen, "\n")
  end
  return h.graphs_of(run)
end

local x = lt.arange(6):view(2, 3):to("float32") / 10

test("a callee logs first", function()
  local function g(y)
    note()
    return heavy(y)
  end
  equal(compare(function() return function(y) return g(y) end end, x), 1)
  equal(compare(function() return function(y) local r = g(y) return r end end, x), 1)
  equal(compare(function() return function(y) local r, s = g(y), g(y + 1) return r - s end end, x), 2)
end)

test("a callee of a callee logs first", function()
  local function check() note() end
  local function g(y)
    check()
    return heavy(y)
  end
  local function outer(y) return (g(y)) end
  equal(compare(function() return function(y) return outer(y) end end, x), 1)
end)

test("a module whose forward logs first, compiled", function()
  local M = nn.Module:extend("M")
  function M:init() self.l = nn.Linear(3, 3) end
  function M:forward(y)
    note()
    return heavy(self.l(y))
  end
  lt.manual_seed(3)
  local m = M()
  lt.reset()
  local c = lt.compile(m)
  noted = 0
  for _ = 1, 3 do truthy(c(x):equal(m(x))) end
  equal(noted, 6)
  equal(lt.counters().stats.unique_graphs, 1)
end)

test("a module that logs in its loop over layers", function()
  local M = nn.Module:extend("M")
  function M:init()
    local layers = {}
    for i = 1, 5 do layers[i] = nn.Linear(3, 3) end
    self.layers = nn.ModuleList(layers)
  end
  function M:forward(y)
    for i, l in ipairs(self.layers) do
      y = l(y):tanh()
      if i == 3 then note() end
    end
    return y
  end
  lt.manual_seed(3)
  local m = M()
  lt.reset()
  local c = lt.compile(m)
  for _ = 1, 3 do truthy(c(x):equal(m(x))) end
  truthy(lt.counters().stats.unique_graphs > 0)
end)

test("what a callee writes before the break is written once", function()
  truthy(compare(function()
    local state, calls = {n = 0}, 0
    local function g(y)
      state.n = state.n + 1
      calls = calls + 1
      note()
      return heavy(y) * state.n, calls
    end
    return function(y) return g(y) end
  end, x) >= 1)
end)

test("a callee that only logs is called as it is in the end", function()
  lt.reset()
  local function say() note() end
  local function f(y)
    say("a")
    return heavy(y)
  end
  local cf = lt.compile(f)
  for _ = 1, 20 do truthy(cf(x):equal(heavy(x))) end
  equal(lt.counters().stats.unique_graphs, 1)
end)

test("errors after a break in a callee", function()
  compare(function()
    local n = 0
    local function g(y)
      n = n + 1
      note()
      local z = heavy(y)
      if n % 2 == 0 then error("even call") end
      return z
    end
    return function(y) return (g(y)) end
  end, x)
end)

-- -- pcall, xpcall

test("a protected call is part of the graph", function()
  equal(compare(function() return function(y) local ok, r = pcall(heavy, y) return ok, r + 1 end end, x), 1)
  equal(compare(function() return function(y) return pcall(heavy, y) end end, x), 1)
  equal(compare(function()
    return function(y)
      local ok, r = pcall(function() return heavy(y) end)
      return ok, r + 1
    end
  end, x), 1)
  equal(compare(function()
    return function(y)
      local ok, r = xpcall(function(a, b) return heavy(a) * b end, debug.traceback, y, 3)
      return ok, r + 1
    end
  end, x), 1)
  equal(compare(function() return function(y) return select("#", pcall(function() end)), y * 2 end end, x), 1)
end)

test("an error in a protected call is caught", function()
  compare(function()
    return function(y)
      local ok, why = pcall(function() y = y * 2; error("a") end)
      return y + 1, ok, why
    end
  end, x)
  compare(function()
    local function bad(y) return heavy(y) .. nil end
    return function(y)
      local z = y * 2
      local ok, why = pcall(bad, z)
      return heavy(z), ok, why
    end
  end, x)
  compare(function() return function(y) return pcall(lt.matmul, y, y) end end, x)
  compare(function() return function(y) local ok, why = pcall(nil) return y * 2, ok, why end end, x)
  compare(function() return function(y) local ok, why = pcall(error, {1}) return y * 2, ok, type(why) end end, x)
end)

test("an error that only some calls raise", function()
  compare(function()
    local n = 0
    local function risky(y)
      n = n + 1
      local z = heavy(y)
      if n % 2 == 0 then error("even", 0) end
      return z
    end
    return function(y)
      local ok, r = pcall(risky, y)
      if not ok then return r, y * 3 end
      return r * 2
    end
  end, x)
end)

test("a break in a protected call leaves both sides compiled", function()
  local function body(y)
    local z = heavy(y)
    note()
    return heavy(z), 5
  end
  equal(compare(function()
    return function(y)
      local ok, r, n = pcall(body, y * 2)
      return ok, r + n
    end
  end, x), 2)
  equal(compare(function()
    local function caught(why) return "caught " .. tostring(why) end
    return function(y)
      local ok, r, n = xpcall(body, caught, y * 2)
      return ok, r + n
    end
  end, x), 2)
end)

test("an error after a break in a protected call", function()
  local function body(y, n)
    local z = heavy(y)
    note()
    z = heavy(z)
    if n then error({code = n}) end
    return z
  end
  compare(function()
    local function handler(e) return "code " .. e.code end
    return function(y)
      local ok, r = xpcall(body, handler, y, 7)
      local fine, s = xpcall(body, handler, y)
      return ok, r, fine, s + 1
    end
  end, x)
  compare(function()
    local function inner(y) return select(2, pcall(body, y, 3)).code end
    return function(y)
      local ok, code = pcall(inner, y)
      return ok, code, y + 1
    end
  end, x)
end)

test("protected calls within modes, and modes within protected calls", function()
  local w = lt.full({2, 3}, 2, {requires_grad = true})
  local function body(y)
    local z = y * w
    note()
    return z + w
  end
  compare(function()
    return function(y)
      local ok, a = pcall(lt.no_grad, body, y)
      local b = lt.no_grad(function() local _, r = pcall(body, y) return r end)
      local _, c = pcall(body, y)
      return ok, a, b, c
    end
  end, x)
end)

test("what a protected call wrote before its error stays written", function()
  compare(function()
    local state = {n = 0}
    local function body(y)
      state.n = state.n + 1
      y:add_(1)
      state.last = y * state.n
      error("stop", 0)
    end
    return function(y)
      local z = y * 1
      local ok, why = pcall(body, z)
      return z, ok, why, state.n, state.last
    end
  end, x)
end)

test("a coroutine yields through a protected call", function()
  compare(function()
    local function body(y)
      local z = heavy(y)
      coroutine.yield(z)
      return heavy(z)
    end
    local inner = lt.compile(function(y) return pcall(body, y) end)
    return function(y)
      local co = coroutine.create(inner)
      local _, first = coroutine.resume(co, y)
      local _, ok, last = coroutine.resume(co)
      return first, ok, last
    end
  end, x)
end)

test("lt.explain tells what runs as it is, and why", function()
  local full = "local note = ... return function(z) local n = 1 local function count() n = n + 1 end count() note() "
  for i = 1, 190 do full = full .. ("local l%d = z "):format(i) end
  full = loadstring(full .. "count() return z * select('#', z" .. (", l1"):rep(51) .. ") + n end")(note)
  local text = tostring(lt.explain(function(y)
    return full(y)
  end)(x))
  truthy(text:find("runs as it is: the%s+frame%s+has%s+no%s+room"), text)
  text = tostring(lt.explain(function(y) io.write("") return y end)(x))
  truthy(text:find("nothing was compiled: call of io.write", 1, true), text)
end)

test("deep frames with many values are rebuilt at a break", function()
  local function deep(x, n)
    x = x * 1.01
    local p, q, r, s, t, u = x + 1, x + 2, x + 3, x + 4, x + 5, x + 6
    if n == 0 then
      io.stderr:write("")
      return x + 1
    end
    return deep(x, n - 1) + p + q + r + s + t + u
  end
  local function thin(x, n)
    if n == 0 then
      io.stderr:write("")
      return x + 1
    end
    return thin(x * 1.01, n - 1) + 1
  end
  for f, depths in pairs {[deep] = {10, 16, 20, 25, 30, 35}, [thin] = {100, 116, 118, 150, 200, 230}} do
    for _, depth in ipairs(depths) do
      lt.reset()
      local g = lt.compile(function(x) return f(x, depth) end)
      for _ = 1, 2 do h.truthy(lt.equal(g(lt.ones(2)), f(lt.ones(2), depth)), depth) end
    end
  end
end)

-- A function with `locals` local tensors that calls g(x, one of them, `args` times ...); what it gives.
local function caller(locals, args, g)
  local text = {"local g = ... return function(x) "}
  for i = 1, locals do text[#text + 1] = ("local v%d = x + %d "):format(i, i) end
  text[#text + 1] = "local a, b = g(x"
  for i = 1, args do text[#text + 1] = (", v%d"):format((i - 1) % locals + 1) end
  text[#text + 1] = ") local r = a "
  for i = 1, locals do text[#text + 1] = (" r = r + v%d"):format(i) end
  return assert(loadstring(table.concat(text) .. " return r, b end"))(g)
end

test("callees of many arguments break", function()
  local function g(x, ...)
    io.stderr:write("")
    return x * 2, select("#", ...)
  end
  for _, shape in ipairs {{100, 14}, {90, 20}, {70, 45}, {10, 75}, {1, 90}, {1, 75}, {120, 1}} do
    lt.reset()
    local want, count = caller(shape[1], shape[2], g)(lt.ones(2))
    local f = lt.compile(caller(shape[1], shape[2], g))
    for _ = 1, 2 do
      local got, n = f(lt.ones(2))
      h.truthy(lt.equal(got, want) and n == count, shape[1] .. " locals, " .. shape[2] .. " arguments")
    end
  end
end)

test("frames without room for portals keep their code", function()
  local function g(x, ...)
    io.stderr:write("")
    return x * 2, select("#", ...)
  end
  for _, shape in ipairs {{180, 60}, {170, 70}, {160, 80}, {110, 135}, {195, 40}, {190, 30}, {1, 240}} do
    lt.reset()
    local want, count = caller(shape[1], shape[2], g)(lt.ones(2))
    local f = lt.compile(caller(shape[1], shape[2], g))
    for _ = 1, 3 do
      local got, n = f(lt.ones(2))
      h.truthy(lt.equal(got, want) and n == count, shape[1] .. " locals, " .. shape[2] .. " arguments")
    end
    h.truthy(h.breaks() > 0)
  end
  lt.reset()
  local large = caller(110, 135, g)
  h.raises("too many values", lt.compile, large, {fullgraph = true})
  local names = {}
  for i = 1, 130 do names[i] = "p" .. i end
  names = table.concat(names, ", ")
  local many = assert(loadstring("return function(" .. names .. ") return p1 * 2 + p130 end"))()
  local f = lt.compile(many)
  local arguments = {}
  for i = 1, 130 do arguments[i] = lt.ones(2) end
  for _ = 1, 3 do h.truthy(lt.equal(f(unpack(arguments)), lt.full({2}, 3))) end
end)

test("recursion through metamethods breaks at its bottom", function()
  local function add(depth, write)
    local mt = {}
    function mt.__add(a, b)
      if a.n == 0 then
        if write then io.stderr:write("") end
        return b
      end
      return setmetatable({n = a.n - 1}, mt) + b * 1.01
    end
    return function(x) return setmetatable({n = depth}, mt) + x end
  end
  local function mixed(depth, write)
    local mt, down = {}, nil
    function down(x, n)
      if n == 0 then
        if write then io.stderr:write("") end
        return x
      end
      if n % 2 == 0 then return down(x * 1.01, n - 1) + 1 end
      return setmetatable({n = n - 1}, mt) + x
    end
    function mt.__add(a, b) return down(b, a.n) * 0.5 end
    return function(x) return down(x, depth) end
  end
  for name, make in pairs {add = add, mixed = mixed} do
    for _, write in ipairs {true, false} do
      for _, depth in ipairs {60, 84, 85, 119, 122, 150, 218, 219, 230, 300} do
        lt.reset()
        local f, want = lt.compile(make(depth, write)), make(depth, write)(lt.ones(2))
        for _ = 1, 2 do h.truthy(lt.equal(f(lt.ones(2)), want), name .. " " .. depth) end
      end
    end
  end
end)

test("recursion is inlined to a depth of 200", function()
  lt.reset()
  local function down(x, n) return n == 0 and x or down(x * 1.01, n - 1) + 1 end
  local f = lt.compile(function(x) return down(x, 200) end)
  h.truthy(lt.equal(f(lt.ones(2)), down(lt.ones(2), 200)))
  h.equal(h.breaks(), 0)
  h.equal(lt.counters().stats.unique_graphs, 1)
end)

h.finish()
