-- Tests functions whose calls segments leave to Lua, which are frames of their own: callbacks of C functions,
-- metamethods, iterators, bodies of coroutines, and callees whose variables closures assign.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local x = lt.arange(6):view(2, 3):to("float32") / 10
local noted = 0
local function note()
  noted = noted + 1
  io.write("")
end
local function heavy(y)
  for _ = 1, 3 do y = (y * 2):tanh() end
  return y
end
local function both(y)
  y = heavy(y)
  note()
  return heavy(y)
end

local CALLS = 8

-- make() gives f; its results, errors and log of calls must be eager's. How many graphs, ops and breaks there were.
local function compare(make)
  local function run(wrap)
    local f, seen = wrap(make()), {}
    noted = 0
    for i = 1, CALLS do
      local r = {pcall(f, x + i, i)}
      for k, v in ipairs(r) do r[k] = h.text(v) end
      seen[i] = table.concat(r, "|") .. "|" .. noted
    end
    return table.concat(seen, "\n")
  end
  return h.graphs_of(run), lt.counters().stats.calls_captured
end

-- Checks that both halves of a callback that breaks in the middle are compiled. Returns the number of graphs.
local function halves(make)
  local graphs, ops = compare(make)
  truthy(graphs >= 2, graphs)
  truthy(ops >= 12, ops)
  return graphs
end

test("a comparison of table.sort", function()
  halves(function()
    return function(y)
      local list = {3, 1, 2}
      table.sort(list, function(a, b) y = both(y) return a < b end)
      return y, list
    end
  end)
  halves(function()
    local now
    local function before(a, b)
      now = both(now)
      return a < b
    end
    return function(y)
      local list = {3, 1, 2}
      now = y * 2
      table.sort(list, before)
      return now + 1, list
    end
  end)
end)

test("a comparison that reads elements", function()
  local graphs = compare(function()
    return function(y)
      local list = {y[1][1], y[0][0], y[0][2]}
      table.sort(list, function(a, b) return heavy(a):item() < heavy(b):item() end)
      return list[1], list[3]
    end
  end)
  truthy(graphs >= 2, graphs)
end)

test("callbacks of gsub and table.foreach", function()
  halves(function()
    return function(y)
      local text = ("abc"):gsub(".", function(c) y = both(y) return c:upper() end)
      return y, text
    end
  end)
  halves(function()
    local now
    local function each() now = both(now) end
    return function(y)
      now = y
      table.foreach({1, 2, 3}, each)
      return now
    end
  end)
end)

test("a callback raises after its break", function()
  halves(function()
    return function(y, i)
      local ok, why = pcall(table.sort, {2, 1, 3}, function(a, b)
        y = both(y)
        if i % 2 == 0 then error("call " .. i, 0) end
        return a < b
      end)
      return y, ok, why
    end
  end)
end)

local METHODS = {
  __newindex = "o.key = 1", __concat = "r = o .. 'text'", __eq = "r = o == p", __lt = "r = o < p", __le = "r = o <= p",
  __call = "r = o(1)", __index = "r = o.key", __add = "r = o + 1", __unm = "r = -o",
}

for name, use in pairs(METHODS) do
  test("the metamethod " .. name, function()
    halves(function()
      local state = {}
      local mt = {
        [name] = function()
          state.now = both(state.now)
          return 2
        end
      }
      local o, p = setmetatable({}, mt), setmetatable({}, mt)
      local f = assert(loadstring(("local state, o, p = ... return function(y) local r; state.now = y * 3; %s; " ..
        "return state.now + 1, r end"):format(use)))
      return f(state, o, p)
    end)
  end)
end

test("iterators", function()
  halves(function()
    local now
    local function step(_, i)
      if i >= 3 then return end
      now = both(now)
      return i + 1
    end
    return function(y)
      local n = 0
      now = y
      for i in step, nil, 0 do n = n + i end
      return now + n
    end
  end)
  halves(function()
    local function steps(z)
      local i = 0
      return function()
        i = i + 1
        if i > 3 then return end
        z = both(z)
        return i, z
      end
    end
    return function(y)
      local n = 0
      for _, z in steps(y) do n = n + z end
      return n
    end
  end)
end)

test("bodies of coroutines", function()
  halves(function()
    return function(y)
      local co = coroutine.wrap(function(z)
        z = both(z)
        z = coroutine.yield(z)
        return both(z)
      end)
      return co(co(y))
    end
  end)
end)

test("hooks of tensors", function()
  halves(function()
    return function(y)
      local w = lt.ones({2, 3}, {requires_grad = true})
      local z = w * y
      z:register_hook(function(g) return both(g) end)
      z:sum():backward()
      return w.grad
    end
  end)
end)

test("a callee whose variable a closure assigns", function()
  halves(function()
    local function counting(z)
      local n = 1
      local function count() n = n + 1 end
      count()
      z = heavy(z)
      note()
      count()
      return heavy(z) * n
    end
    return function(y) return counting(y) + 1 end
  end)
end)

test("a callback that is kept runs the newest code later on", function()
  compare(function()
    local kept = {}
    return function(y, i)
      local last = y
      local function each(_, v)
        last = both(last)
        if v % 2 == 0 then last = last:exp() end
      end
      table.foreach({i, i + 1}, each)
      kept[i] = function()
        each(1, i)
        return last
      end
      for k = 1, i do last = last + kept[k]() * 0 end
      return last
    end
  end)
end)

test("what compiles nothing runs as it is, and is asked again ever less often", function()
  lt.reset()
  local n = 0
  local f = lt.compile(function(list)
    table.sort(list, function(a, b)
      note()
      n = n + 1
      return a < b
    end)
    return list
  end)
  for _ = 1, 20 do f {3, 1, 2} end
  local before = lt.counters().frames.total
  for _ = 1, 4000 do f {3, 1, 2} end
  truthy(lt.counters().frames.total - before <= 12, lt.counters().frames.total - before)
  equal(lt.counters().stats.unique_graphs, 0)
end)

test("a function of its own is left alone where it is disabled, or unpatched", function()
  local now
  local function each()
    now = both(now)
  end
  local function make()
    return lt.compile(function(y)
      now = y
      table.foreach({1, 2}, each)
      return now
    end)
  end
  lt.reset()
  local f = make()
  for _ = 1, 3 do f(x) end
  truthy(h.breaks() > 0)
  local graphs = lt.counters().stats.unique_graphs
  truthy(graphs >= 2, graphs)
  lt.unpatch(each)
  local hits = lt.counters().cache.hits
  each()
  equal(lt.counters().cache.hits, hits)
  lt.reset()
  f = make()
  for _ = 1, 3 do f(x) end
  equal(lt.counters().stats.unique_graphs, 0)
end)

local function halves(v)
  local y = (v * 2 + 1):sin() - v
  lt.graph_break()
  return (y * 3 - 1):cos() + y
end

test("a closure that was born patched is unpatched", function()
  local kept
  local f = lt.compile(function(y)
    kept = function(_, v) y = halves(y) * v end
    table.foreach({1, 2}, kept)
    return y
  end)
  for _ = 1, 4 do f(x) end
  for _, leave in ipairs {lt.unpatch, lt.disable} do
    f(x)
    leave(kept)
    local hits = lt.counters().cache.hits
    kept(1, 2)
    equal(lt.counters().cache.hits, hits)
  end
end)

test("a callback that sets environments", function()
  local function run(wrap)
    local seen = {}
    local f = wrap(function(y)
      table.foreach({1, 2, 3}, function(_, v)
        y = halves(y)
        seen[#seen + 1] = tostring(Scale)
        setfenv(1, setmetatable({Scale = v * 10}, {__index = _G}))
      end)
      return y
    end)
    for _ = 1, 3 do seen[#seen + 1] = tostring(f(x)) end
    return table.concat(seen, " ")
  end
  equal(run(lt.compile), run(function(f) return f end))
end)

test("a callback of few ops is left as it is", function()
  lt.reset()
  local f = lt.compile(function(y)
    table.foreach({1, 2}, function() y = y * 2 lt.graph_break() end)
    return y
  end)
  for _ = 1, 3 do f(x) end
  equal(lt.counters().stats.unique_graphs, 0)
end)

test("a callback that becomes hot when it was given up", function()
  for _, newborn in ipairs {false, true} do
    lt.reset()
    local hot, w, seen = false, x, 0
    local function callback()
      seen = seen + 1
      if not hot then return lt.graph_break() end
      local y = (w * 2):sin() + w:cos()
      w = y:tanh():exp() * 0.01
      lt.graph_break()
    end
    local f = lt.compile(function(y)
      y = y * 2
      string.gsub("abcde", ".", newborn and function() callback() end or callback)
      return y + 1
    end)
    for _ = 1, 100 do f(x) end
    hot = true
    for _ = 1, 1200 do f(x) end
    local want = w
    for _ = 1, 5 do want = ((want * 2):sin() + want:cos()):tanh():exp() * 0.01 end
    local hits = lt.counters().cache.hits
    f(x)
    truthy(lt.counters().cache.hits - hits > 5, "the callback's graph")
    truthy(w:equal(want))
    equal(seen, 1301 * 5)
  end
end)

test("lt.explain names frames of their own", function()
  local now
  local function good() now = both(now) end
  local function bad() note() end
  local function explain(each)
    return lt.explain(function(y)
      now = y
      table.foreach({1, 2, 3}, each)
      return now
    end)(x)
  end
  local r = explain(good)
  equal(r.graph_count, 2)
  equal(#r.frames, 1)
  truthy(tostring(r):find("a frame of its own at callbacks.lua:%d+: 2 graphs"), tostring(r))
  r = explain(bad)
  truthy(tostring(r):find("a frame of its own at callbacks.lua:%d+: nothing was compiled: call of%s+io.write"),
    tostring(r))
  lt.reset()
  now = x
  good() -- explain has patched nothing for good
  equal(lt.counters().stats.unique_graphs, 0)
end)

h.finish()
