-- Tests lists that grow from call to call: appending is an effect of one graph, not of one for each length.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

-- make() gives a function of (x, i) and the list that it changes. Called n times, the compiled one leaves what eager
-- leaves; graphs: how many at most.
local function check(name, make, graphs, n)
  test(name, function()
    lt.reset()
    local f, want = make()
    local g, got = make()
    local compiled = lt.compile(g)
    for i = 1, n or 40 do
      local a, b = f(lt.ones(2) * i, i), compiled(lt.ones(2) * i, i)
      truthy(a:equal(b), "result of call " .. i)
    end
    equal(#got, #want, "length")
    for i = 1, #want do
      local same = got[i] == want[i] or lt.is_tensor(want[i]) and got[i]:equal(want[i])
      truthy(same, "item " .. i)
    end
    local made = lt.counters().stats.unique_graphs
    truthy(made <= graphs, made .. " graphs")
  end)
end

check("t[#t + 1]", function()
  local list = {}
  return function(x)
    x = x * 2
    list[#list + 1] = x
    return x + 1
  end, list
end, 3)

check("table.insert", function()
  local list = {}
  return function(x)
    x = x * 2
    table.insert(list, x)
    return x + 1
  end, list
end, 3)

check("several in a call, and what was appended is read", function()
  local list = {1, 2}
  return function(x, i)
    x = x * 2
    list[#list + 1] = x
    local last = list[#list]
    list[#list + 1] = i
    table.insert(list, last + 1)
    return x + last + #list
  end, list
end, 4)

check("an argument's field, with other fields written", function()
  local cache = {k = {}, n = 0}
  local function f(x, c)
    x = x * 2
    c.k[#c.k + 1] = x
    c.n = c.n + 1
    c.k.last = x
    return x + c.n
  end
  return function(x) return f(x, cache) end, cache.k
end, 4)

check("old items are read", function()
  local list = {lt.ones(2), lt.ones(2)}
  return function(x)
    local first = list[1]
    list[#list + 1] = x * first
    return x + first + list[2] + list[1]
  end, list
end, 4)

check("two names of one list", function()
  local a, b = {1}, nil
  b = a
  return function(x)
    a[#a + 1] = 5
    b[#b + 1] = 6
    return x * #a + #b
  end, a
end, 4)

check("lists that are one only sometimes", function()
  local a, b = {1}, {2}
  local function f(x, p, q)
    p[#p + 1] = 5
    return x * q[1] + #q
  end
  return function(x, i) return f(x, a, i % 5 == 0 and a or b) end, a
end, 12)

check("the list is emptied now and then", function()
  local list = {}
  return function(x)
    if #list > 6 then for i = #list, 1, -1 do list[i] = nil end end
    list[#list + 1] = x
    return x + #list
  end, list
end, 14)

check("a list with holes", function()
  local list = {}
  return function(x, i)
    if i % 3 == 0 then list[#list] = nil end
    list[#list + 2] = i
    list[#list + 1] = i
    list[#list + 1] = i
    return x * 2
  end, list
end, 40)

check("what was appended is written again, or removed", function()
  local list = {1, 2, 3}
  return function(x, i)
    table.insert(list, i)
    list[#list] = i + 1
    if i % 4 == 0 then list[#list] = nil end
    if i % 5 == 0 then list[2] = nil end
    list[1] = i
    return x * list[1] + #list
  end, list
end, 30)

check("the items are joined", function()
  local list = {}
  return function(x)
    list[#list + 1] = x
    return lt.cat(list, 0):sum() + x
  end, list
end, 12)

-- Lists that are read whole: some lengths have entries, then the graph ends before the list is joined.
local function joined(name, make, graphs)
  check(name, make, graphs)
end

joined("the items are stacked", function()
  local list = {}
  return function(x)
    list[#list + 1] = x * 2
    return lt.stack(list):sum(0) + x
  end, list
end, 4)

joined("the items of a field are joined", function()
  local o = {k = {}}
  return function(x)
    o.k[#o.k + 1] = x * 2
    return lt.cat(o.k):sum(0) + lt.stack(o.k):sum(0)
  end, o.k
end, 6)

joined("the items of an argument", function()
  local list = {}
  local function f(x, k)
    k[#k + 1] = x
    return lt.stack(k):mean(0)
  end
  return function(x) return f(x, list) end, list
end, 4)

joined("a list for each layer", function()
  local cache = {{k = {}}, {k = {}}, {k = {}}}
  return function(x)
    for i = 1, #cache do
      local c = cache[i]
      c.k[#c.k + 1] = x
      x = (x + lt.stack(c.k):sum(0)):tanh()
    end
    return x
  end, cache[2].k
end, 4)

joined("two lists", function()
  local o = {k = {}, v = {}}
  return function(x)
    o.k[#o.k + 1] = x
    o.v[#o.v + 1] = x * 2
    return lt.stack(o.k):sum(0) + lt.stack(o.v):sum(0)
  end, o.v
end, 6)

joined("a window", function()
  local list = {}
  return function(x)
    list[#list + 1] = x * 2
    if #list > 4 then table.remove(list, 1) end
    return lt.stack(list):mean(0)
  end, list
end, 6)

joined("a list that others make grow", function()
  local list = {}
  local function f(x) return lt.stack(list):sum(0) + x end
  return function(x)
    list[#list + 1] = x
    return f(x)
  end, list
end, 4)

joined("a list that gets a name, or keywords, in between", function()
  local list = {}
  return function(x, i)
    list[#list + 1] = x * 2
    if i == 7 then list.dim = 0 end
    if i == 9 then list.dim = nil end
    local ok, y = pcall(lt.stack, list)
    if i % 5 == 0 then y = lt.stack(list, {dim = 1}):t() end
    return ok and y[#list - 1] + y:sum(0) or x
  end, list
end, 12)

joined("a list of other things", function()
  local list = {}
  return function(x, i)
    list[#list + 1] = i == 6 and 5 or x
    local ok, y = pcall(lt.stack, list)
    if i == 8 then list[6] = x end
    return ok and y:sum(0) or x * 3
  end, list
end, 12)

test("a list that grows and is read whole names its break", function()
  lt.reset()
  local list = {}
  local f = lt.compile(function(x)
    list[#list + 1] = x * 2
    return lt.stack(list):sum(0)
  end)
  for _ = 1, 5 do f(lt.ones(2)) end
  truthy(lt._report(f).break_reasons[1].hint:find("a list that grows is read whole", 1, true))
end)

-- A list made of random steps, twice the same for a seed.
local function made_list(seed)
  math.randomseed(seed)
  local random, list = math.random, {}
  if random(3) == 1 then list = {1, 2, 3, 4, 5} end
  if random(3) == 1 then list.name = "a list" end
  for i = 1, random(0, 140) do list[i] = i end
  for _ = 1, random(0, 3) do list[random(140)] = nil end
  for _ = 1, random(0, 2) * random(0, 40) do list[#list] = nil end
  if random(4) == 1 then list[random(150, 300)] = 0 end
  for i = 1, random(0, 2) do list["x" .. i] = i end
  return list
end

local appending = {
  function(list) return function(x, i) list[#list + 1] = i return x * #list end end,
  function(list)
    return function(x, i)
      list[#list + 1] = i
      local first = #list
      list[#list + 1] = x
      table.insert(list, -i)
      return x * first + #list
    end
  end,
  function(list)
    return function(x, i)
      list[#list + 1] = i
      if i == 7 then list.new = #list end
      list[1] = i
      return x * #list + list[#list]
    end
  end,
  function(list)
    return function(x, i)
      for k = 1, 3 do list[#list + 1] = i + k end
      if i % 4 == 0 then list[#list] = nil list[#list] = nil end
      return x * #list
    end
  end
}

-- If a list has holes, LuaJIT's traces may find another end than its interpreter. So the JIT is off.
test("ends of lists with holes and room", function()
  local x, traces = lt.ones(2), jit.status()
  jit.off()
  for seed = 1, 400 do
    lt.reset()
    local way = appending[seed % #appending + 1]
    local want, got = made_list(seed), made_list(seed)
    local f, g = way(want), lt.compile(way(got))
    for i = 1, 12 do equal(h.text(g(x, i)), h.text(f(x, i)), ("seed %d, call %d"):format(seed, i)) end
    for k, v in pairs(want) do equal(h.text(got[k]), h.text(v), ("seed %d, item %s"):format(seed, k)) end
    for k in pairs(got) do truthy(want[k] ~= nil, ("seed %d: %s"):format(seed, k)) end
  end
  if traces then jit.on() end
end)

-- The guard looks at no items: a hole before the end is none of its business.
test("an end is known without a look at each item", function()
  local list = {}
  for i = 1, 128 do list[i] = i end
  for i = 128, 71, -1 do list[i] = nil end
  lt.reset()
  local f = lt.compile(function(x, i) list[#list + 1] = i return x * #list end)
  for i = 1, 20 do equal(f(lt.ones(1), i):item(), 70 + i) end
  local misses = lt.counters().cache.misses
  list[10] = nil
  for i = 21, 30 do equal(f(lt.ones(1), i):item(), 70 + i) end
  equal(lt.counters().cache.misses, misses)
  equal(h.breaks(), 0)
end)

-- The value at one place says nothing about other places: in each call another number picks the place.
local picked = {
  ["queues that a number picks"] = function()
    local rows = {{}, {}, {}}
    return function(x, n)
      local row = rows[n % 3 + 1]
      row[#row + 1] = x * 1
      if #row > 5 then rows[n % 3 + 1] = {} end
      return x * 2
    end, rows
  end,
  ["a cache with empty slots"] = function()
    local cache = {}
    return function(x, n)
      local i = n % 12 + 1
      cache[i] = cache[i] and lt.cat({cache[i], x}, 0):narrow(0, 1, 3) or x
      return cache[i] * 2
    end, cache
  end,
  ["lists of another length at each place"] = function()
    local rows = {}
    for i = 1, 9 do rows[i] = {} for k = 1, i do rows[i][k] = k end end
    return function(x, n)
      local row = rows[n % 9 + 1]
      return x * #row + row[#row]
    end, rows
  end
}
for name, make in pairs(picked) do
  test(name, function()
    lt.reset()
    local f, want = make()
    local g, got = make()
    g = lt.compile(g)
    for i = 1, 300 do
      local x, n = lt.arange(3) * i, i * 17 % 97 + 1
      equal(h.text(g(x, n)), h.text(f(x, n)), "call " .. i)
    end
    for k, v in pairs(want) do equal(h.text(got[k]), h.text(v), k) end
    truthy(#lt.recompiles(g) <= 4, #lt.recompiles(g) .. " recompiles")
  end)
end

-- Loops that fill or read a list of another length in each call: a few graphs for all lengths. body: of x, n and `of`,
-- lists of n items.
local function filled(name, graphs, body)
  test(name, function()
    lt.reset()
    local of = {}
    for n = 0, 33 do
      of[n] = {}
      for k = 1, n do of[n][k] = lt.ones(3) * k end
    end
    local f = assert(loadstring("local lt, of = ... return function(x, n) " .. body .. " end"))(lt, of)
    local g = lt.compile(f)
    for i, n in ipairs {3, 5, 1, 7, 2, 9, 4, 6, 8, 11, 13, 10, 12, 21, 17, 30, 3, 5, 1, 33, 19, 14, 16, 22} do
      local x = lt.ones(3) * i
      equal(h.text(g(x, n)), h.text(f(x, n)), "call " .. i)
    end
    truthy(h.graphs() <= graphs, h.graphs() .. " graphs")
  end)
end
filled("while fills a list", 3,
  "local l, i = {}, 1 while i <= n do l[#l + 1] = x * i i = i + 1 end return lt.stack(l, 0)")
filled("for fills a list", 3, "local l = {} for i = 1, n do l[#l + 1] = x * i end return lt.stack(l, 0)")
filled("for fills a list by its variable", 3, "local l = {} for i = 1, n do l[i] = x * i end return lt.stack(l, 0)")
filled("table.insert fills a list", 3, "local l = {} for i = 1, n do table.insert(l, x * i) end return lt.cat(l, 0)")
filled("ops after the list is joined", 4, [[
  local l, i = {}, 1
  while i <= n do
    x = ((x * 0.5):exp() + 1):log() * 2
    l[#l + 1] = x
    i = i + 1
  end
  return lt.stack(l, 0):sum(0)]])
filled("a list of another length is joined", 5, "return lt.cat(of[n], 0):sum() * x")
filled("a loop over a list of another length", 5, "for i = 1, #of[n] do x = x + of[n][i] end return x")
filled("ipairs over a list of another length", 5, "for i, t in ipairs(of[n]) do x = x + t * i end return x")

-- A call looks at no more items of a long list than of a short one.
local function steady(name, f)
  test(name, function()
    lt.reset()
    local want, got, x = {last = 0}, {last = 0}, lt.ones(1)
    for i = 1, 3000 do want[i], got[i] = i, i end
    local compiled = lt.compile(f)
    for i = 1, 6 do
      local a, n = f(x * i, want)
      local b, m = compiled(x * i, got)
      truthy(a:equal(b))
      equal(m, n, "length")
      equal(#got, #want)
    end
    truthy(want[#want]:equal(got[#got]))
    equal(tostring(lt.guards(compiled)):find("no holes", 1, true), nil, "a look at each item")
    for i = #got, 2, -1 do got[i], want[i] = nil, nil end
    equal(select(2, compiled(x, got)), select(2, f(x, want)), "length")
    got[1], want[1] = nil, nil
    local a, b = {pcall(f, x, want)}, {pcall(compiled, x, got)}
    equal(b[1], a[1])
    equal(#got, #want)
  end)
end

steady("the last item is replaced, then the length is asked for", function(x, m)
  m[#m] = x * 2
  return x + 1, #m
end)
steady("an item and a field are replaced", function(x, m)
  m.last = x
  m[1] = x + 1
  m[#m] = m[1] * 2
  return x + 1, #m
end)
steady("the last item is replaced twice", function(x, m)
  m[#m] = x
  m[#m] = x * 3
  return x + 1, #m
end)

h.finish()
