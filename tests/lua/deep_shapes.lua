-- Tests that a break under n similar frames costs a fixed number of graphs, however many frames there are: the code
-- behind it in the innermost frame and in those above is one graph.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local x = lt.arange(6):view(2, 3):to("float32") / 10
local noted = 0

local function note()
  noted = noted + 1
  lt.graph_break()
end

local function leaf(y)
  local a = y:tanh()
  note()
  return (a + 1):exp(), a * 2, 3
end

local function autocast()
  local kinds = {lt.is_autocast_cache_enabled()}
  for _, device in ipairs {"cpu", "cuda"} do
    kinds[#kinds + 1] = lt.is_autocast_enabled(device)
    kinds[#kinds + 1] = lt.get_autocast_dtype(device)
  end
  for i = 1, #kinds do kinds[i] = tostring(kinds[i]) end
  return table.concat(kinds, " ")
end

local function text(v) return type(v) == "userdata" and h.text(v) .. tostring(v.requires_grad) or tostring(v) end

-- Returns the results of f in three rounds.
local function told(f)
  local seen = {}
  noted = 0
  for _ = 1, 3 do
    for scale = 1, 2 do
      local r = {pcall(f, x * scale, 20)}
      for k = 1, table.maxn(r) do r[k] = text(r[k]) end
      seen[#seen + 1] = table.concat(r, "|", 1, table.maxn(r)) .. tostring(lt.is_grad_enabled()) .. autocast()
    end
  end
  return table.concat(seen, "\n") .. noted
end

-- around(inner, i) is a function that calls inner, the i-th from the break. At any depth up to 16 the calls take `most`
-- graphs at most.
local function costs(most, around, innermost)
  for _, depth in ipairs {1, 2, 4, 8, 16} do
    local f = innermost or leaf
    for i = 1, depth do f = around(f, i) end
    local function outermost(...) return f(...) end
    local want = told(outermost)
    lt.reset()
    equal(told(lt.compile(outermost)), want, "depth " .. depth)
    local graphs = lt.counters().stats.unique_graphs
    truthy(graphs >= 2 and graphs <= most, ("depth %d: %d graphs"):format(depth, graphs))
    lt.reset()
    equal(told(lt.patch(outermost)), want, "patched, depth " .. depth)
    lt.unpatch(outermost)
  end
end

test("a list of results becomes a table", function()
  costs(2, function(inner, i)
    return function(y)
      local b = y + i
      local t = {inner(b)}
      return (t[1] * b):sin(), t[2], #t
    end
  end)
end)

test("a list of results is passed on as arguments", function()
  local function join(a, r, s, k) return (r * a):sin(), s, k end
  costs(2, function(inner, i)
    return function(y)
      local b = y + i
      local r, s, k = join(b, inner(b))
      return r + 1, s, k
    end
  end)
end)

test("functions of varargs", function()
  costs(2, function(inner, i)
    return function(...)
      local b = ...
      local r = inner((...) + i, select(2, ...))
      return (r * b):sin() * select("#", ...)
    end
  end)
  costs(2, function(inner, i)
    return function(y, ...)
      local b = y + i
      local r = inner(b, ..., b)
      return (r * b):sin() + select("#", ...), ...
    end
  end)
end)

test("modules", function()
  local Net = lt.nn.Module:extend("Net")
  function Net:init(inner, i) self.inner, self.i, self.linear = inner, i, lt.nn.Linear(3, 3) end
  function Net:forward(y)
    local b = self.linear(y) + self.i
    local r = self.inner(b)
    return (r * b):sin()
  end
  costs(2, function(inner, i)
    lt.manual_seed(i)
    return Net(inner, i)
  end)
end)

test("protected calls", function()
  costs(2, function(inner, i)
    return function(y)
      local b = y + i
      local ok, r = pcall(inner, b)
      return (r * b):sin(), ok
    end
  end)
  costs(2, function(inner, i)
    return function(y)
      local b = y + i
      local ok, r, s = xpcall(inner, debug.traceback, b)
      return (r * b):sin(), s, ok
    end
  end)
  costs(2, function(inner, i)
    return function(y)
      local b = y + i
      local list = {pcall(pcall, function(a) return inner(a) * 2 end, b)}
      return (list[3] * b):sin(), #list, list[1], list[2]
    end
  end)
end)

test("calls in other grad modes", function()
  local w = lt.ones(3, {requires_grad = true})
  costs(2, function(inner, i)
    return function(y)
      local b = y * w + i
      local r = lt.no_grad(inner, b)
      return (r * b):sin()
    end
  end)
  costs(2, function(inner, i)
    return function(y)
      local b = y * w + i
      local r, n = lt.no_grad(lt.enable_grad, function(a) return inner(a) * w, 1 end, b)
      local z = lt.inference_mode(function() return r * b end)
      return (r + z):sin(), lt.is_grad_enabled(), n
    end
  end)
end)

test("calls under autocast", function()
  costs(2, function(inner, i)
    return function(y)
      local b = y + i
      local r = lt.autocast("cpu", {dtype = lt.bfloat16}, inner, b)
      return (r * b):sin()
    end
  end)
  costs(2, function(inner, i)
    local dtype, other = lt.bfloat16, {enabled = i % 3 ~= 0, dtype = lt.float16, cache_enabled = i % 2 == 0}
    return function(y)
      local b = y + i
      local r = lt.autocast("cpu", i % 2 == 0 and other or {dtype = dtype}, inner, b)
      local z = r:float():matmul(b:float():t())
      return z:matmul(b:float()):sin(), autocast()
    end
  end)
end)

test("an error in the rest under autocast", function()
  local function make()
    local function inner(y, bad)
      local a = y:matmul(y:t())
      note()
      if bad then a = a:view(7, 7) end
      return a:matmul(y)
    end
    local options = {dtype = lt.float16, cache_enabled = false}
    local function mid(y, bad) return (lt.autocast("cpu", options, inner, y, bad)) end
    return function(y, bad)
      local ok, r = pcall(mid, y, bad)
      return ok, ok and r:float():matmul(y:t()) or r, autocast()
    end
  end
  lt.reset()
  local f, g = make(), lt.compile(make())
  for round = 1, 6 do
    local outer = round > 3 and {dtype = lt.bfloat16} or {enabled = false}
    lt.autocast("cpu", outer, function()
      local want, got = {f(x, round % 3 == 0)}, {g(x, round % 3 == 0)}
      for i = 1, 3 do equal(text(got[i]), text(want[i])) end
    end)
  end
end)

test("closures over variables that are only read", function()
  costs(2, function(inner, i)
    return function(y)
      local b = y + i
      local function get() return b * 2 end
      local r = inner(get())
      return (r * get()):sin()
    end
  end)
  costs(2, function(inner, i)
    return function(y)
      local b, k = y + i, i
      local function add(v) return v + b * k end
      local function apply(f, v) return f(inner(f(v))) end
      local r = apply(add, b)
      local function both() return add(r) * k end
      return (both() * b):sin()
    end
  end)
end)

-- If each round breaks, there is a graph up to the first break, one for each loop that starts a round before the next
-- break, and one behind the last break.
test("loops of calls", function()
  for k, most in ipairs {2, 6} do
    costs(most, function(inner, i)
      local n = i > 4 and 1 or k
      return function(y)
        for _ = 1, n do y = (inner(y)) end
        return y
      end
    end)
  end
end)

test("an error behind the rest of a protected call", function()
  for _, wrap in ipairs {lt.compile, lt.patch} do
    lt.reset()
    local state = {}
    local function inner(y)
      local a = y:tanh()
      note()
      return a + 1
    end
    local function outer(y)
      local ok, r = pcall(inner, y)
      local z = r * 2
      state.z = z
      error({z})
    end
    local function all(y)
      local ok, e = pcall(outer, y)
      return ok, e[1] + 1
    end
    local f = wrap(all)
    for _ = 1, 4 do
      local ok, r = f(x)
      equal(ok, false)
      truthy(r:equal((x:tanh() + 1) * 2 + 1))
      truthy(state.z:equal((x:tanh() + 1) * 2))
    end
  end
end)

test("an error in the rest is caught by the protected call around it", function()
  local function make(mode)
    local function inner(y, bad)
      local a = y:tanh()
      note()
      if bad then a = a:view(7, 7) end
      return a + 1
    end
    local function mid(y, bad) return (mode(inner, y, bad)) end
    return function(y, bad)
      local ok, r = pcall(mid, y, bad)
      return ok, ok and r * 2 or r, lt.is_grad_enabled()
    end
  end
  for _, mode in ipairs {lt.no_grad, lt.enable_grad, function(f, ...) return f(...) end,
    function(f, ...) return select(2, assert(pcall(f, ...))) end} do
    lt.reset()
    local f, g = make(mode), lt.compile(make(mode))
    for round = 1, 6 do
      local want, got = {f(x, round % 3 == 0)}, {g(x, round % 3 == 0)}
      for i = 1, 3 do equal(text(got[i]), text(want[i])) end
    end
  end
end)

-- A point that is added later, on the way from the call to the point whose exit was taken, is not that one.
test("a rest leaves the frame above by the exit that it has found first", function()
  local function make()
    local state, ok = {}, nil
    local function join(a, ...) return a + (...) * select("#", ...) end
    local function inner(y)
      y = (y * 2):tanh()
      state.last = y
      return y
    end
    local function outer(...)
      local y, n = ...
      y = join(y, inner(y, n))
      ok, y = pcall(function() local z = inner(y, n) return z * 2 end)
      return y
    end
    return function(y, n)
      local list = {}
      for i = 1, 2 do
        ok, y = pcall(outer, y, n + i)
        list[#list + 1] = y
      end
      return unpack(list)
    end
  end
  local want = told(make())
  lt.reset()
  lt.config.stress = "break"
  local fine, got = pcall(told, lt.compile(make()))
  lt.config.stress = ""
  truthy(fine, got)
  equal(got, want)
end)

h.finish()
