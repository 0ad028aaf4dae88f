-- Tests the capture of Lua itself: every kind of instruction, table, closure, loop and call in a captured frame gives
-- the same as eagerly.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local function same(a, b, what)
  if type(a) == "userdata" and type(b) == "userdata" then
    truthy(a:equal(b) and a.dtype == b.dtype and a.requires_grad == b.requires_grad, what)
  elseif type(a) == "table" and type(b) == "table" then
    for k, v in pairs(a) do same(v, b[k], what .. "." .. tostring(k)) end
    for k in pairs(b) do truthy(a[k] ~= nil, what .. "." .. tostring(k) .. " is extra") end
  elseif type(a) == "function" then
    equal(type(b), "function", what)
  else
    truthy(a == b or (a ~= a and b ~= b), what .. ": " .. tostring(a) .. " and " .. tostring(b))
  end
end

local function total(map)
  local n = 0
  for _, v in pairs(map) do n = n + v end
  return n
end

-- make() gives f and a function that gives its arguments: fresh state for eager and compiled. Results and state must
-- agree.
local function check(name, make, expect)
  test(name, function()
    lt.reset()
    local f, args, state = make()
    local g, args2, state2 = make()
    local cf = lt.compile(g)
    for i = 1, 4 do
      local want, got = {f(args(i))}, {cf(args2(i))}
      same(want, got, "call " .. i)
      if state then same(state, state2, "state after call " .. i) end
    end
    local c = lt.counters()
    if expect and expect.breaks then equal(total(c.graph_break), expect.breaks, "breaks") end
    if expect and expect.graphs then equal(c.stats.unique_graphs, expect.graphs, "graphs") end
  end)
end

local function x23() return lt.arange(6):view(2, 3) * 0.5 end
local function simple(f, args) return function() return f, args or x23 end end

check("arithmetic, comparison and logic on Lua values", simple(function(x)
  local a, b = 7, 3
  local s = a % b + a / b - b ^ 2 + -a
  local t = (a > b and "yes" or "no") .. a .. (not a == nil and "x" or "y")
  if t == "yes7y" and a ~= b and a >= 7 and b <= 3 then s = s + 1 end
  return x * s, t, s
end), {breaks = 0, graphs = 1})

check("tables: constructors, fields, lists, nested", simple(function(x)
  local t = {1, 2, x = x, n = {k = 5}, [10] = "ten"}
  t.y = t.x * t.n.k
  t[#t + 1] = t.y
  t.n.k = nil
  return t, t[3] + t[1], #t, t.n
end), {breaks = 0, graphs = 1})

check("several results, varargs, select, unpack", simple(function(...)
  local function pair(a, ...) return a + 1, select("#", ...), ... end
  local a, n, rest = pair(...)
  local list = {pair(a, 1, 2)}
  return a, n, rest, #list, unpack(list, 2)
end, function() return x23(), 4, "s" end), {breaks = 0, graphs = 1})

check("numeric loops: up, down, fractions, none, break, nested", simple(function(x)
  local s = x
  for i = 1, 3 do s = s + i end
  for i = 6, 1, -2 do s = s * i end
  for i = 0, 1, 0.25 do s = s + i end
  for i = 1, 0 do s = s * 100 end
  for i = 1, 10 do
    if i == 3 then break end
    for j = 1, i do s = s - j end
  end
  local n = 0
  while n < 3 do n = n + 1 s = s + n end
  repeat n = n - 1 s = s - n until n == 0
  return s
end), {breaks = 0, graphs = 1})

check("generic loops: pairs, ipairs, next, closures", function()
  local t = {a = 1, b = 2, c = 3, 10, 20, 30}
  return function(x)
    for k, v in pairs(t) do x = x + v end
    for i, v in ipairs(t) do x = x * (i + v) end
    local k, v = next({5})
    local function iter(s, i) if i < s then return i + 1, i * 2 end end
    for i, d in iter, 3, 0 do x = x - d end
    local order = {}
    for key in pairs({z = 1, y = 2, x = 3}) do order[#order + 1] = key end
    return x + v, k, table.concat(order)
  end, x23
end, {breaks = 0, graphs = 1})

check("closures made in the frame", simple(function(x)
  local n = 0
  local function add(y) n = n + 1 return y + n end
  local twice = function(f, v) return f(f(v)) end
  local y = twice(add, x)
  local fs = {}
  for i = 1, 3 do fs[i] = function(v) return v * i end end
  for i = 1, 3 do y = fs[i](y) end
  return y, n
end), {breaks = 0, graphs = 1})

check("a closure that leaves the frame", simple(function(x)
  local y = x * 2
  local f = function(z) return y + z end
  return f, f(x)
end))

check("upvalues are written", function()
  local count, last = 0, nil
  local state = {}
  return function(x)
    count = count + 1
    last = x * count
    state.count, state.last = count, last
    return last
  end, x23, state
end, {breaks = 0})

check("real tables are written, cleared and extended", function()
  local state = {n = 1, list = {}, gone = "here"}
  return function(x)
    state.n = state.n * 2
    state.gone = nil
    state[state.n] = true
    table.insert(state.list, state.n)
    state.sub = {x = x + state.n}
    return x * 2
  end, x23, state
end, {breaks = 0})

check("metatables: index chains, functions, call, newindex, arithmetic, eq", function()
  local Base = {kind = "base"}
  Base.__index = Base
  function Base:scale(x) return x * self.factor end
  local Class = setmetatable({}, {__index = Base})
  Class.__index = function(t, k) if k == "factor" then return 3 end return Class[k] end
  Class.__call = function(self, x, y) return self:scale(x) + y end
  Class.__add = function(a, b) return type(a) == "number" and a or a.v + (type(b) == "number" and b or b.v) end
  Class.__eq = function(a, b) return a.v == b.v end
  Class.__newindex = function(t, k, v) rawset(t, k, v * 2) end
  Class.__unm = function(a) return -a.v end
  local object = setmetatable({v = 4}, Class)
  return function(x)
    local other = setmetatable({v = 4}, Class)
    other.w = 5
    return object(x, 1), object + 1, object + other, object == other, other.w, object.kind, -object,
      rawget(object, "factor")
  end, x23
end, {breaks = 0, graphs = 1})

check("strings: methods, format, concat, compare", simple(function(x, name)
  local s = ("%s-%d"):format(name, 3):upper()
  local t = s:sub(1, 2) .. #s
  if "a" < "b" and name == "w" then x = x + #t end
  return x, s, t, tostring(12), tonumber("0x10"), s:find("3", 1, true)
end, function() return x23(), "w" end), {breaks = 0, graphs = 1})

check("math on constants and on numbers that change", simple(function(x, n)
  local a = math.floor(7.5) + math.max(1, 2) + math.sqrt(16) + math.huge * 0
  if a ~= a then a = 1 end
  return x * a + math.sqrt(n) * math.exp(-n), math.abs(-n)
end, function(i) return x23(), i end), {breaks = 0, graphs = 1})

check("branches on arguments that are nil, booleans, numbers", simple(function(x, flag, n)
  if flag then x = x * 2 elseif flag == nil then x = x - 1 end
  if n > 2 then x = x + 10 end
  return x, not flag
end, function(i)
  local flag = nil
  if i % 3 == 1 then flag = true elseif i % 3 == 2 then flag = false end
  return x23(), flag, i
end), {breaks = 0})

check("attributes and sizes", simple(function(x)
  local s, n = x.shape, x:size(0)
  local a, b = x:size()
  return x:view(n * b) * a, s, #s, x.dtype, x:dim(), x:numel(), #x, x.requires_grad, x.is_leaf, x.device
end), {breaks = 0, graphs = 1})

check("indexing and assignment into tensors", simple(function(x)
  local y = x:clone()
  y[0] = 7
  y[{":", 1}] = y[1][0] + 1
  return y, x[0], x["1, 0:2"], x[{1, {0, 2}}], y[-1]
end), {breaks = 0, graphs = 1})

check("in-place ops on arguments and views", function()
  local buffer = lt.zeros(2, 3)
  return function(x)
    buffer:add_(x)
    buffer[0]:mul_(2)
    local v = buffer:view(6)
    v:add_(1)
    return v, buffer:sum()
  end, x23, {buffer}
end, {breaks = 0, graphs = 1})

check("grad mode", simple(function(x)
  local w = x:clone()
  local a = lt.is_grad_enabled()
  local y = lt.no_grad(function(z) return z * 2, lt.is_grad_enabled() end, w)
  lt.set_grad_enabled(true)
  return y, a, lt.is_grad_enabled()
end), {breaks = 0, graphs = 1})

check("gradients inside of the frame", simple(function(x)
  local w = x:detach():clone():requires_grad_(true)
  local loss = (w * w):sum()
  loss:backward()
  local g = lt.grad((w * 3):sum(), w)
  return w.grad, g
end), {breaks = 0, graphs = 1})

check("gradients accumulate over calls", function()
  local w = lt.ones(3, {requires_grad = true})
  return function(x) (x * w):sum():backward() return w.grad end, x23
end, {breaks = 0})

check("globals", function()
  lutra_test_global = 2
  return function(x)
    lutra_test_global = lutra_test_global + 1
    local y = x * lutra_test_global
    lutra_test_global = lutra_test_global - 1
    return y
  end, x23
end, {breaks = 0})

check("recursion", simple(function(x)
  local function power(v, n) if n == 0 then return 1 end return v * power(v, n - 1) end
  return power(x, 4)
end), {breaks = 0, graphs = 1})

check("breaks: print-like calls in expressions, in arguments, in conditions", function()
  local sink = {}
  local function note(v) sink[#sink + 1] = v return v end
  local opaque = coroutine.wrap(function(v) while true do v = coroutine.yield(v) end end)
  return function(x)
    local y = x + 1
    local n = (opaque(2) + 1) * 2
    local z = y * note(n)
    if opaque(true) and note(1) == 1 then z = z - 1 end
    local t = {opaque(1), z * 2, opaque(3)}
    return z, t, note(opaque(4) + 1), select("#", opaque(1), opaque(2))
  end, x23, sink
end)

check("breaks in callees with loops and tables", function()
  local stop = lt.graph_break
  local function inner(t, x)
    for i = 1, 3 do
      t[i] = x * i
      stop()
      x = x + t[i]
    end
    return x
  end
  return function(x)
    local t = {}
    for k = 1, 2 do x = inner(t, x:tanh()) + k end
    return x, t
  end, x23
end)

check("breaks under no_grad, in methods, in metamethods, in iterators", function()
  local stop = lt.graph_break
  local C = {}
  C.__index = C
  function C:run(x) local y = x * self.k stop() return y + 1 end
  C.__add = function(a, x) local y = x * 2 stop() return y + a.k end
  local o = setmetatable({k = 3}, C)
  local function iterate(n) local i = 0 return function() i = i + 1 stop() if i <= n then return i end end end
  return function(x)
    local w = x * 1
    local a = lt.no_grad(function(v) local u = v * 2 stop() return u, lt.is_grad_enabled() end, w)
    local b = o:run(a) + 1
    local c = o + b
    for i in iterate(3) do c = c * i end
    return a, b, c, lt.is_grad_enabled()
  end, x23
end)

check("errors are eager's and leave eager's effects", function()
  local log = {}
  local w = lt.zeros(2, 3)
  return function(x)
    log[#log + 1] = #log
    w:add_(1)
    local ok, message = pcall(function(a) local b = a + 1 return b:matmul(a) end, x)
    return ok, (tostring(message):gsub("^.-:%d+: ", "")), w:clone()
  end, x23, log
end)

check("while loops with breaks, goto continue", function()
  local stop = lt.graph_break
  return function(x)
    local i = 0
    while true do
      i = i + 1
      if i > 4 then break end
      if i == 2 then goto continue end
      x = x * 2
      stop()
      x = x - i
      ::continue::
    end
    return x, i
  end, x23
end)

check("a tensor as a table key", function()
  local t = {}
  return function(x)
    local y = x + 1
    t[x] = 1
    local u = {[y] = "y", [x] = "x"}
    return u[y], u[x], t[x], y
  end, (function() local x = x23() return function() return x end end)()
end)

check("numbers only in arithmetic never recompile", function()
  return function(x, a, b) return x * a + b / (a + 1) - a ^ 2 end, function(i) return x23(), i * 1.5, i end
end, {breaks = 0, graphs = 1})

check("integer tensors and whole numbers", function()
  return function(x, a) return lt.arange(4) * a + 1 end, function(i) return x23(), i % 2 == 0 and 2 or 2.5 end
end, {breaks = 0, graphs = 2})

check("is_compiling differs by design; disable, mark, options", function()
  local hidden = lt.disable(function(x) return x * 3 end)
  return function(x) return hidden(x + 1) * 2 end, x23
end, {breaks = 1})

test("a constant 0 is not -0", function()
  local f = lt.compile(function(x, n) return x / math.fmod(n, 5) end)
  local x = lt.ones(1)
  for _ = 1, 2 do
    equal(f(x, 0):item(), 1 / 0)
    equal(f(x, -1 / math.huge):item(), -1 / 0)  -- a literal -0 is 0 where LuaJIT has integers
  end
end)

test("dynamic sizes: at most 3 compiles for batches 0 to n", function()
  for _, order in ipairs {{0, 1, 2, 3, 4, 5, 6}, {5, 3, 0, 6, 1, 2, 4}} do
    lt.reset()
    local function f(x) return (x * 2 + 1):sum(1) end
    local cf = lt.compile(f)
    for _, n in ipairs(order) do truthy(cf(lt.ones(n, 3)):equal(f(lt.ones(n, 3))), "batch " .. n) end
    truthy(lt.counters().stats.unique_graphs <= 4, "graphs: " .. lt.counters().stats.unique_graphs)
  end
end)

test("options and reports", function()
  lt.reset()
  local function f(x) return x * 2 end
  truthy(not pcall(lt.compile, f, {nonsense = 1}))
  truthy(not pcall(lt.compile, print))
  truthy(not pcall(lt.compile, 3))
  for _, backend in ipairs {"native", "eager", "aot_eager"} do
    truthy(lt.compile(f, {backend = backend})(lt.ones(2)):equal(f(lt.ones(2))))
  end
  local e = lt.explain(function(x) local y = x + 1 lt.graph_break() return y * 2 end)(lt.ones(2))
  equal(e.graph_count, 2)
  equal(e.graph_break_count, 1)
  equal(e.op_count, 2)
  equal(e.break_reasons[1].kind, "user")
  truthy(e.break_reasons[1].line > 0 and #e.break_reasons[1].file > 0)
  truthy(e.result[1]:equal(lt.ones(2) * 4))
  equal(e.result.n, 1)
  local cf = lt.compile(f)
  cf(lt.ones(2))
  cf(lt.ones(2, {dtype = "float64"}))
  local r = lt.recompiles(cf)
  equal(#r, 1)
  equal(r[1].kind, "dtype")
  equal(r[1].source, "x")
  equal(r[1].old, "float32")
  equal(r[1].new, "float64")
  equal(#lt.guards(cf), 2)
  equal(lt.guards(cf)[1][1].source, "x")
  for n in e.graphs[1]:nodes() do equal(n.op, "add") end
  local place = "capture.lua:" .. debug.getinfo(f, "S").linedefined
  truthy(lt.guards(cf):text({all = true}):find("\n  %S*" .. place:gsub("%p", "%%%0") .. "\n    tensor x: float32{2}"),
    lt.guards(cf):text {all = true})
end)

test("a backend function gets the graph", function()
  lt.reset()
  local seen
  local function f(x) return x * 2 + 1 end
  local cf = lt.compile(f, {backend = function(g) seen = tostring(g) end})
  truthy(cf(lt.ones(2)):equal(f(lt.ones(2))))
  truthy(seen and seen:find("mul"), seen)
  local calls = 0
  cf = lt.compile(f, {backend = function() return function(x) calls = calls + 1 return x * 2 + 1 end end})
  for _ = 1, 3 do truthy(cf(lt.ones(2)):equal(f(lt.ones(2)))) end
  equal(calls, 3)
end)

test("a loop that runs already goes over to compiled code", function()
  lt.reset()
  local stop = lt.graph_break
  local f = lt.patch(function(x, n, ...)
    local sum = x
    for i = 1, n do
      for j = 2, 1, -1 do
        sum = sum * 0.5 + i * j
        stop()
        sum = sum + x + select("#", ...)
      end
    end
    return sum, ...
  end)
  local want = lt.zeros(3)
  local x = lt.ones(3)
  want = x
  for i = 1, 20 do for j = 2, 1, -1 do want = want * 0.5 + i * j want = want + x + 2 end end
  local got, a, b = f(x, 20, "a", "b")
  truthy(got:equal(want) and a == "a" and b == "b")
  truthy(lt.counters().cache.hits > 60, "hits: " .. lt.counters().cache.hits)
  lt.unpatch(f)
end)

test("fresh closures of one function make one more entry at most", function()
  lt.reset()
  local function apply(x, f) return f(x) + 1 end
  local cf = lt.compile(apply)
  for i = 1, 6 do
    local k = i
    truthy(cf(lt.ones(2), function(v) return v * k end):equal(lt.ones(2) * i + 1))
  end
  truthy(lt.counters().stats.unique_graphs <= 2, "graphs: " .. lt.counters().stats.unique_graphs)
end)

test("tables and tensors that turn out to be the same", function()
  lt.reset()
  local function f(x, a, b) a.k = x + 1 return b.k * 2 end
  local cf = lt.compile(f)
  cf(lt.ones(2), {k = lt.zeros(2)}, {k = lt.ones(2)})
  local a, b = {k = lt.ones(2)}, {k = lt.ones(2)}
  truthy(f(lt.ones(2), a, a):equal(cf(lt.ones(2), b, b)))
  local function g(u, v) u:add_(1) return v * 2 end
  local cg = lt.compile(g)
  cg(lt.ones(4), lt.ones(4))
  local p, q = lt.ones(4), lt.ones(4)
  truthy(g(p, p):equal(cg(q, q)))
  truthy(g(p, p:view(2, 2)):equal(cg(q, q:view(2, 2))))
  local function e(x, s, t) if s == t then return x end return x * 2 end
  local ce = lt.compile(e)
  local s, t = {}, {}
  for _, other in ipairs {t, s, t} do truthy(e(p, s, other):equal(ce(p, s, other))) end
end)

test("equal results have memory of their own", function()
  lt.reset()
  local f = lt.compile(function(p)
    return lt.zeros_like(p), lt.zeros_like(p), (p * 2):view(-1), (p * 2):view(-1), p + 1, p + 1
  end)
  local p = lt.ones(2)
  local results = {f(p)}
  for i = 1, 5, 2 do
    local before = results[i + 1]:clone()
    results[i]:add_(1)
    truthy(results[i + 1]:equal(before), "result " .. i + 1)
  end
end)

test("a leaf made in the frame keeps its gradient", function()
  lt.reset()
  local f = lt.compile(function(x)
    local w = x:detach():clone():requires_grad_(true)
    local loss = (w * w):sum()
    loss:backward()
    return w
  end)
  local x = lt.ones(3)
  for _ = 1, 2 do
    local w = f(x)
    truthy(w.is_leaf and w.requires_grad and w.grad:equal(x * 2))
  end
end)

test("requires_grad set in the frame on its argument", function()
  lt.reset()
  local f = lt.compile(function(w)
    w:requires_grad_(true)
    return (w * w):sum()
  end)
  for _ = 1, 2 do
    local w = lt.ones(3)
    f(w):backward()
    truthy(w.requires_grad and w.grad:equal(w:detach() * 2))
  end
end)

test("every guard and recompile names a line, and what reads the value", function()
  lt.reset()
  local here = debug.getinfo(1, "S").short_src
  local first = debug.getinfo(1, "l").currentline + 2
  local function f(x, y, t, n)
    t:add_(1)
    local a = x + y
    if n > 2 then a = a * n end
    return a
  end
  local cf = lt.compile(f)
  for size = 3, 5 do cf(lt.ones(size, 4), lt.ones(size, 4), lt.ones(4), 3) end
  cf(lt.ones(6, 4), lt.ones(6, 4), lt.ones(4), 1)
  local found = {}
  for _, entry in ipairs(lt.guards(cf)) do
    for _, g in ipairs(entry) do
      truthy(g.file:sub(-#here) == here or here:sub(-#g.file) == g.file, g.kind .. ": " .. g.file)
      truthy(g.line >= first and g.line <= first + 4, g.kind .. ": " .. g.line)
      if g.kind == "relation" or g.kind == "alias" then
        found[g.kind .. " " .. g.source .. ": " .. g.expected] = g.line
      end
    end
  end
  equal(found["relation x: x.shape[1] == y.shape[1]"], first + 1)
  equal(found["relation n: 2 < n"], first + 2)
  equal(found["alias t: memory of its own"], first)
  local last = lt.recompiles(cf)[#lt.recompiles(cf)]
  equal(last.kind .. " of " .. last.source .. " was " .. last.old .. ", is " .. last.new,
    "relation of n was 2 < n, is n = 1")
  equal(last.line, first + 2)
end)

test("relations read as Lua", function()
  lt.reset()
  local cf = lt.compile(function(x, n)
    if x.shape[1] * 3 - 1 > 11 and -(n / (1 - n ^ (n + 1))) < 7 and (n - (n - 1)) * 2 > 0 and (-n) ^ 2 > 1
      and math.floor(n) < 9 then
      return x * n
    end
    return x
  end, {dynamic = true})
  cf(lt.ones(5), 2.5)
  local relations = {}
  for _, g in ipairs(lt.guards(cf)[1]) do
    if g.kind == "relation" then relations[#relations + 1] = g.expected end
  end
  equal(table.concat(relations, "; "),
    "x.shape[1] >= 5; -7 < n / (1 - n ^ (n + 1)); 0 < (n - (n - 1)) * 2; 1 < (-n) ^ 2; floor(n) < 9")
end)

test("hits and misses", function()
  lt.reset()
  local cf = lt.compile(function(x) return x + 1 end)
  for _ = 1, 5 do cf(lt.ones(2)) end
  equal(lt.counters().cache.misses, 1)
  equal(lt.counters().cache.hits, 4)
end)

test("a backend function that gives no tensor is an error, not eager in silence", function()
  local cf = lt.compile(function(x) return x + 1 end, {backend = function() return function() return 3 end end})
  local ok, message = pcall(cf, lt.ones(2))
  truthy(not ok and message:find("backend's function gave no tensor", 1, true), message)
end)

test("recompile_limit: the original code from then on", function()
  lt.reset()
  local f = lt.compile(function(x, s) if s == "a" then return x end return x + #s end)
  for i = 1, 20 do truthy(f(lt.ones(2), ("x"):rep(i)):equal(lt.ones(2) + i)) end
  truthy(lt.counters().stats.unique_graphs <= 9)
end)

test("a recompile by a mode names no source", function()
  local f = lt.compile(function(x) return x:mm(x) end)
  f(lt.ones(2, 2))
  lt.autocast("cpu", function() f(lt.ones(2, 2)) end)
  h.truthy(tostring(lt.recompiles(f)):find(": autocast was off, is cpu: bfloat16", 1, true), tostring(lt.recompiles(f)))
end)

h.finish()
