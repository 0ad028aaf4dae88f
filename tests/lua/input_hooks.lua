-- Tests hooks of tensors that are passed to a compiled function which computes gradients: hooks from before the call,
-- hooks that it registers, and gradients that retain_grad keeps.
local lt = require "lutra"
local h = require "harness"
local test, equal, breaks, text, as_eager = h.test, h.equal, h.breaks, h.with_grad, h.as_eager

-- make(w, notes, v) gives a function of x and, perhaps, what runs before each call. Results, gradients and notes are
-- eager's in `calls` calls. Returns how many graphs and breaks that took: a list that grows, as notes do, takes two.
local function compare(make, calls)
  local function told(wrap)
    local w = lt.tensor({0.5, -1, 2}, {requires_grad = true})
    local v = lt.tensor({1, 3, -2}, {requires_grad = true})
    local notes, all = {}, {}
    local f, before = make(w, notes, v)
    f = wrap(f)
    for i = 1, calls or 4 do
      if before then before(i) end
      for _, result in ipairs {pcall(f, lt.tensor({1, 2, 3}) * i)} do all[#all + 1] = text(result) end
      for _, note in ipairs(notes) do all[#all + 1] = text(note) end
      all[#all + 1] = text(w) .. text(v)
      w.grad, v.grad = nil, nil
    end
    return table.concat(all, ", ")
  end
  return as_eager(told)
end

local function graphs(wanted, make, calls)
  local made, broken = compare(make, calls)
  equal(broken, 0, "breaks")
  equal(made, wanted, "graphs")
end

test("a parameter with a hook is a part of the graph", function()
  graphs(1, function(w)
    w:register_hook(function(g) return g * 2 end)
    return function(x) (w * x):square():sum():backward() end
  end)
  graphs(2, function(w, notes)
    w:register_hook(function(g) notes[#notes + 1] = g:sum() end)
    return function(x) (w * x):square():sum():backward() end
  end)
  graphs(1, function(w, notes, v)
    local n = 0
    w:register_hook(function(g) n = n + 1 return g:clamp(-1, 1) end)
    v:register_hook(function(g) n = n * 2 + 1 return g / 2 end)
    return function(x)
      (w * x * v):square():sum():backward()
      return n
    end
  end)
end)

test("several hooks run in their order", function()
  graphs(2, function(w, notes)
    w:register_hook(function(g) return g * 3 end)
    w:register_hook(function(g) notes[#notes + 1] = g end)
    w:register_hook(function(g) return g + 1 end)
    return function(x) (w * x):square():sum():backward() end
  end)
  local function same(g) return g * g end
  graphs(1, function(w)
    w:register_hook(same)
    w:register_hook(function(g) return g + 0.5 end)
    w:register_hook(same)
    return function(x) (w * x):square():sum():backward() end
  end)
end)

test("gradients are clipped by hooks, in one graph a train step", function()
  local function told(wrap)
    lt.manual_seed(3)
    local net = lt.nn.Sequential(lt.nn.Linear(4, 8), lt.nn.Tanh(), lt.nn.Linear(8, 1))
    local limit = 0.05
    for _, p in ipairs(net:parameters()) do
      p:register_hook(function(g) return g:clamp(-limit, limit) end)
    end
    local optimizer = lt.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
    local step = wrap(function(x, y)
      optimizer:zero_grad()
      local loss = (net(x) - y):square():mean()
      loss:backward()
      optimizer:step()
      return loss:detach()
    end)
    local all = {}
    for i = 1, 8 do
      if i == 5 then limit = 0.02 end
      all[i] = text(step(lt.randn({5, 4}), lt.randn({5, 1})))
    end
    for _, p in ipairs(net:parameters()) do all[#all + 1] = text(p) end
    return table.concat(all, "\n")
  end
  as_eager(told)
  equal(breaks(), 0, "breaks")
end)

test("hooks that come and go are met by other graphs", function()
  graphs(2, function(w)
    local handle = w:register_hook(function(g) return g * 2 end)
    local function before(i) if i == 3 then handle.remove() end end
    return function(x) (w * x):square():sum():backward() end, before
  end)
  graphs(3, function(w)
    local first
    local function before(i)
      if i == 2 then first = w:register_hook(function(g) return g * 2 end) end
      if i == 3 then w:register_hook(function(g) return g + 1 end) end
      if i == 5 then first.remove() end
      if i == 6 then w:register_hook(function(g) return g * 2 end) end
    end
    return function(x) (w * x):square():sum():backward() end, before
  end, 4)
  -- The first one goes: the second one is the first of those that run.
  graphs(2, function(w)
    local first = w:register_hook(function(g) return g * 2 end)
    w:register_hook(function(g) return g + 1 end)
    local function before(i) if i == 3 then first.remove() end end
    return function(x) (w * x):square():sum():backward() end, before
  end)
  -- A removed hook is replaced by another function in the same place, perhaps at the same address.
  compare(function(w)
    local handle
    local function before(i)
      if handle then handle.remove() end
      handle = nil
      collectgarbage()
      handle = w:register_hook(i % 2 == 0 and function(g) return g * 2 end or function(g) return g - i end)
    end
    return function(x) (w * x):square():sum():backward() end, before
  end, 8)
end)

test("closures of one function are told apart", function()
  local function times(k) return function(g) return g * k end end
  compare(function(w)
    local handle
    local function before(i)
      if handle then handle.remove() end
      handle = w:register_hook(times(i))
    end
    return function(x) (w * x):square():sum():backward() end, before
  end, 6)
  graphs(1, function(w, _, v)
    w:register_hook(times(2))
    v:register_hook(times(3))
    return function(x) (w * x * v):sum():backward() end
  end)
end)

test("hooks read what changes outside", function()
  local made = compare(function(w, _, v)
    local scale, box = 1, {by = lt.ones(3)}
    w:register_hook(function(g) return g * scale + box.by end)
    local function before(i)
      scale = i / 2
      box.by = i % 2 == 0 and v:detach() or lt.ones(3) * i
    end
    return function(x) (w * x):square():sum():backward() end, before
  end, 6)
  assert(made <= 3, made)
end)

test("hooks of leaves beside other gradients", function()
  graphs(2, function(w, notes, v)
    w:register_hook(function(g) notes[#notes + 1] = g return g * 2 end)
    v:register_hook(function(g) notes[#notes + 1] = g * 5 end)
    return function(x)
      local y = w * x + v
      y:register_hook(function(g) notes[#notes + 1] = g * 7 return g + 1 end)
      y:square():sum():backward()
    end
  end)
  graphs(1, function(w, _, v)
    w:register_hook(function(g) return g * 2 end)
    return function(x) return lt.grad((w * x * v):square():sum(), {w, v}) end
  end)
  graphs(1, function(w)
    w:register_hook(function(g) return g * 2 end)
    return function(x)
      local loss = (w * x):square():sum()
      loss:backward {retain_graph = true}
      loss:backward()
      return w.grad * 1
    end
  end)
  graphs(1, function(w)
    w:register_hook(function(g) return g * w end)
    return function(x)
      local g = lt.grad((w * x):pow(3):sum(), {w}, nil, {create_graph = true})
      g = type(g) == "table" and g[1] or g
      g:sum():backward()
    end
  end)
end)

test("a backward outside of what one within has met", function()
  for _, within in ipairs {true, false} do
    local function told(wrap)
      local w, notes = lt.tensor({0.5, -1, 2}, {requires_grad = true}), {}
      w:register_hook(function(g) notes[#notes + 1] = text(g) return g * 2 end)
      local f = wrap(function(x)
        if within then (w * x):sum():backward() end
        return (w * x):square():sum()
      end)
      for i = 1, 3 do
        f(lt.tensor({1, 2, 3}) * i):backward()
        notes[#notes + 1] = text(w)
      end
      return table.concat(notes, " ")
    end
    as_eager(told)
    equal(breaks(), 0)
  end
end)

test("hooks of inputs that break, fail or give what they must not", function()
  compare(function(w)
    w:register_hook(function(g) lt.graph_break() return g * 2 end)
    return function(x) (w * x):square():sum():backward() return w.grad * 3 end
  end)
  compare(function(w)
    w:register_hook(function() error("a hook fails", 0) end)
    return function(x) (w * x):square():sum():backward() end
  end)
  for _, value in ipairs {3, "text", {}, false} do
    compare(function(w)
      w:register_hook(function() return value end)
      return function(x) (w * x):square():sum():backward() end
    end)
  end
  compare(function(w)
    w:register_hook(function(g) return g:sum() end)
    return function(x) (w * x):square():sum():backward() end
  end)
  compare(function(w, notes)
    local handle
    handle = w:register_hook(function(g)
      handle.remove()
      notes[#notes + 1] = g
      return g * 2
    end)
    return function(x) (w * x):square():sum():backward() return x + 1 end
  end)
  compare(function(w)
    w:register_hook(function(g)
      for i = 1, 100 do if g:sum():item() > i then g = g / 2 end end
      return g
    end)
    return function(x) (w * x):square():sum():backward() return x + 1 end
  end)
  compare(function(w)
    w:register_hook(print and lt.neg)
    w:register_hook(lt.abs)
    return function(x) (w * x):square():sum():backward() end
  end)
end)

test("hooks that write, and what they keep", function()
  for _, write in ipairs {"mul_", "add_", "div_"} do
    graphs(1, function(w, _, v)
      w:register_hook(function(g) g[write](g, 3) end)
      v:register_hook(function(g) return g[write](g, 0.5) end)
      return function(x) (w * x + v):square():sum():backward() end
    end)
    compare(function(w, _, v)
      w:register_hook(function(g) g[write](g, 3) end)
      return function(x) (w + v + x):sum():backward() end
    end)
  end
  graphs(1, function(w, notes)
    w:register_hook(function(g) notes[1] = g end)
    return function(x)
      (w * x):square():sum():backward()
      w.grad:mul_(3)
      notes[2] = notes[1] + w.grad
    end
  end)
  compare(function(w, notes)
    w:register_hook(function(g)
      notes[1] = w.grad and w.grad * 1 or "none"
      lt.no_grad(function() w:add_(g) end)
    end)
    return function(x)
      (w * x):square():sum():backward();
      (w * x):sum():backward()
      return w * 1
    end
  end)
  compare(function(w, notes)
    local n = 0
    w:register_hook(function(g)
      n = n + 1
      if n < 4 then w:register_hook(function(inner) notes[#notes + 1] = inner * n return inner + 1 end) end
      return g * 2
    end)
    return function(x) (w * x):square():sum():backward() end
  end)
  compare(function(w)
    w:register_hook(function(g) return g:double() end)
    return function(x) (w * x):square():sum():backward() end
  end)
end)

test("what a hook keeps is not the memory of .grad, which is written afterwards", function()
  for _, gives in ipairs {false, true} do
    local function told(wrap)
      local w, v = lt.ones(3, {requires_grad = true}), lt.ones(3, {requires_grad = true})
      local kept, all = {lt.zeros(3)}, {}
      w:register_hook(function(g) kept[1] = g end)
      v:register_hook(function(g) return gives and kept[1] or g end)
      local f = wrap(function(x) (w * x + v):sin():sum():backward() end)
      for i = 1, 4 do
        w.grad, v.grad = nil, nil
        f(lt.tensor({1, 2, 3}) * i)
        w.grad:mul_(3)
        v.grad:mul_(5)
        all[i] = text(w) .. text(v) .. text(kept[1])
      end
      return table.concat(all, ", ")
    end
    equal(select(2, as_eager(told)), 0, "breaks")
  end
end)

test("another leaf's .grad is not the memory that a hook sees", function()
  for _, backwards in ipairs {1, 2} do
    local function told(wrap)
      local w, v = lt.ones(3, {requires_grad = true}), lt.ones(3, {requires_grad = true})
      local kept, all = {lt.zeros(3)}, {}
      v:register_hook(function(g) kept[1] = g:narrow(0, 0, 2) end)
      local f = wrap(function(x)
        local y = w + v + x
        for _ = 1, backwards do y:sin():sum():backward {retain_graph = true} end
      end)
      for i = 1, 4 do
        f(lt.tensor({1, 2, 3}) * i)
        w.grad:mul_(3)
        all[i] = text(w) .. text(v) .. text(kept[1])
        w.grad = nil
      end
      return table.concat(all, ", ")
    end
    equal(select(2, as_eager(told)), 0, "breaks")
  end
end)

test("hooks of leaves in callees, loops, coroutines, checkpoints, no_grad", function()
  graphs(1, function(w, _, v)
    w:register_hook(function(g) return g * 2 end)
    local function loss(x) return lt.checkpoint(function(y) return (w * y):tanh() * v end, x):sum() end
    return function(x) loss(x):backward() end
  end)
  compare(function(w, _, v)
    w:register_hook(function(g) return g * 2 end)
    return function(x)
      for i = 1, 3 do (w * x * v * i):square():sum():backward() end
      return coroutine.wrap(function() (w * v):sum():backward() return w.grad * 1 end)()
    end
  end)
  compare(function(w, _, v)
    w:register_hook(function(g) return g * 2 end)
    local f = function(x)
      local y = lt.no_grad(function() return w * x end);
      (y * v):sum():backward()
      return w.grad == nil
    end
    return function(x) return coroutine.wrap(f)(x) end
  end)
  compare(function(w)
    w:register_hook(function(g) return g * 2 end)
    return function(x)
      local loss = (w * x):square():sum()
      lt.graph_break()
      loss:backward()
      return w.grad + 1
    end
  end)
  compare(function(w, _, v)
    w:register_hook(function(g) return g * 2 end)
    return function(x)
      local ok, message = pcall(function()
        (w * x * v):sum():backward()
        error("later", 0)
      end)
      return ok, message, w.grad * 1
    end
  end)
end)

test("a frozen leaf keeps its hooks", function()
  compare(function(w, _, v)
    w:register_hook(function(g) return g * 2 end)
    local function before(i) w:requires_grad_(i % 2 == 0) end
    return function(x) (w * x * v):square():sum():backward() return x + 1 end, before
  end)
  compare(function(w, _, v)
    w:register_hook(function(g) return g * 2 end)
    w:requires_grad_(false)
    return function(x)
      w:requires_grad_(true);
      (w * x * v):square():sum():backward()
      w:requires_grad_(false)
    end
  end)
end)

test("a hook of a leaf that the function registers and removes", function()
  graphs(1, function(w)
    local function double(g) return g * 2 end
    return function(x)
      local handle = w:register_hook(double);
      (w * x):square():sum():backward()
      handle.remove()
    end
  end)
  graphs(2, function(w, notes)
    w:register_hook(function(g) return g + 1 end)
    return function(x)
      local loss = (w * x):square():sum()
      loss:backward {retain_graph = true}
      local handle = w:register_hook(function(g) notes[#notes + 1] = g return g * 2 end)
      loss:backward()
      handle.remove()
    end
  end)
end)

test("a hook of a leaf that the function registers stays", function()
  graphs(1, function(w)
    return function(x)
      w:register_hook(function(g) return g * 2 end);
      (w * x):square():sum():backward()
    end
  end, 1)
  compare(function(w, notes)
    return function(x)
      w:register_hook(function(g) notes[#notes + 1] = #notes return g * 2 end);
      (w * x):square():sum():backward()
    end
  end)
  compare(function(w, notes)
    return function(x)
      w:register_hook(function(g) notes[#notes + 1] = #notes return g * 2 end)
      return x * 2
    end, function() (w * 3):sum():backward() end
  end)
end)

test("hooks of leaves are collected with them", function()
  local seen = setmetatable({}, {__mode = "k"})
  local f = lt.compile(function(w, x) (w * x):square():sum():backward() end)
  for i = 1, 3 do
    local w = lt.tensor({1, 2, 3}, {requires_grad = true})
    local hook = function(g) return g * i + w:detach() * 0 end
    seen[hook], seen[w] = true, true
    w:register_hook(hook)
    f(w, lt.ones(3))
    equal(text(w.grad), text(lt.tensor({2, 4, 6}) * i))
  end
  collectgarbage()
  collectgarbage()
  equal(next(seen), nil)
end)

-- When the hook of a leaf runs, another leaf already has its gradient of this backward.
test("a hook reads, takes away and replaces the gradient of another leaf", function()
  local ways = {
    reads = function(_, v) return v.grad and 2 or 1 end,
    adds = function(_, v) return v.grad:sum():item() > 0 and 3 or 1 end,
    removes = function(_, v) v.grad = nil return 1 end,
    replaces = function(w, v) v.grad = w.detach(w) * 7 return 1 end,
  }
  for name, way in pairs(ways) do
    local function run(wrap)
      local w, v = lt.ones(1, {requires_grad = true}), lt.ones(1, {requires_grad = true})
      v.grad = lt.tensor {100.}
      local kept = v.grad
      w:register_hook(function(g) return g * way(w, v) end)
      local step = wrap(function(x) (w * x * v):sum():backward() end)
      for i = 1, 3 do step(lt.ones(1) * i) end
      return text(w) .. text(v) .. text(kept)
    end
    equal(run(lt.compile), run(function(f) return f end), name)
  end
end)

h.finish()
