-- Lists that grow from call to call: what is appended is an effect of one graph, not of one for each length.
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

h.finish()
