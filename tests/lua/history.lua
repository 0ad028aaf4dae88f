-- Tests gradients and history across the border of a compiled segment. Whatever eager code does with the inputs and
-- results of a compiled function gives the same: gradients bit for bit, requires_grad, is_leaf, errors and their
-- texts.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal

local function leaf(...) return lt.tensor({...}, {requires_grad = true}) end
local function show(v)
  if not lt.is_tensor(v) then return tostring(v) end
  return table.concat(v:detach():reshape(-1):totable(), " ")
    .. (v.requires_grad and (v.is_leaf and " leaf" or " grad") or "")
end

-- program(compile) gives values, which must be the same for functions that are compiled as for functions that are not.
local function same(name, program)
  test(name, function()
    local function seen(compile)
      local texts = {}
      for round = 1, 2 do
        local results = {pcall(program, compile, round)}
        for i = 1, table.maxn(results) do
          texts[#texts + 1] = type(results[i]) == "string" and results[i]:gsub("^[^ ]*:%d+: ", "") or show(results[i])
        end
      end
      return table.concat(texts, "\n")
    end
    local want = seen(function(f) return f end)
    lt.reset()
    equal(seen(function(f) return lt.compile(f) end), want, "compiled")
  end)
end

-- -- history from before a segment

same("lt.grad by what led to an argument", function(compile)
  local w = leaf(1, 2, 3)
  return compile(function(v, x) return lt.grad((v * x):sum(), x) end)(w * 2, w)
end)
same("lt.grad by an argument that was computed, and nothing beyond it", function(compile)
  local w = leaf(1, 2, 3)
  return compile(function(v) return lt.grad((v * v):sum(), v) end)(w * 2)
end)
same("an argument that leads to another, both asked for", function(compile)
  local w = leaf(1, 2, 3)
  local a, b = compile(function(v, x) return lt.grad((v * x):sum(), {v, x}) end)(w * 2, w)
  return a, b
end)
same("allow_unused where the only way leads through an argument", function(compile)
  local w = leaf(1, 2, 3)
  return compile(function(v, x) return lt.grad((v * 3):sum(), x, {allow_unused = true}) end)(w * 2, w)
end)
same("lt.grad after a graph break", function(compile)
  local x = leaf(1, 2)
  return compile(function()
    local p = x * 2
    lt.graph_break()
    return lt.grad((p:sin() + x):sum(), x)
  end)()
end)
same("create_graph after a graph break", function(compile)
  local x = leaf(1, 2)
  compile(function()
    local p = x * 2
    lt.graph_break()
    local l = (p:sin() + x * x):sum()
    l:backward(nil, {create_graph = true})
  end)()
  return x.grad:detach()
end)
same("a gradient penalty of a net with a skip connection", function(compile)
  local x, w = leaf(1, 2), leaf(0.5, -1)
  local net = compile(function(v)
    local p = (v * w):tanh()
    lt.graph_break()
    return (p * w + v * v):sum()
  end)
  local g = lt.grad(net(x), x, {create_graph = true})
  local penalty = ((g * g):sum() - 1) ^ 2
  penalty:backward()
  return x.grad, w.grad
end)

-- -- history that arguments gain

same("a buffer that is added to", function(compile)
  local w, buf = leaf(1, 2, 3), lt.zeros(3)
  local l = compile(function(b) b:add_(w * w) return b:sum() end)(buf)
  l:backward()
  return w.grad, buf, buf.requires_grad, buf.is_leaf
end)
same("a cache that is filled over calls", function(compile)
  local w, cache = leaf(1, 2, 3), lt.zeros(4, 3)
  local f = compile(function(i, x) cache[i] = x * w return cache:sum() end)
  f(0, lt.ones(3))
  f(1, lt.ones(3))
  f(2, lt.ones(3)):backward()
  return w.grad, cache
end)
same("rows written in a loop with a break", function(compile)
  local w = leaf(1, 2)
  compile(function()
    local acc = lt.zeros(3, 2)
    for i = 0, 2 do
      acc:index_add_(0, lt.tensor({i}, {dtype = "int64"}), (w * (i + 1)):view(1, 2))
      lt.graph_break()
    end
    return (acc * acc):sum()
  end)():backward()
  return w.grad
end)
same("a view of a buffer is written", function(compile)
  local w, base = leaf(1, 2), lt.zeros(3, 2)
  local v = base[1]
  compile(function(v) v:add_(w) end)(v)
  local inside = v.requires_grad
  ;(base * base + 1):sum():backward()
  return w.grad, base, v, inside, base.is_leaf
end)
same("a view of what was computed is written", function(compile)
  local w = leaf(1, 2, 3, 4)
  local base = (w * 2):view(2, 2)
  local v = base[0]
  compile(function(v, y) v:mul_(3) v:copy_(v * y) end)(v, w[{{0, 2}}])
  base:sum():backward()
  return w.grad
end)
same("other views of a written buffer follow it", function(compile)
  local w, base = leaf(1, 2), lt.zeros(2, 2)
  local other = base:t()
  compile(function(b) b[0] = w end)(base)
  other[0]:sum():backward()
  return w.grad, other
end)
same("legal writes to what was computed before are no breaks", function(compile)
  lt.reset()
  local w = leaf(1, 2)
  local f = compile(function(v) v:mul_(2) v[0] = v[1] return v:sum() end)
  f(w * 1):backward()
  return w.grad, h.breaks()
end)
same("a returned view of a buffer that the call wrote follows later writes", function(compile)
  local w = leaf(1, 2, 3, 4)
  local f = compile(function(u) u:mul_(w) return u['::2'] end)
  local function written() local b = lt.ones(4) return b, f(b) end
  local b, y = written()
  b:mul_(3)
  y:sum():backward()
  local c, z = written()
  z:mul_(2)
  c:sum():backward()
  return w.grad, y, b, z, c
end)
same("a returned view of a view that the call wrote follows writes through others", function(compile)
  local w, b = leaf(1, 2), lt.zeros(6)
  local f = compile(function(u) u['0:2'] = w return u['0:2'] end)
  local y = f(b['2:5'])
  f(b['::2'])
  y:sum():backward()
  return w.grad, y, b
end)
same("a buffer that was written and detached since, written through a returned view", function(compile)
  local w, b = leaf(1, 2), lt.zeros(2, 2)
  local y = compile(function(u) u[1] = u[0] * w return u:t() end)(b['0:2'])
  b:detach_()
  y:add_(1)
  return b, y
end)
same("a view that the segment made in no_grad mode is refused", function(compile)
  local w, buf = lt.ones(3, 4, {requires_grad = true}), lt.ones(12)
  local function refused(make)
    local f = compile(function(w, buf)
      local m = lt.no_grad(function() return make(buf) end)
      m:mul_(w)
      return m
    end)
    local ok, message = pcall(f, w, buf)
    return ok, ok or message:match("mul_: .*")
  end
  local ok, message = refused(function(b) return (b * 2):view(3, 4) end)
  return ok, message, refused(function(b) return b:view(3, 4) end)
end)
same("a view that was made in no_grad mode is refused", function(compile)
  local w, base = leaf(1, 2), lt.zeros(2, 2)
  local v = lt.no_grad(function() return base[0] end)
  return compile(function(v) v:add_(w) return v end)(v)
end)
same("a view of a leaf is refused, also where code for other views is there", function(compile)
  local w, l = leaf(1, 2), lt.zeros(2, 2):requires_grad_(true)
  local f = compile(function(v) v:add_(w) return v * 1 end)
  f((l * 1)[0])
  return f(l[0])
end)

-- -- hooks, and gradients of results by results

same("a hook registered after its tensor was used", function(compile)
  local w = leaf(1, 2, 3)
  local f = compile(function()
    local h = w * 2
    local y = (h * h):sum()
    h:register_hook(function(g) return g * 0.5 end)
    return y
  end)
  f():backward()
  return w.grad
end)
same("a hook of the caller, registered and removed", function(compile)
  local w, seen = leaf(1, 2, 3), {}
  local f = compile(function(x) local h = w * x return h, (h * h):sum() + w:sum() end)
  for i = 1, 3 do
    local h, l = f(lt.full({3}, i))
    local handle = h:register_hook(function(g) seen[#seen + 1] = show(g) return g * 10 end)
    if i == 2 then handle.remove() end
    l:backward()
  end
  return w.grad, table.concat(seen, ", ")
end)
same("retain_grad of a result that others depend on", function(compile)
  local w = leaf(1, 2, 3)
  local a, b, l = compile(function() local a = w * 2 local b = a:tanh() return a, b, (a * b):sum() end)()
  a:retain_grad()
  b:retain_grad()
  l:backward()
  return a.grad, b.grad, w.grad
end)
same("a tensor with hooks goes into a compiled function", function(compile)
  lt.reset()
  local w = leaf(1, 2, 3)
  local a = w * 2
  a:register_hook(function(g) return g * 3 end)
  w:register_hook(function(g) return g + 1 end)
  compile(function(a, w) return (a * w):sum() end)(a, w):backward()
  return w.grad, h.breaks()
end)
same("the gradient of one result by another", function(compile)
  local w = leaf(1, 2, 3)
  local h, l = compile(function() local h = w:exp() return h, (h * h * w):sum() end)()
  local g = lt.grad(l, h, {retain_graph = true})
  return g, lt.grad(l, {w, h})
end)
same("gradients of gradients by results", function(compile)
  local w = leaf(1, 2, 3)
  local h, l = compile(function() local h = w:sin() return h, (h * h * h):sum() end)()
  local g = lt.grad(l, h, {create_graph = true})
  g:sum():backward()
  return g:detach(), w.grad
end)
same("lt.grad runs the hooks on its way only", function(compile)
  local w, x, seen = leaf(1, 2), leaf(3, 4), {}
  local a, l = compile(function() local a = w * 2 return a, (a * x):sum() end)()
  a:register_hook(function(g) seen[#seen + 1] = show(g) end)
  return lt.grad(l, x, {retain_graph = true}), #seen, lt.grad(l, w), #seen
end)
same("leaves' hooks run in eager's order", function(compile)
  local w, x, seen = leaf(1, 2), leaf(3, 4), {}
  local l = compile(function() local a = w * 2 local b = x + 1 return (a * b):sum() end)()
  w:register_hook(function() seen[#seen + 1] = "w" end)
  x:register_hook(function() seen[#seen + 1] = "x" end)
  l:backward()
  return table.concat(seen)
end)
same("a part that nothing was saved of after all the others were freed", function(compile)
  local w, x = leaf(1, 2), leaf(3, 4)
  local a, b = compile(function() return (w * w):sum(), x + 1 end)()
  a:backward()
  b:sum():backward()
  b:sum():backward()
  return w.grad, x.grad
end)
same("a hook that lays the gradient otherwise", function(compile)
  local w = lt.arange(6):to("float32"):view(2, 3):requires_grad_(true)
  local a, l = compile(function() local a = w * 2 return a, (a * a):sum() end)()
  a:register_hook(function(g) return g:t():contiguous():t() end)
  l:backward()
  return w.grad
end)

same("lt.grad by an input that a result does not depend on", function(compile)
  local w, v, seen = leaf(1, 2), leaf(3, 4), 0
  local f = compile(function() local a, b = v * w, w + 1 return a, b, (b * b):sum() end)
  local _, b, l = f()
  b:register_hook(function() seen = seen + 1 end)
  local g = lt.grad(l, v, {allow_unused = true, retain_graph = true})
  l:backward()
  return g, lt.grad(l, v, {allow_unused = true}), seen, w.grad
end)
same("lt.grad by what another segment's other result depends on", function(compile)
  local w, v, seen = leaf(1, 2), leaf(3, 4), 0
  local b, l = compile(function()
    local a, b = v * 2, w + 1
    lt.graph_break()
    local c = b * 3
    return c, (c * b):sum(), a
  end)()
  b:register_hook(function() seen = seen + 1 end)
  return lt.grad(l, v, {allow_unused = true}), seen
end)
same("lt.grad runs no hooks of leaves that it is not asked for", function(compile)
  local w, v, seen = leaf(1, 2), leaf(3, 4), 0
  w:register_hook(function() seen = seen + 1 end)
  local l = compile(function() return (w * v):sum() end)()
  return lt.grad(l, v), seen
end)
same("hooks run up to what refuses", function(compile)
  local w, v, seen = leaf(1, 2), leaf(3, 4), 0
  local a, l = compile(function()
    local a = w * v
    a:sum():backward()
    return a, (a * 2):sum()
  end)()
  a:register_hook(function() seen = seen + 1 end)
  local b, m = compile(function()
    local b, c = w * v, v + 1
    b:sum():backward()
    return b, (b * c):sum()
  end)()
  b:register_hook(function() seen = seen + 10 end)
  return pcall(l.backward, l), seen, pcall(m.backward, m), seen
end)
same("hooks of a result whose history was freed", function(compile)
  local w, seen = leaf(1, 2), {}
  local a = compile(function() return w:exp() end)()
  a:register_hook(function() seen[#seen + 1] = "before" end)
  a:sum():backward()
  a:register_hook(function() seen[#seen + 1] = "after" end)
  local again = (a * 2):sum()
  return pcall(again.backward, again), table.concat(seen, " ")
end)
same("retain_grad, twice and before hooks and writes", function(compile)
  local w = leaf(1, 2)
  local f = compile(function() local a = w * 2 return a, a:exp() end)
  local a, b = f()
  a:retain_grad()
  a:retain_grad()
  b:retain_grad()
  a:register_hook(function(g) return g * 3 end)
  b:mul_(2)
  b:sum():backward()
  return a.grad, b.grad, w.grad
end)

-- -- what eager can still differentiate, and what it refuses

same("a step that returns its loss and an activation that saved nothing", function(compile)
  local b = leaf(1, 1, 1)
  local loss, h = compile(function(x)
    local h = x + b
    local loss = (h * h):sum()
    loss:backward()
    return loss, h
  end)(lt.ones(3))
  h:sum():backward()
  return b.grad, loss, h, pcall(loss.backward, loss)
end)
same("parts of a result are differentiated one after the other", function(compile)
  local w, x = leaf(1, 2), leaf(3, 4)
  local a, b = compile(function() return (w * w):sum(), (x * x):sum() end)()
  a:backward()
  b:backward()
  return w.grad, x.grad, pcall(a.backward, a)
end)
same("what only backward refuses is refused by backward", function(compile)
  local w = leaf(1, 2)
  local p = compile(function() local e = w:exp() local q = e * e e:add_(1) return q end)()
  return p, pcall(p.backward, p, lt.ones(2))
end)
same("a result that backward refuses, beside a constant", function(compile)
  local w, x = leaf(1, 2), leaf(3, 4)
  local row = x * 1
  local picked = compile(function(w, row)
    row:mul_(row)
    local ids = lt.tensor({0, 1}, {dtype = "int64"})
    w:tanh():sum():backward()
    return row:index_select(0, ids)
  end)(w, row)
  return picked, row.requires_grad, pcall(row.backward, row, lt.ones(2))
end)
-- A backward that raises has released what lies before the node that raised.
local function refused_twice(name, build)
  for _, retained in ipairs {false, true} do
    same(name .. (retained and ", retained" or ""), function(compile)
      local results, texts = {build(compile)}, {}
      for i = 1, 2 * #results do
        local y = results[(i - 1) % #results + 1]
        texts[i] = select(2, pcall(y.backward, y, lt.ones(2), {retain_graph = retained}))
      end
      return unpack(texts)
    end)
  end
end
refused_twice("a refusal within a call", function(compile)
  local w, x = leaf(1, 2), lt.tensor {1, 2}
  return compile(function() local p = x * w x:add_(1) return p * 2 end)()
end)
refused_twice("a refusal of the first node", function(compile)
  local w, x = leaf(1, 2), lt.tensor {1, 2}
  return compile(function() local p = x * w x:add_(1) return p, p:tanh() end)()
end)
refused_twice("a refusal of a write after the call", function(compile)
  local w, x = leaf(1, 2), lt.tensor {1, 2}
  local y, z = compile(function() local p = x * w return p:tanh(), p * 2 end)()
  x:add_(1)
  return y, z
end)
refused_twice("refusals that share a node", function(compile)
  local w, x = leaf(1, 2), lt.tensor {1, 2}
  return compile(function()
    local p = (x * w):tanh()
    x:add_(1)
    return p * 2, p * 3
  end)()
end)
refused_twice("a refusal after a hook", function(compile)
  local w, x = leaf(1, 2), lt.tensor {1, 2}
  local y, z = compile(function() local p = (x * w):tanh() return p, p:exp() end)()
  y:register_hook(function(g) error("no") end)
  return z
end)
refused_twice("a refusal where the call has run a backward", function(compile)
  local w, x = leaf(1, 2), lt.tensor {1, 2}
  return compile(function()
    (w * w):sum():backward()
    local p = x * w
    x:add_(1)
    return p * 2
  end)()
end)
same("a write to what backward does not read", function(compile)
  local w, x, b = leaf(1, 2), lt.ones(2), lt.ones(2)
  local y = compile(function() return (w * x + b):sum() end)()
  b:add_(1)
  y:backward()
  return w.grad
end)
same("a write to what backward reads", function(compile)
  local w, x = leaf(1, 2), lt.ones(2)
  local y = compile(function() return (w * x):sum() end)()
  x:add_(1)
  x:add_(1)
  return pcall(y.backward, y)
end)
same("double backward through a function that writes a buffer", function(compile)
  local w, u = leaf(1, 2), lt.ones(2)
  local f = compile(function(x)
    lt.no_grad(function() u:mul_(0.5) u:add_(x) end)
    return (w * w * u):sum()
  end)
  f(lt.ones(2))
  local g = lt.grad(f(lt.ones(2)), w, {create_graph = true})
  ;(g * g):sum():backward()
  return w.grad, u
end)

-- -- the order in which gradients add up

same("a parameter that several segments use", function(compile)
  lt.manual_seed(3)
  local w, x = lt.randn(5, 5, {requires_grad = true}), lt.randn(5, 5)
  local f = compile(function()
    local a = (x:mm(w) + w):tanh()
    local b = a:mm(w) * w
    lt.graph_break()
    local c = (b + w):sin():mm(w)
    lt.graph_break()
    return (c * w + a:mm(w)):sum()
  end)
  local l = f() + (w * w * w):sum()
  l:backward()
  return w.grad
end)
same("a tensor that two compiled functions use", function(compile)
  lt.manual_seed(4)
  local w = lt.randn(4, 4, {requires_grad = true})
  local a = w * 1.1
  local f = compile(function(v) return (v * v):mm(v) + v end)
  local g = compile(function(v) return (v:tanh() * v + v):sum() end)
  ;(f(a):sum() + g(a) + (a * a):sum()):backward()
  return w.grad
end)

same("a result that backward refuses leads to others: their hooks run before the error, and none of them goes without it", function(compile)
  local texts = {}
  for _, wanted in ipairs {"h1", "h2", "w"} do
    local log = {}
    local f = compile(function(x, w)
      local h1 = x * w
      local h2 = h1 * 0.5
      lt.mul(h2, 2):sum():backward()
      h2:register_hook(function() log[#log + 1] = "hook" end)
      return (h1 * h2):sum(), h1, h2
    end)
    local w = leaf(1, 2, 3)
    local l, h1, h2 = f(lt.ones(3), w)
    local ok, g = pcall(lt.grad, l, ({h1 = h1, h2 = h2, w = w})[wanted], {allow_unused = true, retain_graph = true})
    texts[#texts + 1] = ("%s %s %s %s"):format(wanted, ok and show(g) or tostring(g):gsub("^[^ ]*:%d+: ", ""), #log,
      log[1])
  end
  return table.concat(texts, "; ")
end)

same("a hook on a view that was written sees what was computed of the view, not what was computed of its base",
  function(compile)
  local f = compile(function(w, u)
    local before = u[0]
    u:copy_(w * 1)
    return {view = u:mean(), row = u[1]:sum(), before = before:sum()}
  end)
  local texts = {}
  for _, is_view in ipairs {false, true, false} do
    for _, name in ipairs {"view", "row", "before", "base"} do
      local w = lt.tensor({{1, 2}, {3, 4}}, {requires_grad = true})
      local base = is_view and lt.zeros(3, 2) or lt.zeros(2, 2)
      local u, log = is_view and base["1:3"] or base, {}
      local results = f(w, u)
      u:register_hook(function(g) log[#log + 1] = g:sum():item() return g * 2 end)
      results.base = base:sum()
      results[name]:backward()
      texts[#texts + 1] = ("%s %s %s"):format(name, show(w.grad), table.concat(log, " "))
    end
  end
  return table.concat(texts, "; ")
end)

same("hooks on a view that is then written see nothing of what it becomes", function(compile)
  local texts = {}
  local writes = {
    function(u) u[0]:mul_(-1.5) end,
    function(u) lt.no_grad(function() u[0] = lt.tensor {5, 6} end) end,
  }
  for _, write in ipairs(writes) do
    local f = compile(function(w, u)
      write(u)
      return (u * w):sum()
    end)
    for _, case in ipairs {"no hook", "result", "view", "no hook"} do
      local w, log = lt.tensor({{1, 2}, {3, 4}}, {requires_grad = true}), {}
      local base = case == "view" and lt.cat {w, w * 2} or w * 2
      local u = case == "view" and base["1:3"] or base
      if case ~= "no hook" then u:register_hook(function(g) log[#log + 1] = show(g) return g * 0 end) end
      f(w, u):backward()
      texts[#texts + 1] = ("%s: %s %s"):format(case, show(w.grad), table.concat(log, " "))
    end
  end
  return table.concat(texts, "; ")
end)

same("hooks on the base of a view that is written see what was computed of the view", function(compile)
  local f = compile(function(w, b)
    local base = b * w
    local view = base:select(0, 1)
    lt.graph_break()
    view:mul_(3)
    lt.graph_break()
    base:retain_grad()
    base:register_hook(function(g) return g * 2 end)
    return base, (w * view):sum()
  end)
  local w = lt.tensor({{1, 2}, {3, 4}}, {requires_grad = true})
  local base, loss = f(w, lt.full({2, 2}, 2))
  loss:backward()
  return base.grad, w.grad
end)

same("a result whose history is spent leads to what it is made of, and to nothing else", function(compile)
  local f = compile(function(x, w1, w2)
    local h1 = x * w1
    local h2 = x + w2
    lt.mul(h1, 2):sum():backward()
    h1:retain_grad()
    h2 = h1:square()
    return (h1 * h2):sum(), h1
  end)
  local w1, w2 = leaf(1, 2, 3), leaf(4, 5, 6)
  local _, h1 = f(lt.ones(3), w1, w2)
  local other = lt.grad(h1, w2, {grad_outputs = lt.ones(3), allow_unused = true, retain_graph = true})
  local ok, message = pcall(lt.grad, h1, w1, {grad_outputs = lt.ones(3), allow_unused = true})
  return ("%s %s %s"):format(other, ok, ok or message:gsub("^[^ ]*:%d+: ", ""))
end)

same("a backward that is refused on its way has set what was retained up to there", function(compile)
  local w = leaf(1, 2, 3)
  local f = compile(function(x, s)
    local h1 = x * w
    local h2 = h1 - s
    lt.graph_break()
    lt.mul(h2, 2):sum():backward()
    h1:retain_grad()
    return (h1 * h2):sum(), h1
  end)
  local l, h1 = f(lt.ones(3), 0.5)
  local ok, message = pcall(l.backward, l)
  return ("%s %s %s %s"):format(ok, ok or message:gsub("^[^ ]*:%d+: ", ""), show(h1.grad), show(w.grad))
end)

h.finish()
