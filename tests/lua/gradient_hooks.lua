-- Tests retain_grad() and register_hook(f) of tensors that a captured frame makes: gradients, the values that hooks get
-- and change, and the number of graphs.
local lt = require "lutra"
local h = require "harness"
local test, equal, breaks, text, as_eager = h.test, h.equal, h.breaks, h.with_grad, h.as_eager

-- make() gives a function of x. Its results, gradients included, and what it noted are eager's, in three calls.
local function compare(make)
  local function told(wrap)
    local w = lt.tensor({0.5, -1, 2}, {requires_grad = true})
    local notes, all = {}, {}
    local f = wrap(make(w, notes))
    for i = 1, 3 do
      local results = {pcall(f, lt.tensor({1, 2, 3}) * i)}
      for _, v in ipairs(results) do all[#all + 1] = text(v) end
      for _, v in ipairs(notes) do all[#all + 1] = text(v) end
      all[#all + 1] = text(w.grad)
    end
    return table.concat(all, ", ")
  end
  return as_eager(told)
end

local function unbroken(make)
  local graphs, broken = compare(make)
  equal(broken, 0, "breaks")
  return graphs
end

test("a gradient that is kept is read in the frame", function()
  unbroken(function(w)
    return function(x)
      local y = w * x
      y:retain_grad()
      w.grad = nil;
      (y * y):sum():backward()
      return y.grad, y.grad * 2
    end
  end)
end)

test("a tensor that keeps its gradient leaves the frame", function()
  unbroken(function(w)
    return function(x)
      local y = w * x
      y:retain_grad()
      y:retain_grad()
      local loss = (y * y):sum()
      w.grad = nil
      loss:backward()
      return y, loss
    end
  end)
  compare(function(w)
    local inner = lt.compile(function(x)
      local y = w * x
      y:retain_grad()
      return y, (y * y):sum()
    end)
    return lt.disable(function(x)
      local y, loss = inner(x)
      loss:backward()
      return y, loss
    end)
  end)
  unbroken(function(w)
    return function(x)
      local y = w * x
      y:retain_grad()
      return y
    end
  end)
end)

test("a gradient is kept over two backwards", function()
  unbroken(function(w)
    return function(x)
      local y = w * x
      y:retain_grad()
      local loss = (y * y):sum()
      loss:backward {retain_graph = true}
      local first = y.grad:clone()
      loss:backward()
      return first, y
    end
  end)
end)

test("leaves keep their gradients anyway", function()
  unbroken(function(w)
    return function(x)
      w:retain_grad();
      (w * x):sum():backward()
    end
  end)
  compare(function() return function(x) return (x * 2):retain_grad() end end)
end)

test("a hook sees and changes a gradient", function()
  unbroken(function(w)
    return function(x)
      local y, seen = w * x, nil
      y:register_hook(function(g) seen = g return g * 10 end)
      y:register_hook(function(g) seen = seen + g end)
      w.grad = nil;
      (y * y):sum():backward()
      return seen
    end
  end)
end)

test("hooks write tables and variables of others", function()
  local function scaled(g) return g * 2 end
  unbroken(function(w, notes)
    return function(x)
      local y = (w * x):tanh()
      y:register_hook(scaled)
      y:register_hook(function(g) notes[#notes + 1] = g:sum() end)
      w.grad = nil
      y:sum():backward()
    end
  end)
end)

test("a hook that was removed runs no more", function()
  unbroken(function(w)
    return function(x)
      local y, n = w * x, 0
      local first = y:register_hook(function() n = n + 1 end)
      y:register_hook(function() n = n + 10 end)
      first.remove()
      w.grad = nil
      y:sum():backward()
      return n
    end
  end)
  unbroken(function(w)
    return function(x)
      local y = w * x
      y:register_hook(function(g) return g * 3 end).remove()
      return y
    end
  end)
end)

-- make() gives a function of x, whose first result is differentiated outside, twice. What is seen is eager's; returns
-- how many graphs and breaks that took.
local function outside(make)
  local function told(wrap)
    local w = lt.tensor({0.5, -1, 2}, {requires_grad = true})
    local all, notes = {}, {}
    local f = wrap(make(w, notes))
    for i = 1, 3 do
      local results = {pcall(f, lt.tensor({1, 2, 3}) * i)}
      if results[1] then
        for _, options in ipairs {{retain_graph = true}, {}, {}} do
          local _, message = pcall(results[2].backward, results[2], options)
          all[#all + 1] = tostring(message)
        end
      end
      for _, v in ipairs(results) do
        all[#all + 1] = type(v) == "function" and text(v()) or text(v)
      end
      for _, v in ipairs(notes) do all[#all + 1] = text(v) end
      all[#all + 1] = w.grad and text(w.grad) or "none"
    end
    return table.concat(all, "\n")
  end
  local want = told(function(f) return f end)
  for _, verify in ipairs {0, 1} do
    lt.reset()
    lt.config.verify = verify
    local got = told(lt.compile)
    lt.config.verify = 0
    equal(got, want)
  end
  return lt.counters().stats.unique_graphs, breaks()
end

local function one_graph(make)
  local graphs, broken = outside(make)
  equal(broken, 0, "breaks")
  equal(graphs, 1, "graphs")
end

test("a backward outside runs the hook, which is registered behind the graph", function()
  one_graph(function(w, notes)
    return function(x)
      local y = w * x
      y:register_hook(function(g) notes[#notes + 1] = g return g * 2 end)
      return (y * y):sum()
    end
  end)
  one_graph(function(w, notes)
    local function note(g) notes[#notes + 1] = g end
    return function(x)
      local y = w * x
      local z = (y * y):tanh()
      z:register_hook(note)
      y:register_hook(function(g) note(g) return g * 0.5 end)
      y:register_hook(note)
      y:retain_grad()
      y:register_hook(function(g) note(g) return g + 1 end)
      return (z + y):sum(), y
    end
  end)
  one_graph(function(w)
    return function(x)
      local y = w * x
      y:register_hook(function(g) return g * 2 end)
      return y:exp():sum(), w * y, y
    end
  end)
end)

test("hooks of backwards outside share variables", function()
  one_graph(function(w)
    return function(x)
      local n, y = 0, w * x
      y:register_hook(function(g) n = n + g:sum():item() end)
      return (y * y):sum(), function() n = n + 0.5 return n end
    end
  end)
  local graphs = outside(function(w)
    return function(x)
      local n, y = 0, w * x
      y:register_hook(function(g) n = n + g:sum():item() end)
      lt.graph_break()
      n = n + 100
      return (y * y):sum(), function() n = n + 0.5 return n end
    end
  end)
  equal(graphs, 2)
  one_graph(function(w, notes)
    local n = 0
    local function count() n = n + 1 notes[#notes + 1] = n end
    local function callee(y) y:register_hook(count) return y * 3 end
    return function(x)
      local loss = callee(w * x):sum()
      return loss
    end
  end)
end)

test("hooks of backwards outside that change, fail or never run", function()
  one_graph(function(w)
    return function(x)
      local y = w * x
      y:register_hook(function() error("a hook fails", 0) end)
      return (y * y):sum()
    end
  end)
  one_graph(function(w)
    return function(x)
      local y = w * x
      y:register_hook(function(g) return g:sum() end)
      return (y * y):sum()
    end
  end)
  one_graph(function(w, notes)
    return function(x)
      local y, dead = w * x, w + x
      dead:register_hook(function(g) notes[#notes + 1] = g end)
      y:register_hook(function(g) notes[#notes + 1] = g end).remove()
      return (y * y):sum()
    end
  end)
  one_graph(function(w, notes)
    return function(x)
      local y = (w * x):narrow(0, 0, 0)
      y:register_hook(function(g) notes[#notes + 1] = g:sum() end)
      return (y * y):sum()
    end
  end)
  outside(function(w)
    local function twice(g) return g * 2 end
    local function thrice(g) return g * 3 end
    local hook = twice
    return function(x)
      local y = w * x
      y:register_hook(hook)
      hook = hook == twice and thrice or twice
      return (y * y):sum()
    end
  end)
  outside(function(w)
    return function(x)
      local y = lt.no_grad(function() return w * x end)
      y:register_hook(function(g) return g * 2 end)
      return (w * y):sum()
    end
  end)
  outside(function(w)
    return function(x)
      local y = w * x
      y:register_hook(function(g) return g * 2 end)
      y:mul_(3)
      return (y * y):sum(), y
    end
  end)
end)

test("second gradients pass hooks of backwards outside", function()
  local function told(wrap)
    local w, all = lt.tensor({0.5, -1, 2}, {requires_grad = true}), {}
    local f = wrap(function(x)
      local y = w * x
      y:register_hook(function(g) return g * w end)
      return (y * y * y):sum()
    end)
    for i = 1, 2 do
      local g = lt.grad(f(lt.tensor({1, 2, 3}) * i), {w}, nil, {create_graph = true})
      g = type(g) == "table" and g[1] or g
      g:sum():backward()
      all[#all + 1] = text(g) .. text(w.grad)
    end
    return table.concat(all, " ")
  end
  as_eager(told)
  equal(breaks(), 0)
end)

test("a hook whose tensor is no more what it was, or whose handle is kept, ends the graph", function()
  compare(function(w)
    return function(x)
      local y = w * x
      y:register_hook(function(g) return g * 2 end)
      y:retain_grad()
      y:mul_(3)
      return (y * y):sum(), y
    end
  end)
  compare(function(w, notes)
    return function(x)
      local y = w * x
      local handle = y:register_hook(function(g) notes[#notes + 1] = g return g * 2 end)
      local loss = (y * y):sum()
      loss:backward {retain_graph = true}
      return loss, type(handle.remove)
    end
  end)
  compare(function(w)
    return function(x)
      local y = w * x
      y:register_hook(function(g) lt.graph_break() return g * 2 end)
      y:sum():backward()
      return x
    end
  end)
  compare(function(w)
    return function(x)
      local y = w * x
      y:register_hook(function() return 3 end)
      y:sum():backward()
      return x
    end
  end)
end)

test("a gradient that goes on beyond the frame passes a hook", function()
  local function told(wrap)
    local leaf = lt.ones({3}, {requires_grad = true})
    local f = wrap(function(w)
      local y = w * 2
      y:register_hook(function(g) return g * 3 end)
      local z = (y * y):sum()
      z:backward()
    end)
    for _ = 1, 3 do f(leaf:clone()) end
    return text(leaf.grad)
  end
  equal(told(function(f) return f end), "{72 72 72}")
  equal(told(lt.compile), "{72 72 72}")
end)

test("a hook that gives another shape is an error", function()
  local function f(w)
    local y = w * 2
    local handle = y:register_hook(function(g) return g:sum() end)
    local ok, message = pcall(function() (y * y):sum():backward() end)
    handle:remove()
    return ok, tostring(message):match("register_hook: .*")
  end
  local want = "register_hook: a hook of a gradient of shape {3} gave one of shape {}"
  for _, run in ipairs {f, lt.compile(f)} do
    local ok, message = run(lt.tensor({1, 2, 3}, {requires_grad = true}))
    equal(ok, false)
    equal(message, want)
  end
end)

test("outputs of a user's backend need not depend on each other", function()
  -- Each output is computed for itself: no gradient passes the output that has the hook.
  local function backend(graph)
    if not tostring(graph):find("sum(", 1, true) then return function(w, x) return w * x end end
    if not tostring(graph):find("input 'w'", 1, true) then return function(y) return (y * y):sum() end end
    return function(w, x) return (w * x * (w * x)):sum(), w * x end
  end
  local mark = {
    hook = function(y) y:register_hook(function(g) return g * 2 end) end,
    retain = function(y) y:retain_grad() end,
  }
  for name, gradients in pairs {hook = "{2 -16 72}", retain = "{1 -8 36} {1 -4 12}"} do
    local function told(wrap)
      local w = lt.tensor({0.5, -1, 2}, {requires_grad = true})
      local f = wrap(function(x)
        local y = w * x
        mark[name](y)
        return (y * y):sum(), y
      end)
      local all = {}
      for i = 1, 3 do
        w.grad = nil
        local loss, y = f(lt.tensor({1, 2, 3}))
        loss:backward()
        all[i] = text(w.grad) .. (y.grad and " " .. text(y.grad) or "")
      end
      return all
    end
    for _, b in ipairs {"native", "eager", "aot_eager", backend} do
      lt.reset()
      local all = told(function(f) return lt.compile(f, {backend = b}) end)
      for i = 1, 3 do equal(all[i], gradients, name .. " with " .. tostring(b)) end
      equal(lt.counters().stats.unique_graphs, b == backend and 2 or 1)
    end
  end
end)

test("a user's backend has the hooks that run within its graph", function()
  lt.reset()
  local w = lt.tensor({0.5, -1, 2}, {requires_grad = true})
  local f = lt.compile(function(x)
    local y = w * x
    y:register_hook(function(g) return g * 2 end)
    local loss = (y * y):sum()
    loss:backward()
    return loss:detach()
  end, {backend = function() end})
  f(lt.tensor({1, 2, 3}))
  equal(text(w.grad), "{2 -16 72}")
  equal(breaks(), 0)
end)

-- A gradient that a hook keeps does not share the memory of the leaf's .grad, which the program writes later.
local function apart(name, make)
  test("in the frame: " .. name, function()
    local function told(wrap)
      lt.manual_seed(1)
      local a, b, kept = lt.randn({4}, {requires_grad = true}), lt.randn({4}, {requires_grad = true}), {}
      local f, all = wrap(make(a, b, kept)), {}
      for i = 1, 4 do
        a.grad, b.grad = nil, nil
        local p = f(lt.ones(4) * i)
        a.grad:mul_(3)
        if b.grad then b.grad:mul_(5) end
        all[i] = text(a.grad) .. text(b.grad) .. text(p) .. text(p and p.grad) .. text(kept[1]) .. text(kept[2])
      end
      return table.concat(all, ", ")
    end
    as_eager(told)
  end)
end

test("kept gradients of two tensors share no memory", function()
  local a = lt.ones(3, {requires_grad = true})
  local p = a * 2
  local q = p + 1
  p:retain_grad()
  q:retain_grad()
  local seen
  q:register_hook(function(g) seen = g end)
  q:sum():backward()
  q.grad:mul_(3)
  equal(text(p.grad) .. text(seen) .. text(a.grad), text(lt.ones(3)) .. text(lt.ones(3)) .. text(lt.full({3}, 2)))
end)

apart("a gradient that is kept", function(a, b)
  return function()
    local p = a + b
    p:retain_grad()
    p:sin():sum():backward()
    return p
  end
end)

apart("a hook keeps its gradient", function(a, b, kept)
  return function()
    local p = a + b
    p:register_hook(function(g) kept[1] = g end)
    p:sin():sum():backward()
    return p
  end
end)

apart("a hook's gradient is returned", function(a)
  return function()
    local seen
    local p = a + 0
    p:register_hook(function(g) seen = g end)
    p:sin():sum():backward()
    return seen
  end
end)

apart("a hook gives a tensor of the frame", function(a)
  return function(x)
    local y, p = x * 2, a * 1
    p:register_hook(function() return y end)
    p:sin():sum():backward()
    return y
  end
end)

apart("the backward of a function keeps its gradient", function(a, _, kept)
  local Same = lt.autograd.Function:extend "Same"
  function Same.forward(_, x) return x * 1 end
  function Same.backward(_, g)
    kept[1] = g
    return g
  end
  return function() Same.apply(a):sin():sum():backward() end
end)

apart("the backward of a function gives what it saved", function(a)
  local Saved = lt.autograd.Function:extend "Saved"
  function Saved.forward(ctx, x, y)
    ctx:save_for_backward(y)
    return x * 1
  end
  function Saved.backward(ctx) return ctx.saved_tensors[1] end
  return function(x)
    local y = x * 2
    Saved.apply(a, y):sin():sum():backward()
    return y
  end
end)

apart("a hook of a module keeps its gradients", function(a, b, kept)
  local net = lt.nn.Sequential(lt.nn.Tanh(), lt.nn.Sigmoid())
  net[1]:register_full_backward_hook(function(_, inputs, outputs) kept[1], kept[2] = inputs[1], outputs[1] end)
  return function() net(a + b):sin():sum():backward() end
end)

test("lt.grad of a result while another one is looked at", function()
  local function doubles(t) t:register_hook(function(g) return g * 2 end) end
  for _, look in ipairs {function(t) t:retain_grad() end, doubles} do
    local function told(wrap)
      lt.manual_seed(1)
      local x, y = lt.randn({2}, {requires_grad = true}), lt.randn({2}, {requires_grad = true})
      local e, a, b = wrap(function(x, y)
        local a = x + y
        return a:exp(), a, a * 2
      end)(x, y)
      look(a)
      local ge, gy = lt.grad(e:sum() + b:sin():sum(), {e, y})
      return table.concat(ge:totable(), " ") .. ", " .. table.concat(gy:totable(), " ")
    end
    as_eager(told)
  end
end)

h.finish()
