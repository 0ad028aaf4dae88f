-- Tests errors that a function raises and catches itself, by error, assert, pcall and coroutine.resume: they are part
-- of its graph, with the same values, texts and effects as in eager code.
local lt = require "lutra"
local h = require "harness"
local test, equal, breaks, text = h.test, h.equal, h.breaks, h.text

local function texts(...)
  local out = {}
  for i = 1, select("#", ...) do out[i] = text((select(i, ...))) end
  return table.concat(out, "; ")
end

-- make() gives a function of (x, i). Compiled, it gives what eager gives, for i = 1 .. 8.
local function compare(make)
  lt.reset()
  local eager, compiled = make(), lt.compile(make())
  for i = 1, 8 do
    local x = lt.ones(2) * i
    equal(texts(compiled(x, i)), texts(eager(x, i)), "call " .. i)
  end
  return lt.counters().stats.unique_graphs, breaks()
end

local function whole(f)
  local graphs, broken = compare(function() return f end)
  equal(broken, 0, "breaks")
  equal(graphs, 1, "graphs")
end

test("values", function()
  whole(function(x)
    local ok, e = pcall(error, {code = 3})
    return x * e.code, ok, e.code
  end)
  whole(function(x)
    local function f(y) error({y * 2}) end
    local ok, e = pcall(f, x + 1)
    return ok, e[1] * 3
  end)
  whole(function(x)
    local a, e = pcall(function() error() end)
    local b, g = pcall(function() error(false) end)
    local c, k = pcall(function() error(x) end)
    return x * 2, a, e, b, g, c, k
  end)
end)

test("texts have places", function()
  whole(function(x)
    local ok, e = pcall(function() error("a text") end)
    local no, g = pcall(function() error("another", 0) end)
    local _, k = pcall(error, "by pcall")
    local _, l = pcall(function() assert(x == nil, "no nil") end)
    local _, m = pcall(function() assert(nil) end)
    local _, n = pcall(assert, false, "by pcall")
    local _, o = pcall(function() assert(false, {}) end)
    return x * 2, ok, e, no, g, k, l, m, n, type(o)
  end)
  compare(function()
    return function(x)  -- LuaJIT finds these places by the real stack
      local _, e = pcall(function() return error("tail") end)
      local _, g = pcall(function() error("caller", 2) end)
      local _, k = pcall(function() error(5) end)
      local _, l = pcall(error, 5)
      local _, m = pcall(error, "m", 2)
      local _, n = pcall(pcall, error, "n")
      return x * 2, e, g, k, l, m, n
    end
  end)
end)

test("a text that changes", function()
  local graphs = compare(function()
    return function(x, i)
      local ok, e = pcall(function() error("number " .. i) end)
      local no, g = pcall(function() assert(false, "number " .. i) end)
      return x * 2, ok, e, no, g
    end
  end)
  h.truthy(graphs <= 4, graphs .. " graphs")
end)

test("some calls raise", function()
  local graphs = compare(function()
    return function(x, i)
      local ok, y = pcall(function()
        if i % 3 == 0 then error({x * 2}) end
        return x * 3
      end)
      return ok, ok and y + 1 or y[1] - 1
    end
  end)
  h.truthy(graphs <= 4, graphs .. " graphs")
end)

test("what was done before the error stays", function()
  compare(function()
    local count, list, buffer = 0, {}, lt.zeros(2)
    return function(x, i)
      local n = 0
      local ok, e = pcall(function()
        for k = 1, 3 do
          n, count = n + k, count + 1
          list[#list + 1] = k
          buffer:add_(x)
          if k == 2 then error({k = k}) end
        end
      end)
      buffer:mul_(2)
      return ok, e.k, n, count, #list, buffer:clone(), lt.is_grad_enabled()
    end
  end)
end)

test("the nearest call catches it", function()
  whole(function(x)
    local function inner() error({1}) end
    local function middle()
      local ok, e = pcall(inner)
      error({e[1] + 1, ok})
    end
    local ok, e = pcall(middle)
    return x * e[1], ok, e[2]
  end)
end)

test("a closure keeps the variables of a frame that an error has ended", function()
  compare(function()
    return function(x, i)
      local ok, e = pcall(function()
        local n = i
        local function count() n = n + 1 return n end
        count()
        error({count = count})
      end)
      return x * 2, ok, e.count(), e.count()
    end
  end)
end)

test("handlers, metamethods, iterators, library functions, modes and hooks between", function()
  compare(function()
    local object = setmetatable({}, {__index = function(_, k) error({k}) end, __add = error, __call = error})
    local w = lt.ones(2, {requires_grad = true})
    return function(x, i)
      local a, b = xpcall(function() error({2}) end, function(e) return e[1] + 1 end)
      local c, d = pcall(function() return object.field end)
      local e, f = pcall(function() return object + 1 end)
      local g = pcall(object, 1)
      local k, l = pcall(table.sort, {3, 1, 2}, function() error({4}) end)
      local m, n = pcall(lt.no_grad, function() error({lt.is_grad_enabled()}) end)
      local o, p = pcall(function()
        lt.no_grad(function() error({5}) end)
      end)
      local q = pcall(function() for _ in error, {6} do end end)
      local y = w * x
      y:register_hook(error)
      local r = pcall(y:sum().backward, y:sum())
      return x * 2, a, b, c, d[1], e, f == object, g, k, l[1], m, n[1], o, p[1], q, r, lt.is_grad_enabled()
    end
  end)
end)

test("error and assert that the program has replaced", function()
  compare(function()
    local raise = error
    return function(x, i)
      if i == 4 then raise = function(v) return v end end
      local ok, e = pcall(function()
        local v = raise({i})
        return v
      end)
      if i == 6 then raise = error end
      return x * 2, ok, e[1]
    end
  end)
end)

test("coroutines end by an error", function()
  whole(function(x)
    local co = coroutine.create(function(a)
      local y = (a * 2):tanh()
      coroutine.yield(y)
      error({y:exp() * 3})
    end)
    local a, b = coroutine.resume(co, x)
    local c, d = coroutine.resume(co)
    return a, b, c, d[1], coroutine.status(co), coroutine.resume(co)
  end)
  whole(function(x)
    local co = coroutine.create(function(a) coroutine.yield(a + 1) error("boom") end)
    local _, b = coroutine.resume(co, x)
    return b, coroutine.resume(co)
  end)
end)

test("errors in coroutines that are caught inside, or come through coroutine.wrap", function()
  compare(function()
    return function(x)
      local co = coroutine.wrap(function(a)
        local ok, e = pcall(function()
          local b = coroutine.yield(a + 1)
          error({b * 2})
        end)
        coroutine.yield(ok, e[1])
        local no, g = pcall(function() error({a}) end)
        coroutine.yield(no, g[1])
        error("at the end")
      end)
      local a, b, c, d = co(x), co(x * 5)
      local e, f = co()
      return a, b, c, d, e, f, pcall(co)
    end
  end)
  compare(function()
    return function(x)
      local inner = coroutine.create(function() coroutine.yield(x * 2) error({7}) end)
      local outer = coroutine.create(function()
        coroutine.yield(select(2, coroutine.resume(inner)))
        local ok, e = coroutine.resume(inner)
        error({e[1] + 1, ok})
      end)
      local _, a = coroutine.resume(outer)
      local ok, e = coroutine.resume(outer)
      return a, ok, e[1], e[2], coroutine.status(inner), coroutine.status(outer)
    end
  end)
end)

test("under fullgraph", function()
  local f = lt.compile(function(x)
    local ok, e = pcall(error, {2})
    return x * e[1], ok
  end, {fullgraph = true})
  for i = 1, 3 do equal(texts(f(lt.ones(2) * i)), texts(lt.ones(2) * i * 2, false)) end
end)

test("assert ends a text at its first NUL", function()
  compare(function()
    return function(x)
      local ok, e = pcall(function() assert(false, "a\0b") end)
      return x * 2, ok, #e
    end
  end)
end)

h.finish()
