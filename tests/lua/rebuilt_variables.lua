-- Tests a break under calls of frames with variables that closures assign: rebuilt frames share these variables, and a
-- frame from which a graph has returned leaves them to its closures.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local calls = require "noted_calls"
local note, text, compare, noted, forget = calls.note, calls.text, calls.compare, calls.noted, calls.forget

local x = lt.arange(6):view(2, 3):to("float32") / 10

-- A call of each shape, twice under one break: closures that assign variables of the frame that breaks.
test("a frame whose variables closures assign is rebuilt at a break", function()
  local kept
  local function graphs(leaf)
    local function make()
      kept = nil
      return function(y)
        local r = leaf(y + 1) * 3
        if kept then r = r + kept(y) end
        return r:relu() + 1
      end
    end
    return compare(make, {{x}, {x * 2}})
  end
  local most = 6
  local function at_most(name, leaf)
    local n = graphs(leaf)
    truthy(n <= most, name .. ": " .. n)
  end
  at_most("a number", function(y)
    local n = 0
    local function bump() n = n + 1 end
    bump()
    y = y * 2 + n
    note("number")
    bump()
    return y * n + 1
  end)
  at_most("a tensor", function(y)
    local total = y * 0
    local function add(v) total = total + v end
    add(y)
    note("tensor")
    add(y * 2)
    return total:tanh()
  end)
  at_most("a parameter", function(y)
    local function double() y = y * 2 end
    double()
    note("parameter")
    double()
    return y + 1
  end)
  at_most("a table", function(y)
    local list = {}
    local function fresh() list = {y, #list} end
    fresh()
    note("table")
    list[3] = y * 2
    fresh()
    return list[1] + list[2]
  end)
  at_most("two closures that have one variable", function(y)
    local n = 1
    local function up() n = n + 1 end
    local function get() return n end
    up()
    note("two")
    up()
    y = y * get()
    n = n * 10
    return y + get()
  end)
  at_most("closures in closures", function(y)
    local n, total = 1, y
    local function outer()
      local k = n
      return function()
        n, k = n + 1, k + 1
        total = total + k
        return k
      end
    end
    local a = outer()
    a()
    note("closures")
    local b = outer()
    return total * a() + b() + n
  end)
  at_most("a closure that is its own", function(y)
    local n = 0
    local function down(i)
      n = n + i
      if i > 0 then return down(i - 1) end
      return n
    end
    down(2)
    note("its own")
    return y * down(3) + n
  end)
  at_most("a table holds the closure", function(y)
    local n = 0
    local all = {function() n = n + 1 return n end}
    all[1]()
    note("in a table")
    return y * all[1]() + n
  end)
  at_most("it outlives its frame", function(y)
    local n = y
    kept = function(v)
      n = n + v
      return n
    end
    kept(y)
    note("outlives")
    n = n * 2
    return kept(y)
  end)
  at_most("a variable of each round", function(y)
    local all = {}
    for i = 1, 3 do
      local n = i
      all[i] = function() n = n + 1 return n end
      all[i]()
      if i == 2 then note("round") end
      y = y * n
      n = n + 1
    end
    return y + all[1]() * 100 + all[2]() * 10 + all[3]()
  end)
end)

test("variables of several frames at a break, under loops, branches and protected calls", function()
  local function make()
    local function leaf(y, log)
      local n = 0
      local function bump() n = n + 1 log(n) end
      bump()
      if n > 0 then note("leaf") end
      bump()
      return y * n
    end
    local function mid(y, log)
      local seen = 0
      local function see(v) seen = seen * 10 + v log(v) end
      for i = 1, 2 do
        y = leaf(y, see) + seen
        seen = seen + i
      end
      return y, seen
    end
    local function guarded(y, log)
      local ok, count = true, 0
      local function both(v) count = count + v log(v) end
      local fine, r, seen = pcall(mid, y, both)
      note(count)
      both(seen)
      return r + count, fine and ok
    end
    return function(y)
      local sum = 0
      local function log(v) sum = sum + v end
      local r, ok = guarded(y, log)
      sum = sum + 1
      return r:tanh(), ok, sum
    end
  end
  compare(make, {{x}, {x + 2}})
end)

-- LuaJIT jumps to the UCLO of a block with the slots of its variables said to be dead.
test("a goto out of a block whose variable a closure has", function()
  local kept
  local function make()
    kept = nil
    return function(y, n)
      for i = 1, 3 do
        local d = i
        if i == n then goto continue end
        kept = function() d = d + 1 return d end
        note(d)
        y = y + d
        ::continue::
      end
      return y, kept and kept()
    end
  end
  compare(make, {{x, 1}, {x, 2}, {x, 3}, {x, 4}})
end)

test("two graphs at any depth, with variables that closures assign in each frame", function()
  for _, depth in ipairs {1, 2, 5, 16} do
    local function make()
      local f = function(y)
        local n, a = 1, y:tanh()
        local function bump() n, a = n + 1, a * 0.5 end
        bump()
        lt.graph_break()
        bump()
        return (a + n):exp()
      end
      for i = 1, depth do
        local inner = f
        f = function(y)
          local b, k = y + i, 0
          local function more(v) b, k = b + v, k + 1 end
          more(1)
          local r = inner(b)
          more(r)
          return (r * b):sin() * k
        end
      end
      return f
    end
    equal(compare(make, {{x}, {x * 2}}), 2, "depth " .. depth)
    local report = lt.explain(make())(x)
    equal(report.graph_break_count, 1)
    truthy(report.op_count >= 5 * depth + 5, "nothing runs as it is: " .. report.op_count)
  end
end)

test("closures outlive frames that a graph has returned from", function()
  local made
  local function make()
    made = {}
    local function leaf(y)
      local n = 0
      local function up() n = n + 1 return n end
      local function get() return n end
      made[#made + 1] = {up, get}
      up()
      lt.graph_break()
      n = n + 10
      up()
      return y * n
    end
    local function mid(y)
      local total = y * 0
      local function add(v) total = total + v return total end
      made[#made + 1] = {add, function() return total end}
      local r = leaf(y + 1)
      add(r)
      total = total * 2
      made[#made - 1][1](r)
      return r + made[#made][1]()
    end
    return function(y)
      local r = mid(y)
      local a, b = made[#made - 1], made[#made]
      r = r + a[1](y) + b[1]()
      note(a[2]())
      note(b[2]())
      b[1]()
      note(b[2]())
      return r + b[2]() + a[2]()
    end
  end
  local function run(wrap)
    local f, seen = wrap(make()), {}
    forget()
    for i = 1, 4 do
      seen[#seen + 1] = text(f(x * i))
      collectgarbage(i % 2 == 0 and "collect" or "step")
      for _, two in ipairs(made) do seen[#seen + 1] = text(two[1](x)) .. text(two[2]()) end
    end
    return table.concat(seen, "\n") .. table.concat(noted, " ")
  end
  h.graphs_of(run)
end)

test("a closure that a graph makes of a variable which older ones have", function()
  local function make()
    local function leaf(y)
      local n = 1
      local function up() n = n + 1 return n end
      up()
      note(n)
      up()
      local function get(v) n = n + 1 return v * n end
      return y * n, up, get
    end
    local function mid(y)
      local r, up, get = leaf(y)
      up()
      return get(r), up, get
    end
    return function(y)
      local r, up, get = mid(y)
      note(up())
      return get(r) + up(), get(y), up()
    end
  end
  compare(make, {{x}, {x + 1}})
end)

test("variables of frames that are left are closed while the collector works", function()
  local function leaf(y, list, i)
    local seen, n = {i}, i
    local function add(v) seen, n = {v, seen}, n + 1 return seen end
    list[i] = function() return n, seen[1], add(i)[2] end
    lt.graph_break()
    add(y)
    return y + n
  end
  local function mid(y, list, i)
    local k = {}
    list[-i] = function(v) k = {v, k} return k end
    local r = leaf(y, list, i)
    k = {r}
    return r
  end
  local function f(y, list, n)
    for i = 1, n do
      y = mid(y, list, i) * 0.5
      for j = math.max(1, i - 3), i do
        local a, b, c = list[j]()
        if i > n - 2 then note(a) note(b) note(c[1]) note(list[-j](i)[2][1]) end
      end
      collectgarbage("step", 1)
    end
    return y
  end
  local function run(g)
    forget()
    local r = text(g(x, {}, 60))
    return r .. table.concat(noted, " ")
  end
  local c = lt.compile(f)
  for _ = 1, 3 do equal(run(c), run(f)) end
end)

h.finish()
