-- Tests a break under calls: the code behind it, in all frames up to the next break, is one graph.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local calls = require "noted_calls"
local note, text, compare, noted, forget = calls.note, calls.text, calls.compare, calls.noted, calls.forget

local x = lt.arange(6):view(2, 3):to("float32") / 10

test("two graphs at any depth", function()
  for _, depth in ipairs {1, 2, 5, 16} do
    local function make()
      local f = function(y)
        local a = y:tanh()
        lt.graph_break()
        return (a + 1):exp()
      end
      for i = 1, depth do
        local inner = f
        f = function(y)
          local b = y + i
          local r = inner(b)
          return (r * b):sin()
        end
      end
      return f
    end
    equal(compare(make, {{x}, {x * 2}}), 2, "depth " .. depth)
  end
end)

test("frames that only pass results on", function()
  local function make()
    local function leaf(y)
      local a = y * 2
      lt.graph_break()
      return a:exp(), 1, a
    end
    local function one(y) local a, b, c = leaf(y + 1) return a, b, c end
    local function two(y) return "first", leaf(y + 2) end
    local function three(y) local _, a = two(y) return (a) end
    local function four(y) local a = one(y) return (three(y)), a end
    return function(y)
      local a, b, c = one(y)
      local d, e = four(y)
      return a + b - c, d * e
    end
  end
  equal(compare(make, {{x}}), 4)
end)

test("one callee from two places, with other numbers of results", function()
  local function make()
    local function leaf(y, k)
      local a = y * k
      lt.graph_break()
      return a:exp(), a:sin(), k
    end
    local function mid(y, k)
      local r, s = leaf(y, k)
      return r * s, r
    end
    return function(y)
      local a = mid(y, 2)
      local b, c = mid(y + a, 3)
      mid(y, 4)
      return a - b, c * 2
    end
  end
  equal(compare(make, {{x}, {x + 1}}), 4)
end)

test("recursion and tail calls", function()
  local function make()
    local function down(y, n)
      if n == 0 then
        lt.graph_break()
        return y:exp()
      end
      local r = down(y + n, n - 1)
      return r * 2 - y
    end
    local function tail(y, n)
      if n == 0 then return down(y, 2) end
      return tail(y * 2, n - 1)
    end
    return function(y, n)
      local r = tail(y, n)
      return r:cos() + y
    end
  end
  equal(compare(make, {{x, 1}, {x, 1}}), 2)
  compare(make, {{x, 1}, {x, 2}, {x, 3}})
end)

test("breaks in loops of callees and of callers", function()
  local function make()
    local function leaf(y, i)
      local a = y + i
      if i % 2 == 1 then note(i) end
      return (a * 2):tanh()
    end
    local function mid(y, n)
      for i = 1, n do y = leaf(y, i) - 1 end
      return y * 3
    end
    local function iterates(y, list)
      for k, v in ipairs(list) do y = mid(y, v) + k end
      for k, v in pairs {a = 1} do y = leaf(y, v) * #k end
      return y
    end
    return function(y, list)
      local i, z = 0, y
      while i < 2 do
        i = i + 1
        z = iterates(z, list) / 2
      end
      repeat i = i - 1 z = leaf(z, i) + i until i == 0
      return z:sin(), i
    end
  end
  compare(make, {{x, {1, 2, 3}}, {x, {2}}, {x * 2, {}}, {x, {3, 1}}})
end)

test("variables that closures share, in every frame", function()
  local function make()
    return function(y)
      local total, fixed = y * 0, y + 1
      local function add(v) total = total + v end
      local function get() return fixed * 2 end
      local function leaf(z)
        local mine = z
        local function own(v) mine = mine + v end
        own(get())
        note("leaf")
        add(mine)
        own(total)
        return mine:tanh(), own
      end
      local function mid(z)
        local kept = z * 2
        local function read() return kept end
        local r = leaf(z)
        add(read())
        kept = kept + r
        return r * read()
      end
      local r = mid(y)
      total = total + r
      add(r)
      return total, r
    end
  end
  compare(make, {{x}, {x + 2}})
end)

test("closures of constants do not part frames", function()
  local function make()
    local function leaf(y)
      local a = y * 2
      lt.graph_break()
      return a:exp()
    end
    local function mid(y)
      local scale = y + 3
      local function scaled(v) return v * scale end
      local r = leaf(y)
      return scaled(r) + scale
    end
    return function(y)
      local k = y:sum()
      local function plus(v) return v + k end
      local r = mid(y)
      return plus(r) * 2
    end
  end
  truthy(compare(make, {{x}, {x * 3}}) <= 4)
end)

test("errors in the rest have their lines and undo nothing", function()
  local function make()
    local state = {n = 0}
    local function leaf(y, bad)
      local a = y * 2
      note("leaf")
      state.n = state.n + 1
      if bad == 1 then error("in the leaf") end
      return a:exp()
    end
    local function mid(y, bad)
      local r = leaf(y, bad)
      state.n = state.n + 10
      if bad == 2 then error {"a table"} end
      return r[bad == 3 and 7 or 0]
    end
    return function(y, bad)
      local r = mid(y, bad)
      state.n = state.n + 100
      if bad == 4 then r = r + nil end
      note(state.n)
      return r, state.n
    end
  end
  compare(make, {{x, 0}, {x, 1}, {x, 2}, {x, 3}, {x, 4}, {x, 0}})
end)

test("protected calls, modes and coroutines between", function()
  local function make()
    local function leaf(y, how)
      local a = y * 2
      if how == "yield" then coroutine.yield(a:sum():item()) end
      note("leaf")
      if how == "error" then error("x", 0) end
      return (a + 1):exp(), a.requires_grad
    end
    local function mid(y, how)
      local r, g = leaf(y, how)
      return r * y, g
    end
    return function(y, how)
      local a, b, c = pcall(mid, y, how)
      local d, e = lt.no_grad(function() local u, v = mid(y, how) return u + 1, v end)
      local r = mid(y, how)
      return a, b, c, d - r, e
    end
  end
  compare(make, {{x, "no"}, {x:clone():requires_grad_(), "no"}, {x, "error"}})
  local function run(f)
    local seen = {}
    forget()
    for _ = 1, 3 do
      local co = coroutine.wrap(function() return f(x, "yield") end)
      for _ = 1, 4 do seen[#seen + 1] = text((co())) end
    end
    return table.concat(seen, "\n") .. table.concat(noted)
  end
  equal(run(lt.compile(make())), run(make()))
end)

test("what a break sees above it", function()
  local function make()
    local function look()
      local names = {}
      for level = 2, 20 do
        local info = debug.getinfo(level, "Sln")
        if not info or not info.source:find("deep_breaks") then break end
        names[#names + 1] = (info.name or "?") .. info.currentline
        if info.name == "outer" then break end
      end
      noted[#noted + 1] = table.concat(names, ",")
      noted[#noted + 1] = debug.traceback():match("deep_breaks[^\n]*") and "t" or "-"
      collectgarbage()
    end
    local function leaf(y)
      local a = y * 2
      look()
      a = a + 1
      look()
      return a:exp()
    end
    local function mid(y)
      local r = leaf(y)
      look()
      return r - 1
    end
    local function outer(y)
      local r = mid(y)
      look()
      return r * 2
    end
    return function(y)
      local r = outer(y)
      return r + 1
    end
  end
  compare(make, {{x}, {x * 2}})
end)

test("a debug hook that counts", function()
  local function leaf(y)
    local a = y * 2
    lt.graph_break()
    return a:exp()
  end
  local function mid(y) local r = leaf(y) return r - y end
  local function f(y) local r = mid(y) return r * 2 end
  local c, want = lt.compile(f), f(x)
  local lines = 0
  for _, mask in ipairs {"l", "c", "r", "crl"} do
    for _ = 1, 3 do
      debug.sethook(function() lines = lines + 1 end, mask, 1)
      local r = c(x)
      debug.sethook()
      truthy(r:equal(want), mask)
    end
  end
  truthy(lines > 0)
end)

test("gradients through a rest", function()
  local w = lt.ones(3):requires_grad_()
  local function leaf(y)
    local a = y * w
    lt.graph_break()
    return a:exp()
  end
  local function mid(y) local r = leaf(y) return (r * w):sum() end
  local function step(y)
    local loss = mid(y)
    w.grad = nil
    loss:backward()
    return loss
  end
  local want = {step(x):item(), tostring(w.grad)}
  local c = lt.compile(step)
  for _ = 1, 3 do
    equal(c(x):item(), want[1])
    equal(tostring(w.grad), want[2])
  end
end)

test("lists and options that are filled across a break", function()
  local function g(y)
    local a = y * 2
    lt.graph_break()
    return a:exp()
  end
  local function graphs_of(f)
    local r = lt.explain(f)(x)
    truthy(r.result[1]:equal(f(x)))
    return r.graph_count
  end
  equal(graphs_of(function(y) return lt.cat({y * 3, g(y)}) * 2 end), 2)
  equal(graphs_of(function(y) return lt.cat({g(y), g(y + 1)}) * 2 end), 3)
  equal(graphs_of(function(y)
    local list = {y}
    list[#list + 1] = g(y)
    return lt.stack(list) * 2
  end), 2)
  equal(graphs_of(function(y)
    local options = {dim = 0}
    local a = g(y)
    options.keepdim = true
    return a:sum(options) * 2
  end), 2)
  equal(graphs_of(function(y)
    local options = {dim = 0, keepdim = true}
    local a = g(y)
    options.keepdim = nil
    return a:sum(options) * 2
  end), 2)
end)

-- The graphs that are compiled when a call needs them decide where the rest of the call is cut: at best there is one
-- graph for all frames, at worst one for each frame.
test("callers wait for graphs that are compiled in the background", function()
  local function leaf(y)
    local a = y * 2
    lt.graph_break()
    return a:exp()
  end
  local function mid(y)
    local r = leaf(y + 1)
    return r * y
  end
  local function f(y)
    local r = mid(y)
    return r:sin()
  end
  local c, want = lt.compile(f, {wait = false}), f(x)
  local before, started = lt.counters().async.started, {}
  for i = 1, 6 do
    truthy(c(x):equal(want))
    lt.wait_compiled(c)
    started[i] = lt.counters().async.started - before
  end
  truthy(started[6] >= 2 and started[6] <= 4, "graphs: " .. started[6])
  equal(started[6], started[3])
end)

test("a frame that loops goes over to newer bytecode", function()
  local function leaf(y, i)
    local a = y * i
    lt.graph_break()
    if i > 5 then a = a:sin() end
    return a:tanh()
  end
  local function mid(y, i) local r = leaf(y, i) return r + 1 end
  local function f(y, n)
    for i = 1, n do
      local r = mid(y, i)
      y = r * 0.5
      if i % 3 == 0 then y = y - 1 end
    end
    return y
  end
  local c = lt.compile(f)
  for _ = 1, 3 do truthy(c(x, 12):equal(f(x, 12))) end
end)

test("a loop around a break makes no graph for each round", function()
  local function make()
    local function leaf(y)
      local a = y * 2
      lt.graph_break()
      return a:exp() * 0.1
    end
    local function mid(y) return (leaf(y)) end
    return function(y, n)
      local i = 0
      while i < n do
        i = i + 1
        y = leaf(y) * i
      end
      repeat
        i = i - 1
        y = mid(y) - i
      until i <= 0
      return y
    end
  end
  local rows = {}
  for n = 1, 12 do rows[n] = {x, n} end
  truthy(compare(make, rows) <= 10)
end)

-- Graphs of f(fan, depth): a leaf with a break under a tree of calls.
local function tree(fan, depth)
  local lines = {
    "local lt = ... ",
    "local function m0(y) local a = y * 0.5 lt.graph_break() return (a:exp() + 1):sin() end ",
  }
  for i = 1, depth do
    local calls = ("y = m%d(y) "):format(i - 1):rep(fan)
    lines[#lines + 1] = ("local function m%d(y) %s return y end "):format(i, calls)
  end
  lines[#lines + 1] = ("return m%d"):format(depth)
  local text = table.concat(lines)
  return compare(function() return loadstring(text)(lt) end, {{x}})
end

test("paths to a break do not multiply graphs", function()
  truthy(tree(3, 4) <= 40)
  truthy(tree(4, 4) <= 45)
  truthy(tree(3, 6) <= 65)
end)

test("frames that go many ways each have graphs of their own", function()
  local function make()
    local function leaf(y)
      local a = y * 0.5
      lt.graph_break()
      return a:sin() + 1
    end
    local function mid(y, k)
      local r = leaf(y)
      if k % 3 == 0 then r = r + 1 elseif k % 5 == 1 then r = r * 2 end
      return r
    end
    return function(y)
      for i = 1, 60 do
        y = mid(y, i)
        if i > 10 and i % 4 == 0 then y = y * 0.5 elseif i % 7 == 0 then y = y + 0.1 end
        if i % 11 == 3 then y = y:cos() end
      end
      return y
    end
  end
  truthy(compare(make, {{x}}) <= 20)
end)

test("entries at their limit are parted from frames above", function()
  local function make()
    local function leaf(y, k)
      local a = y * 0.5
      lt.graph_break()
      if k == "a" then a = a:sin() elseif k == "b" then a = a:cos() elseif k == "c" then a = a:tanh() end
      if k == "d" then a = a + 2 elseif k == "e" then a = a - 3 elseif k == "f" then a = a * 3 end
      if k == "g" then a = a / 3 elseif k == "h" then a = a:abs() end
      return a + 1
    end
    return function(y, k, flag)
      local r = leaf(y, k)
      if flag then return r * 2 end
      return r - 1
    end
  end
  local rows = {}
  for _, flag in ipairs {true, false} do
    for k in ("abcdefgh"):gmatch "." do rows[#rows + 1] = {x, k, flag} end
  end
  local f = lt.compile(make())
  local function run()
    for _, row in ipairs(rows) do truthy(f(unpack(row)):equal(make()(unpack(row)))) end
  end
  for _ = 1, 3 do run() end
  local misses = lt.counters().cache.misses
  run()
  equal(lt.counters().cache.misses, misses)
end)

test("a frame above that goes two ways stays in the graph", function()
  local function make()
    local function leaf(y)
      local a = y * 0.5
      lt.graph_break()
      return a:sin()
    end
    return function(y, flag)
      local r = leaf(y)
      if flag then return r + 1 end
      return r * 2
    end
  end
  equal(compare(make, {{x, true}, {x, false}}), 3)
end)

-- Layers by letters; those of b break.
local function layers(letters)
  local kinds = {
    a = function() return function(y) return (y + 1):tanh() end end,
    b = function()
      return function(y)
        local z = y * 2
        lt.graph_break()
        return z:sin()
      end
    end,
    c = function() return lt.nn.ReLU() end,
  }
  local list = {}
  for letter in letters:gmatch "." do list[#list + 1] = kinds[letter]() end
  return list
end

test("one layer of several kinds breaks", function()
  local function unrolled(letters)
    return function()
      local list = layers(letters)
      return function(y)
        for i = 1, #list do y = list[i](y) * i end
        return y
      end
    end
  end
  local function called(letters)
    return function()
      local list = layers(letters)
      local function all(y)
        for i, layer in ipairs(list) do y = layer(y) * i end
        return y:exp()
      end
      return function(y) return all(y + 1) - 1 end
    end
  end
  local function paired(letters)
    return function()
      local list = layers(letters)
      return function(y)
        for i, layer in pairs(list) do y = layer(y) * i end
        for _, layer in next, list do y = layer(y) end
        return y
      end
    end
  end
  for _, letters in ipairs {"acbaca", "acab", "caabccccaaaaac"} do
    compare(paired(letters), {{x}, {x * 2}})
    equal(compare(called(letters), {{x}, {x * 2}}), 2, letters)
    compare(unrolled(letters), {{x}, {x * 2}})
  end
  for _, letters in ipairs {"abababab", "baba", "acbbacbcca"} do
    compare(called(letters), {{x}, {x * 2}})
    compare(unrolled(letters), {{x}, {x * 2}})
  end
end)

test("one layer of a Sequential breaks", function()
  local Leaf = lt.nn.Module:extend "Leaf"
  function Leaf:init() self.linear = lt.nn.Linear(3, 3) end
  function Leaf:forward(y)
    local z = self.linear(y)
    lt.graph_break()
    return z:relu()
  end
  local function make()
    lt.manual_seed(1)
    return lt.nn.Sequential(lt.nn.Linear(3, 3), lt.nn.ReLU(), Leaf(), lt.nn.Linear(3, 3), lt.nn.Tanh())
  end
  equal(compare(function()
    local model = make()
    return function(y) return model(y) end
  end, {{x}, {x * 2}}), 2)
end)

h.finish()
