-- Tests coroutines whose bodies run tensor ops: the code between yields is compiled, in loops and under calls, and
-- gives the same as eager code. A coroutine that a frame makes and runs to its end is part of the frame's graph.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

-- Returns the values that three coroutines of the body yield. Each is resumed with half of its last value.
local function drive(body)
  local out = {}
  for _ = 1, 3 do
    local co, x = coroutine.create(body), lt.tensor({1, 2, 3})
    while x and coroutine.status(co) ~= "dead" do
      local ok, v = coroutine.resume(co, x)
      out[#out + 1] = ok and h.text(v) or tostring(v)
      x = ok and v * 0.5
    end
  end
  return table.concat(out, "\n")
end

-- Compares eager with compiled and patched runs. hits: the least number of compiled calls; graphs: the most graphs.
local function between_yields(body, hits, graphs)
  local want = drive(body)
  for _, wrap in ipairs {lt.compile, lt.patch} do
    lt.reset()
    equal(drive(wrap(body)), want)
    local c = lt.counters()
    truthy(c.cache.hits >= hits, c.cache.hits .. " hits")
    truthy(c.stats.unique_graphs <= graphs, c.stats.unique_graphs .. " graphs")
  end
  lt.unpatch(body)
end

test("straight code between yields", function()
  between_yields(function(x)
    local y = coroutine.yield((x * 2 + 1):tanh())
    local z = coroutine.yield((y * 3 - 1):tanh())
    return (z + 1) * 2
  end, 6, 3)
end)

test("loops that yield", function()
  between_yields(function(x)
    for i = 1, 20 do x = coroutine.yield((x * i + 1):sin()) end
    return x * 2
  end, 55, 2)
  between_yields(function(x)
    local i = 0
    while i < 20 do
      i = i + 1
      x = coroutine.yield((x * 2 + i):sin())
    end
    return x * 2
  end, 55, 3)
end)

test("callees that yield", function()
  between_yields(function(x)
    local function emit(v) return coroutine.yield(v * 2 + 1) end
    for i = 1, 10 do x = emit((x * i):sin()) end
    return x
  end, 25, 2)
  between_yields(function(x)
    local function steps(v, n)
      for i = 1, n do v = coroutine.yield((v + i):cos() * 2) end
      return v
    end
    for _ = 1, 3 do x = steps(x * 2, 5) end
    return x + 1
  end, 45, 4)
end)

test("protected calls between yields", function()
  between_yields(function(x)
    for i = 1, 10 do
      local ok, y = pcall(function(v) return (v * i + 1):sin() end, x)
      x = coroutine.yield(ok and y)
    end
    return x
  end, 25, 2)
end)

test("an error behind a yield", function()
  between_yields(function(x)
    local y = coroutine.yield(x * 2 + 1)
    local z = (y * 3):exp()
    return z:view(7)
  end, 3, 2)
end)

test("a generator's tensors in a compiled loop", function()
  local function generator(n)
    return coroutine.wrap(function() for i = 1, n do coroutine.yield(lt.ones(3) * i) end end)
  end
  local function sum(x, steps)
    for v in steps do x = x + v * 2 end
    return x
  end
  local want = sum(lt.ones(3), generator(4))
  lt.reset()
  local f = lt.compile(sum)
  for _ = 1, 3 do truthy(f(lt.ones(3), generator(4)):equal(want)) end
  truthy(lt.counters().cache.hits >= 8, lt.counters().cache.hits)
end)

-- Programs of x and n, whose text is the body of a function.
local function program(text)
  return assert(loadstring("local lt, note = ... return function(x, n)\n" .. text .. "\nend", "@program"))
end

-- Returns the results of the calls, or their errors.
local function told(f, rows)
  local seen = {}
  for _ = 1, 2 do
    for _, row in ipairs(rows) do
      local r = {pcall(f, row[1], row[2])}
      for k = 1, table.maxn(r) do r[k] = h.text(r[k]) end
      seen[#seen + 1] = table.concat(r, "|", 1, table.maxn(r))
    end
  end
  return table.concat(seen, "\n")
end

local x = lt.tensor({-1, 2, 3})
local rows = {{x, 3}, {x * 2, 3}}

-- Each program is one graph, without a break.
local function inside(programs)
  for _, text in ipairs(programs) do
    local make = program(text)
    local want = told(make(lt), rows)
    for _, options in ipairs {{}, {fullgraph = true}, {dynamic = true}} do
      lt.reset()
      equal(told(lt.compile(make(lt), options), rows), want, text)
      equal(lt.counters().stats.unique_graphs, 1, text)
      equal(h.breaks(), 0, text)
    end
    lt.reset()
    equal(told(lt.patch(make(lt)), rows), want, text)
  end
end

-- Checks that each program does the same as in eager code, and that the report contains the reason, if one is given.
local function outside(programs, reason)
  for _, text in ipairs(programs) do
    local make, notes = program(text), 0
    local function note() notes = notes + 1 end
    lt.disable(note)
    local want, noted = told(make(lt, note), rows), notes
    notes = 0
    for _, wrap in ipairs {lt.compile, lt.patch} do
      lt.reset()
      notes = 0
      equal(told(wrap(make(lt, note)), rows), want, text)
      equal(notes, noted, text)
    end
    local report = reason and tostring(lt.explain(make(lt, note))(x, 3))
    truthy(not report or report:find(reason, 1, true), text .. "\n" .. tostring(report))
  end
end

test("coroutines that a frame makes and runs are parts of its graph", function()
  inside {[[
    local co = coroutine.wrap(function(a)
      local b = a * 2
      coroutine.yield(b)
      b = b + a * 3
      coroutine.yield(b:relu())
    end)
    local u = co(x)
    local v = co()
    return u + v]], [[
    local co = coroutine.create(function(a, b)
      local c, d = coroutine.yield(a + b, a - b)
      return c * d, nil, "done", nil
    end)
    local ok, u, v = coroutine.resume(co, x, x:exp())
    local last = {coroutine.resume(co, u, v)}
    return ok, u, v, unpack(last, 1, 5)]], [[
    for v, i in coroutine.wrap(function(...)
      x = x + select("#", ...)
      for i = 1, n do coroutine.yield(x * i, i) end
    end) do x = x + v:sin() * i end
    return x]], [[
    local function numbers(n) return coroutine.wrap(function() for i = 1, n do coroutine.yield(i) end end) end
    local sum = 0
    for i in numbers(n) do for j in numbers(i) do sum, x = sum + j, x * i + j end end
    return x, sum]], [[
    local function walk(t)
      if type(t) == "table" then walk(t[1]) walk(t[2]) else coroutine.yield(t) end
    end
    local tree, list = {{x, x * 2}, {x + 1, {x:exp(), x:relu()}}}, {}
    for leaf in coroutine.wrap(function() walk(tree) end) do list[#list + 1] = leaf end
    return lt.stack(list, 0):sum(0), #list]]}
end)

test("coroutine.running and isyieldable of code that runs in several coroutines", function()
  lt.reset()
  local ran = {}
  local f = function(x)
    local y, co = x * 2, coroutine.running()
    if co then ran[co] = (ran[co] or 0) + 1 end
    return y:sum():item(), co, type(co), co == nil
  end
  local g, x = lt.compile(f), lt.ones(3)
  local function same(where)
    local a, b, c, d = f(x)
    local e, h, i, j = g(x)
    truthy(a == e and b == h and c == i and d == j, where)
  end
  local function several()
    for _ = 1, 3 do same("a coroutine") coroutine.yield() end
  end
  for _ = 1, 3 do same("main") end
  local one, two = coroutine.create(several), coroutine.create(several)
  for _ = 1, 3 do
    for _, co in ipairs {one, two} do truthy(coroutine.resume(co)) end
    same("main")
  end
  equal(ran[one], 6)
  equal(ran[two], 6)
  equal(h.breaks(), 0)
  lt.reset()
  local yields = lt.compile(function(x) return x + (coroutine.isyieldable() and 1 or 2) end)
  for _ = 1, 3 do equal(yields(x)[0]:item(), 3) end
  equal(h.breaks(), 0)
  for _ = 1, 2 do
    coroutine.wrap(function() for _ = 1, 3 do equal(yields(x)[0]:item(), 2) end end)()
    equal(yields(x)[0]:item(), 3)
  end
end)

test("what coroutine.status, running and isyieldable give inside", function()
  inside {[[
    local co, seen = nil, {}
    local function look() seen[#seen + 1] = coroutine.status(co) end
    co = coroutine.create(function()
      look()
      local inner = coroutine.create(function() look() return x * 2 end)
      local ok, v = coroutine.resume(inner)
      seen[#seen + 1] = coroutine.status(inner)
      seen[#seen + 1] = tostring(coroutine.running() == co)
      seen[#seen + 1] = tostring(coroutine.isyieldable())
      seen[#seen + 1] = type(coroutine.running())
      coroutine.yield(v)
      return v + 1
    end)
    look()
    local _, u = coroutine.resume(co)
    look()
    local _, v = coroutine.resume(co)
    look()
    return u + v, table.concat(seen, " ")]], [[
    local of = {}
    local co = coroutine.create(function(v) coroutine.yield(v) return of[coroutine.running()] end)
    of[co] = x * 3
    local _, u = coroutine.resume(co, x)
    local _, v = coroutine.resume(co)
    of[co] = nil
    return u + v]]}
end)

test("coroutines that cannot be resumed", function()
  inside {[[
    local co = coroutine.create(function(a) return a * 2 end)
    local _, u = coroutine.resume(co, x)
    local ok, why = coroutine.resume(co, x)
    local again, text = coroutine.resume(co)
    return u, ok, why, again, text]], [[
    local co
    co = coroutine.create(function(a)
      local ok, why = coroutine.resume(co)
      local inner = coroutine.create(function() return coroutine.resume(co) end)
      return a * 2, ok, why, coroutine.resume(inner)
    end)
    return select(2, coroutine.resume(co, x))]]}
  outside {
    "local co = coroutine.wrap(function(a) return a * 2 end) local u = co(x) return u, co(x)",
    "local co co = coroutine.wrap(function(a) return co(a) end) return co(x * 2)",
    "local co = coroutine.wrap(function(a) return a * 2 end) co(x) return pcall(co, x)",
    "return coroutine.resume(x * 2)",
    "local y = x * 2 return y, coroutine.wrap(5)",
    "local y = x * 2 return y, coroutine.status(coroutine.wrap(function() return y end))",
  }
end)

test("errors in bodies of coroutines", function()
  outside {
    "local co = coroutine.wrap(function(a) coroutine.yield(a * 2) local b = a + 1 error('inside') end) " ..
      "local u = co(x) return u, co()",
    "local co = coroutine.create(function(a)\n coroutine.yield(a * 2)\n local b = a + 1\n return b .. nil\nend)\n" ..
      "local _, u = coroutine.resume(co, x) return u, coroutine.resume(co)",
    "local co = coroutine.create(function(a) coroutine.yield(a * 2) error({n = 1}) end) " ..
      "local _, u = coroutine.resume(co, x) local ok, e = coroutine.resume(co) " ..
      "return u, ok, e.n, coroutine.status(co), coroutine.resume(co)",
    "local co = coroutine.wrap(function(a) return a:view(77) end) return pcall(co, x * 2)",
    "return coroutine.resume(coroutine.create(function(a) local b = a * 2 assert(false, 'why') end), x)",
  }
end)

test("yields under calls, iterators and protected calls", function()
  inside {[[
    local function emit(v) return coroutine.yield(v) end
    local function tail(v) return emit(v * 2) end
    local co = coroutine.wrap(function(...)
      local a, b = tail(...)
      local t = {emit(a), emit(b)}
      return t[1] - t[2], select("#", coroutine.yield())
    end)
    local u = co(x)
    local v = co(u, u + 1)
    local w = co(v)
    local none = select("#", co(w:exp()))
    return u, v, w, none, co(1, nil, 3, nil)]], [[
    local co = coroutine.wrap(function(a)
      local ok, b = pcall(function(v) return v + coroutine.yield(v) end, a * 2)
      local fine, c, d = xpcall(coroutine.yield, debug.traceback, b)
      local both = {pcall(pcall, coroutine.yield, ok)}
      return ok, b, fine, c, d, unpack(both)
    end)
    local u = co(x)
    local v = co(u:exp())
    local w = co(v, n)
    return u, v, w, co(7)]], [[
    local co = coroutine.wrap(function()
      for v in function(_, i) return coroutine.yield(i) end do x = x * v end
      return x
    end)
    co()
    co(x + 1)
    co(x:exp())
    return (co(nil))]], [[
    local co = coroutine.wrap(function(a) for v in coroutine.yield, a do a = a + v end return a, "end" end)
    local u = co(x)
    co(u * 2)
    return co()]], [[
    local ok, v = pcall(coroutine.wrap(function(a) return coroutine.yield(a * 2) end), x)
    return ok, v]], [[
    local co = coroutine.wrap(function(a) while true do a = coroutine.yield(a * 2) end end)
    local list = {}
    for i = 1, n do local _, v = pcall(co, x + i) list[i] = v end
    return lt.stack(list, 0)]]}
end)

test("variables that coroutines share with the frame and with closures", function()
  inside {[[
    local sum, count = x, 0
    local function add(v) sum, count = sum + v, count + 1 end
    local co = coroutine.wrap(function() for i = 1, n do add(sum * i) coroutine.yield() end end)
    for i = 1, n do co() sum = sum - i end
    return sum, count]], [[
    local function counter()
      local v = x
      local co = coroutine.wrap(function() while true do v = v + 1 coroutine.yield() end end)
      return co, function() return v end
    end
    local step, get = counter()
    step()
    step()
    return get() * 2]], [[
    local list = {}
    for a in coroutine.wrap(function() for i = 1, n do coroutine.yield(function(v) return v * i + x end) end end) do
      list[#list + 1] = a
    end
    return list[1](x), list[3](x)]]}
end)

test("closures that a body made outlive it", function()
  for _, wrap in ipairs {lt.compile, lt.patch, function(f) return f end} do
    lt.reset()
    local function f(y)
      local get, set = coroutine.wrap(function(a)
        local v = a * 2
        coroutine.yield(function() return v end, function(w) v = w end)
        v = nil
      end)(y)
      return get, set, y + 1
    end
    f = wrap(f)
    for _ = 1, 3 do
      local get, set = f(x)
      truthy(get():equal(x * 2))
      set(x + 5)
      truthy(get():equal(x + 5))
    end
  end
end)

test("gradients, modes and writes through coroutines", function()
  local function train(y)
    local w, losses = y:detach(), {}
    w.requires_grad = true
    for loss in coroutine.wrap(function()
      for i = 1, 3 do coroutine.yield((w * i):tanh():sum()) end
    end) do losses[#losses + 1] = loss end
    local total = losses[1] + losses[2] * losses[3]
    return total, lt.grad(total, w)
  end
  local function modes(y)
    y.requires_grad = true
    local co = coroutine.wrap(function(v)
      local a = coroutine.yield(v * 2)
      local b = lt.no_grad(function() return a * 3 end)
      return b, v * 4
    end)
    local u = lt.no_grad(co, y)
    local v, w = co(u)
    return u, v, w, tostring(u.requires_grad) .. tostring(v.requires_grad) .. tostring(w.requires_grad)
  end
  local function writes(y)
    local z, t = y * 1, {}
    local co = coroutine.wrap(function() for i = 1, 3 do z:add_(i) t[i] = z:sum() coroutine.yield() end end)
    for _ = 1, 3 do co() z:mul_(2) end
    return z, t
  end
  for _, f in ipairs {train, modes, writes} do
    lt.reset()
    local c = lt.compile(f, {fullgraph = true})
    for _ = 1, 3 do
      local want, got = {f(x:clone())}, {c(x:clone())}
      for i = 1, #want do equal(h.text(got[i]), h.text(want[i])) end
    end
  end
end)

test("coroutines that live at a break, or outlive the frame", function()
  outside({
    "local co = coroutine.wrap(function(a) coroutine.yield(a * 2) return a + 1 end) local u = co(x) note() " ..
      "return u + co()",
    "local y = x:exp() local co = coroutine.wrap(function(a) local b = a * 2 note() return b + 1 end) return co(y)",
    "local y = x * 2 for v in coroutine.wrap(function() for i = 1, n do coroutine.yield(y * i) end end) do note() " ..
      "y = y + v:exp() end return y",
    "local y = x:exp() local co = coroutine.wrap(function(a) return a * y end) n = {co} local v = (y + 1):exp() " ..
      "note() return n[1](v)",
    "local y = x * 2 local t = setmetatable({}, {__add = function(_, v) return coroutine.yield(v * 2) end}) " ..
      "local co = coroutine.wrap(function() local z = t + y return z end) local u = co() return u, co(u * 2)",
    "local y = x:exp() local co = coroutine.create(function(a) local v = {a * 2, a} " ..
      "table.sort(v, function(p, q) return coroutine.yield(p) end) end) return coroutine.resume(co, y)",
    "local y = x:exp() local co = coroutine.wrap(function(a) " ..
      "return lt.no_grad(function() return coroutine.yield(a * 2) end) end) local u = co(x) return y, u, co(u)",
    "local y = x * 2 local co = coroutine.create(io.type) return y, coroutine.resume(co, x)",
  }, "call of coroutine.")
  outside {
    "local y, cos = x * 2, {} for i = 1, 300 do cos[i] = coroutine.create(function() return y end) end note() " ..
      "return select(2, coroutine.resume(cos[300])), coroutine.status(cos[1])",
    "local y = x * 2 local co = coroutine.create(function() end) return y, #tostring(co) > 8",
    "local co = coroutine.wrap(function(a) local b = a * 2 note() return b + 1 end) return co(x)",
    "local co = coroutine.wrap(function(a) coroutine.yield(a * 2) return a + 1 end) co(x * 2) return x:exp(), co()",
  }
  local function kept(y)
    local z = y * 2
    return coroutine.wrap(function() for i = 1, 3 do coroutine.yield(z * i) end end), z + 1
  end
  for _, wrap in ipairs {lt.compile, lt.patch} do
    lt.reset()
    local f = wrap(kept)
    for _ = 1, 3 do
      local list = {}
      for v in f(x) do list[#list + 1] = v end
      truthy(#list == 3 and list[3]:equal(x * 6))
    end
  end
end)

test("many steps of a coroutine", function()
  local function f(y, n)
    local sum = y
    for v in coroutine.wrap(function() for i = 1, n do coroutine.yield(y * i) end end) do sum = sum + v end
    return sum
  end
  local function deep(y, n)
    if n == 0 then return coroutine.yield(y * 2) end
    local co = coroutine.wrap(deep)
    local v = co(y + 1, n - 1)
    v = coroutine.yield(v)
    return co(v)
  end
  local function nested(y, n)
    local co = coroutine.wrap(deep)
    local v = co(y, n)
    return co(v + 1)
  end
  for _, row in ipairs {{f, 300}, {nested, 30}} do
    lt.reset()
    local c = lt.compile(row[1])
    local want = row[1](x, row[2])
    for _ = 1, 3 do truthy(c(x, row[2]):equal(want)) end
  end
end)

test("a function of coroutine.wrap that is alive over a break", function()
  local function f(x)
    local y = x * 2
    local each = coroutine.wrap(function() for i = 1, 5 do coroutine.yield(i) end end)
    y = y * each()
    lt.graph_break()
    y = y * each() + 1
    y = (y + 1):sin()
    return y * each()
  end
  lt.reset()
  local g = lt.compile(f)
  for i = 1, 4 do equal(h.text(g(lt.ones(3) * i)), h.text(f(lt.ones(3) * i))) end
  local before = lt.counters()
  for i = 1, 20 do equal(h.text(g(lt.ones(3) * i)), h.text(f(lt.ones(3) * i))) end
  local after = lt.counters()
  equal(after.cache.misses, before.cache.misses)
  equal(after.stats.unique_graphs, before.stats.unique_graphs)
end)

test("another function where one of coroutine.wrap was", function()
  local function f(x, each)
    local y = x * 2
    y = (y * each(3)):sin() + 1
    return y + 1
  end
  local function wrapped() return coroutine.wrap(function(a) while true do a = coroutine.yield(a * 2) end end) end
  local function twice(a) return a * 2 end
  local g = lt.compile(f)
  for _, each in ipairs {wrapped(), wrapped(), wrapped(), math.sqrt, tostring, wrapped(), twice, tonumber, wrapped(),
    string.byte, rawlen or type} do
    for _ = 1, 2 do
      local ok, want = pcall(f, lt.ones(3), each)
      local done, got = pcall(g, lt.ones(3), each)
      equal(done, ok)
      equal(ok and h.text(got) or got, ok and h.text(want) or want)
    end
  end
end)

h.finish()
