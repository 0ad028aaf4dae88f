-- Tests writes through every kind of view, in place, eagerly and in a compiled frame: results, inputs and gradients
-- have the same bits.
local h = require "harness"
local lt = require "lutra"
local test, truthy, equal = h.test, h.truthy, h.equal

local function input() return lt.arange(24):to("float32"):view(4, 6) end

local function same(a, b, what)
  truthy(a.dtype == b.dtype and a:equal(b), what .. " differs:\n" .. tostring(a) .. "\n" .. tostring(b) .. "\nit")
end

-- Returns the result of f, and x afterwards or its gradient.
local function run(f, grad, make)
  local x = make():requires_grad_(grad)
  local r = f(x)
  if not grad then return r, x end
  r:sum():backward()
  return r:detach(), x.grad
end

-- Parts of one tensor share its version: what a gradient reads of one must not be written through another.
local function both(name, f, make, no_gradient)
  for _, grad in ipairs(no_gradient and {false} or {false, true}) do
    test(name .. (grad and " with gradient" or ""), function()
      -- A leaf that requires grad is not written itself, but what is computed from it.
      local f = grad and function(x) return f(x + 0) end or f
      local r, x = run(f, grad, make or input)
      lt.reset()
      local compiled = lt.compile(f)
      for _ = 1, 2 do
        local cr, cx = run(compiled, grad, make or input)
        same(cr, r, "the result")
        same(cx, x, grad and "the gradient" or "the input")
      end
      if not grad then truthy(lt.explain(f)((make or input)()).graph_break_count == 0, "breaks; none expected") end
    end)
  end
end

both("diagonal", function(x) x:diagonal(1):mul_(3) return x * x end)
both("row of a transpose", function(x) x:t()[1]:add_(x[0]:sum()) return x * x end)
both("windows side by side", function(x) x:unfold(1, 2, 3):mul_(2) return x * x end)
both("as_strided", function(x) x:as_strided({2, 2}, {6, 2}, 1):mul_(5) return x * x end)
both("chunks that use each other", function(x)
  local parts = x:chunk(2, 1)
  local a, b = parts[1], parts[2]
  a:add_(1)
  b:mul_(a)
  return x * x
end, input, true)
both("rows of unbind", function(x)
  for i, row in ipairs(x:unbind()) do row:mul_(i) end
  return x * x
end)
both("split lists", function(x)
  local a, b, c = unpack(x:split({1, 2, 3}, 1))
  b:copy_(c:narrow(1, 1, 2) * a)
  return x * x
end, input, true)
both("movedim and select", function(x) x:view(2, 2, 6):movedim(2, 0)[3]:mul_(7) return x * x end)
both("unflatten", function(x) x:unflatten(1, {2, 3}):select(1, 1):mul_(0.5) return x * x end)
both("swapaxes, slice, unsqueeze", function(x) x:swapaxes(0, 1)["1:5:2"]:unsqueeze(0):add_(x:sum()) return x * x end)
both("tensor_split and hsplit", function(x)
  x:tensor_split(3)[2]:mul_(2)
  x:hsplit({1, 4})[2]:mul_(3)
  return x * x
end)
both("squeeze of a narrow", function(x) x:narrow(0, 2, 1):squeeze(0):mul_(4) return x * x end)
both("a view of a computed transpose", function(x)
  local y = (x * 2):t()
  y[0]:mul_(3)
  y:diagonal():add_(1)
  return y + 1
end)
both("written with a transpose, then through a row", function(x)
  local y = x:narrow(1, 0, 4) * 1
  y:copy_(y:t() * 2)
  y[0]:mul_(3)
  return y * y
end)
both("a slice of a column of a column-major tensor", function(x)
  x[{":", 1}]["1:3"]:mul_(9)
  return x * x
end, function() return lt.arange(24):to("float32"):view(6, 4):t() end)
both("a view read after its base was written", function(x)
  local row, diagonal = x[2], x:diagonal()
  x:mul_(2)
  return row:sum() + diagonal:sum() + x:t():reshape(-1)[5]
end)
both("a view written twice through others", function(x)
  local y = x:view(3, 8)
  y[1]:mul_(2)
  x:t()[0]:mul_(3)
  y:as_strided({3}, {9}, 2):mul_(5)
  return x * y:view(4, 6)
end)

-- A tensor that was copied into has its own memory, with eager's layout.
test("copies into fresh tensors", function()
  local x = lt.randn(3, 3)
  local cases = {
    function(t) local y = lt.empty(3, 3) y:copy_(t) return y end,
    function(t) local y = lt.empty(3, 3) y:copy_(t:t()) return y end,
    function(t) local y = lt.empty(3, 3) y:copy_(t[0]) return y end,
    function(t) local y = lt.empty(3, 3) y:copy_(t:view(3, 3)) return y end,
    function(t) local y = t:t():clone() y:copy_(t) return y end,
    function(t) local s = t * 2 local y = lt.empty(3, 3) y:copy_(s) return y, s end,
    function(t) return t:clone():zero_() end,
    function(t) return t:clone():fill_(3) end,
    function(t) local y = t:clone() y[":"] = t return y end,
    function(t) local y = t:clone() local v = y[0] v:copy_(t[1]) return v, y end,
    function(t) local y = lt.empty(3, 3) lt.add(t:t(), t:t(), {out = y}) return y end,
    function(t) local y = lt.empty(3, 3) y:copy_(t:t()) return y * 2 end,
    function(t) local y = t["0:1"]:clone() y[0] = 3 return y end,
    function(t) local y = t["0:1"]:clone() y[0] = t[1] return y end,
    function(t) local y = lt.empty(9) y:view(3, 3):copy_(t) return y end,
    function(t) local y = lt.empty(3, 3) y:copy_(t:clone()) return y end,
    function(t) return t:clone():clone(), t:clone() end,
  }
  for i, f in ipairs(cases) do
    local before = x:clone()
    local a, b = {f(x)}, {lt.compile(f)(x)}
    for k = 1, #a do
      h.deep({b[k]:stride()}, {a[k]:stride()}, 0, "strides of case " .. i)
      equal(a[k]:equal(b[k]), true, "case " .. i)
    end
    for k = 1, #a do -- and what is written later goes where eager's goes
      a[k]:add_(1)
      b[k]:add_(1)
    end
    for k = 1, #a do equal(a[k]:equal(b[k]), true, "written case " .. i) end
    equal(x:equal(before), true, "input of case " .. i)
  end
end)

-- Such a write cannot be expressed as a value of the whole memory: the original code runs, as the report says.
test("a write through a view of an input with gaps", function()
  local function f(x, w) x[0]:add_(1) return (x * w):sum() end
  local function run(g)
    local all, w = lt.zeros(4, 8), lt.ones(4, 4, {requires_grad = true})
    local r = g(all[{{}, {0, 4}}], w)
    r:backward()
    return {r:item(), all:totable(), w.grad:totable()}
  end
  local want, compiled = run(f), lt.compile(f)
  for _ = 1, 2 do h.deep(run(compiled), want) end
  local report
  run(function(...) report = lt.explain(f)(...) return report.result[1] end)
  equal(#report.break_reasons, 1)
  h.raises("fullgraph=true, but the graph breaks", run, lt.compile(f, {fullgraph = true}))
end)

test("a compiled result that is a view is one, whoever sees its base", function()
  for _, make in ipairs {
    function(u) return (u * 2):view(-1) end, function(u) return u:detach():view(-1) end,
    function(u) return (u * 2)[0] end, function(u) return u:view(-1) end,
    function(u) local v = u * 2 return v:t(), v end,
  } do
    for _, f in ipairs {make, lt.compile(make)} do
      for _ = 1, 2 do
        local y = f(lt.ones(3, 4))
        h.raises("detach_: a view cannot be detached in place", y.detach_, y)
        h.raises("data: the tensor is a view", function() y.data = lt.ones(12) end)
        y:add_(1):mul_(lt.ones(1, {requires_grad = true}))
        equal(y.requires_grad, true)
      end
    end
  end
end)

-- Writes to inputs that are made where they stand --------------------------------------------------------------------

local at = lt.tensor({1, 3}, {dtype = "int64"})
local function other(seed) return (lt.arange(12):to("float32") * seed):sin():view(2, 6) end

both("rows by index", function(x) x:index_copy_(0, at, other(1)) return x:sum(0) end)
both("rows by index, read before", function(x)
  local s = x:sum(0)
  x:index_copy_(0, at, other(1))
  return x * s
end)
both("rows by index, old and new", function(x)
  local old = x * 2
  x:index_copy_(0, at, other(1))
  return x - old
end)
both("rows by index, twice", function(x)
  x:index_copy_(0, at, other(1))
  x:index_fill_(0, at, 7):index_copy_(0, at, other(2))
  return x + 1
end)
both("rows by index, of itself", function(x) x:index_copy_(0, at, x[{{0, 2}}] * 2) return x + 1 end)
both("rows by index and slices", function(x)
  x:index_copy_(0, at, other(1))
  x[0] = x[3] * 2
  x:index_add_(0, at, other(3))
  return x:exp()
end)
both("rows that are added", function(x) x:index_add_(0, at, other(1)) return x * 1 end)
both("rows that are returned", function(x) return x:index_copy_(0, at, other(1)) end)
both("a row of itself", function(x) x[2] = x[1] + x[2] return x * x end)
both("a column, then rows", function(x)
  x[{{}, 1}] = 3
  x:index_put_({at}, other(2))
  return x:sum(1)
end)
both("scattered", function(x)
  x:scatter_(1, lt.tensor({{0, 5}, {1, 1}}, {dtype = "int64"}), other(1)[{{}, {0, 2}}])
  return x - 1
end)
local function rows(...) return lt.tensor({...}, {dtype = "int64"}) end
both("rows of itself at two links", function(x)
  x:index_copy_(0, rows(0), other(1)[{{0, 1}}])
  x:index_copy_(0, rows(1, 2, 3), x:narrow(0, 0, 3):clone())
  return x * 1
end)
both("the link before writes the next", function(x)
  local y = x:index_copy(0, rows(0), other(1)[{{0, 1}}])
  x:copy_(y:index_copy(0, rows(2), y[{{0, 1}}]))
  return x * 1
end)
both("rows that move up", function(x)
  x[0] = other(1)[0]
  x[0] = x[1]
  x[1] = x[2]
  return x * 1
end)
both("rows of a transposed input", function(x)
  x:index_copy_(1, at, other(1):view(-1)[{{0, 8}}]:view(4, 2))
  return x * 2
end,
  function() return input():t():clone():t() end)

-- A call that fails leaves the same memory as in eager code, and the next call is right.
test("writes before and after what fails", function()
  local function f(x, first, second, add)
    x:index_copy_(0, first, other(1))
    if add then x:index_add_(0, first, other(2)) end
    local picked = x:index_select(0, second)
    x[0] = picked[0]
    return x:sum()
  end
  local good, bad = at, lt.tensor({1, 9}, {dtype = "int64"})
  local compiled = lt.compile(f)
  for _, add in ipairs {false, true} do
    for _, indices in ipairs {{good, good}, {good, bad}, {bad, good}, {good, good}} do
      local x, y = input(), input()
      local fine, r = pcall(f, x, indices[1], indices[2], add)
      local cfine, cr = pcall(compiled, y, indices[1], indices[2], add)
      equal(cfine, fine)
      if fine then same(cr, r, "the result") else equal(cr, r) end
      same(y, x, "the input")
    end
  end
end)

test("an error behind a write in place is caught where eager code catches it", function()
  local bodies = {
    function(x, y, first, second)
      local fine = pcall(function()
        x:index_copy_(0, first, other(1))
        return y:index_select(0, second)
      end)
      y:add_(fine and 1 or 5)
    end,
    function(x, y, first, second)
      pcall(function()
        x[0] = y
        x[0] = x[1]
        x[1] = x[2]
        return y:index_select(0, second)
      end)
    end,
    function(x, _, first, second)
      pcall(function()
        x:index_add_(0, first, other(1))
        x:index_add_(0, second, other(2))
      end)
    end,
  }
  for i, body in ipairs(bodies) do
    lt.reset()
    local compiled = lt.compile(body)
    for _, second in ipairs {rows(1, 0), rows(1, 9)} do
      local x, y, cx, cy = input(), lt.ones(6), input(), lt.ones(6)
      body(x, y, at, second)
      compiled(cx, cy, at, second)
      same(cx, x, "input of body " .. i)
      same(cy, y, "the other input of body " .. i)
    end
  end
end)

test("a token that is put into a cache is all that is written", function()
  local step = lt.compile(function(cache, position, k)
    return cache:index_copy_(1, position, k):sum(1)
  end)
  local cache, position, k = lt.zeros(2, 8, 4), lt.tensor({5}, {dtype = "int64"}), lt.ones(2, 1, 4)
  local row = lt.compile(function(cache, k) cache[1] = k return cache:sum(1) end)
  step(cache, position, k)
  row(cache, k[0])
  equal(cache:sum():item(), 36)
  equal(#lt.profile(step)(cache, position, k).kernels, 2, "kernels of a step")
  equal(#lt.profile(row)(cache, k[0]).kernels, 2, "kernels of a row")
end)

test("tokens are put into many caches in place, whatever raises behind them", function()
  local function step(keys, values, position, k, weights)
    local r = keys:index_copy_(1, position, k):sum(1)
    r = r + values:index_copy_(1, position, k * 2):sum(1)
    return r, weights:multinomial(1), k:gather(2, (position * 0):view(1, 1, 1))
  end
  local f = lt.compile(step)
  local function caches() return lt.arange(64):float():view(2, 8, 4), lt.ones(2, 8, 4) end
  local k, weights = lt.ones(2, 1, 4), lt.tensor({0, 1, 0})
  local keys, values = caches()
  local function at(i) return lt.tensor({i}, {dtype = "int64"}) end
  f(keys, values, at(2), k, weights)
  local copies = 0
  for _, row in ipairs(lt.profile(f)(keys, values, at(2), k, weights).kernels) do
    if row.name:find "copy_" or row.op:find "copy_" then copies = copies + 1 end
  end
  equal(copies, 0, "copies of caches")
  -- A position or the weights raise an error. The caches are as the original program leaves them.
  for _, case in ipairs {{at(9), weights}, {at(3), lt.tensor({0, -1, 0})}, {at(4), weights}} do
    local seen = {}
    for i, run in ipairs {step, f} do
      keys, values = caches()
      local ok, message = pcall(run, keys, values, case[1], k, case[2])
      seen[i] = {ok, ok or message:match("[^:]*$"), keys, values}
    end
    equal(seen[2][1], seen[1][1])
    equal(seen[2][2], seen[1][2])
    h.truthy(lt.equal(seen[2][3], seen[1][3]) and lt.equal(seen[2][4], seen[1][4]), "the caches")
  end
end)

test("a run that fails behind a write in place is made again with what it had read", function()
  local v, bad, good = lt.ones(1, 4), lt.tensor({0, -1, 0}), lt.tensor({0, 1, 0})
  local function at(i) return lt.tensor({i}, {dtype = "int64"}) end
  local programs = {
    ["what is dropped"] = function(x, z, t, w)
      x:copy_(z)
      z:index_copy_(0, at(1), v)
      local r = w:multinomial(1)
      x:fill_(0)
      return r
    end,
    ["a field that is cleared"] = function(x, z, t, w)
      t.s = z:clone()
      z[2] = v[0]
      local r = w:multinomial(1)
      t.s = nil
      return r
    end,
    ["a protected call"] = function(x, z, t, w)
      pcall(function()
        t.s = z:sum()
        z:index_copy_(0, at(1), v)
        w:multinomial(1)
        t.s = nil
      end)
    end,
    ["the value of another"] = function(x, z, t, w)
      z:copy_(x)
      z:index_copy_(0, at(1), v)
      local r = w:multinomial(1)
      x:copy_(z)
      return r
    end,
    ["a counter"] = function(x, z, t, w)
      local n = t.count:item()
      t.count[0] = n + 1
      return w:multinomial(1)
    end,
  }
  for name, f in pairs(programs) do
    local seen = {}
    for i, run in ipairs {f, lt.compile(f)} do
      local x, z, t
      for _, w in ipairs {good, good, bad} do
        x, z, t = lt.zeros(4, 4), lt.arange(16):float():view(4, 4), {count = lt.zeros(1)}
        pcall(run, x, z, t, w)
      end
      seen[i] = table.concat({tostring(x), tostring(z), tostring(t.s), tostring(t.count)}, "\n")
    end
    equal(seen[2], seen[1], name)
  end
end)

test("a cache is not written before what raises ahead of the program's copy", function()
  local function step(keys, position, k, weights)
    local new = keys:index_copy(1, position, k)
    local r = weights:multinomial(1)
    keys:copy_(new)
    return r, keys:sum()
  end
  local f = lt.compile(step)
  local k, position = lt.ones(2, 1, 4), lt.tensor({5}, {dtype = "int64"})
  local keys = lt.zeros(2, 8, 4)
  f(keys, position, k, lt.tensor({0, 1, 0}))
  equal(keys:sum():item(), 8)
  keys = lt.zeros(2, 8, 4)
  h.truthy(not pcall(f, keys, position, k, lt.tensor({0, -1, 0})))
  equal(keys:sum():item(), 0)
end)

test("results of graphs that are interpreted are written as those of compiled code", function()
  local function told(wrap)
    local g = lt.ones({4}, {requires_grad = true})
    local f = wrap(function(u)
      local r = u * g
      return r:sum(), r[0]
    end)
    local seen = {}
    for i = 1, 3 do
      local sum, row = f(lt.full({3, 4}, i))
      row:mul_(3);
      (sum + row:sum()):backward()
      seen[i] = h.text({row, g.grad})
    end
    return table.concat(seen, "\n")
  end
  local want = told(function(f) return f end)
  for _, backend in ipairs {"native", "eager", "aot_eager", function() end} do
    lt.reset()
    h.equal(told(function(f) return lt.compile(f, {backend = backend}) end), want, tostring(backend))
  end
end)

h.finish()
