-- Tests register_post_accumulate_grad_hook(f): hooks of leaves that run after a backward has added to .grad; and the
-- order of hooks, some of which remove or register hooks. As in PyTorch, eagerly and compiled.
local lt = require "lutra"
local h = require "harness"
local test, equal, raises, text, as_eager = h.test, h.equal, h.raises, h.with_grad, h.as_eager
local kName = "register_post_accumulate_grad_hook"

local function leaf(...) return lt.tensor({...}, {requires_grad = true}) end

test("it runs after .grad has the sum, and is given the tensor", function()
  local p, order = leaf(1, 2), {}
  p:register_post_accumulate_grad_hook(function(q)
    order[#order + 1] = ("sum %s %g"):format(q == p, q.grad[0]:item())
  end)
  p:register_hook(function(g) order[#order + 1] = "gradient" return g * 2 end);
  (p * p):sum():backward();
  (p * p + p):sum():backward()
  equal(table.concat(order, ", "), "gradient, sum true 4, gradient, sum true 10")
  local root = leaf(3):sum():detach():requires_grad_()
  local seen
  root:register_post_accumulate_grad_hook(function(q) seen = q.grad:item() end)
  root:backward()
  equal(seen, 1)
end)

test("what it must not be", function()
  raises("post accumulate grad hooks cannot be registered on non-leaf tensors", function()
    (leaf(1) * 2):register_post_accumulate_grad_hook(print)
  end)
  raises("the tensor does not require grad", function() lt.ones(2):register_post_accumulate_grad_hook(print) end)
  raises("argument 'hook' must be a function, got nil", function() leaf(1):register_post_accumulate_grad_hook(nil) end)
  for _, value in ipairs {3, false, lt.ones(2)} do
    local p = leaf(1, 2)
    local handle = p:register_post_accumulate_grad_hook(function() return value end)
    raises("Tensor post accumulate grad hooks should return nil.", function() p:sum():backward() end)
    equal(table.concat(p.grad:totable(), " "), "1 1")
    handle.remove()
    p:sum():backward()
    equal(table.concat(p.grad:totable(), " "), "2 2")
  end
  raises("a hook fails", function()
    local p = leaf(1)
    p:register_post_accumulate_grad_hook(function() error("a hook fails", 0) end)
    p:sum():backward()
  end)
end)

test("the backwards that run it", function()
  local p, q, n = leaf(1, 2), leaf(3, 4), 0
  p:register_post_accumulate_grad_hook(function() n = n + 1 end)
  lt.grad((p * q):sum(), p)
  equal(n, 0, "lt.grad");
  (p * q):sum():backward(nil, {inputs = {q}})
  equal(n, 0, "inputs without it");
  (p * q):sum():backward(nil, {inputs = {p}})
  equal(n, 1, "inputs with it");
  (p * q):sum():backward(nil, {inputs = {q, p, p}})
  equal(n, 2, "inputs with it twice")
  lt.no_grad(function() p:mul_(2) end);
  (p:detach() * q):sum():backward()
  equal(n, 2, "a backward that does not come to it")
end)

test("hooks that remove and register others", function()
  for _, name in ipairs {"register_hook", kName} do
    local p, order, handles = leaf(1, 2), {}, {}
    handles[1] = p[name](p, function()
      order[#order + 1] = "a"
      handles[2].remove()
      p[name](p, function() order[#order + 1] = "new" end)
    end)
    handles[2] = p[name](p, function() order[#order + 1] = "b" end)
    for _ = 1, 3 do
      p:sum():backward()
      collectgarbage()
      order[#order + 1] = "|"
    end
    equal(table.concat(order, " "), "a b | a new | a new new |", name)
  end
  local w, order, second = leaf(1, 2), {}, nil
  local y = w * 2
  y:register_hook(function() order[#order + 1] = "a" second.remove() end)
  second = y:register_hook(function(g) order[#order + 1] = "b" return g * 3 end)
  y:sum():backward {retain_graph = true}
  y:sum():backward()
  equal(table.concat(order, " "), "a b a")
  equal(table.concat(w.grad:totable(), " "), "8 8")
end)

test("a hook whose turn has not come is removed before it", function()
  local u, v, order, handles = leaf(1), leaf(2), {}, {}
  handles[1] = u:register_hook(function() order[#order + 1] = "u" handles[2].remove() end)
  handles[2] = v:register_hook(function() order[#order + 1] = "v" handles[1].remove() end);
  (u * v):sum():backward()
  equal(#order, 1)
end)

test("a removed hook is let go of after its turn", function()
  local held = setmetatable({}, {__mode = "v"})
  local p = leaf(1)
  do
    local kept, handle = {}, nil
    held[1] = kept
    handle = p:register_post_accumulate_grad_hook(function() kept.n = 1 handle.remove() end)
    p:sum():backward()
  end
  collectgarbage()
  collectgarbage()
  equal(held[1], nil)
end)

-- make(w, v, notes) gives a function of x; what three calls leave is eager's.
local function compare(make, graphs, broken)
  local function told(wrap)
    local w, v, notes, all = leaf(0.5, -1, 2), leaf(1, 3, -2), {}, {}
    local f = wrap(make(w, v, notes))
    for i = 1, 4 do
      for _, result in ipairs {pcall(f, lt.tensor({1, 2, 3}) * i)} do all[#all + 1] = text(result) end
      for _, note in ipairs(notes) do all[#all + 1] = text(note) end
      all[#all + 1] = text(w) .. text(v)
    end
    return table.concat(all, ", ")
  end
  local made, breaks = as_eager(told)
  if graphs then equal(made, graphs, "graphs") end
  if graphs then equal(breaks, broken or 0, "breaks") end
end

local function sgd(p)
  lt.no_grad(function() p:sub_(p.grad * 0.1) end)
  p.grad = nil
end

test("an optimiser in hooks is a part of the graph", function()
  compare(function(w, v)
    w:register_post_accumulate_grad_hook(sgd)
    v:register_post_accumulate_grad_hook(sgd)
    return function(x)
      local loss = (w * x - v):square():sum()
      loss:backward()
      return loss:detach()
    end
  end, 1)
end)

test("captured frames run it as eager code does", function()
  compare(function(w, v, notes)
    w:register_post_accumulate_grad_hook(function(p) notes[#notes + 1] = p.grad:sum() end)
    w:register_hook(function(g) return g * 2 end)
    v:register_hook(function(g) notes[#notes + 1] = g:sum() end)
    return function(x) (w * x * v):sum():backward() end
  end)
  compare(function(w, v)
    w:register_post_accumulate_grad_hook(function(p) p.grad:mul_(3) end)
    w:register_post_accumulate_grad_hook(function(p) p.grad = p.grad + v.grad end)
    return function(x) (w * x * v):sum():backward() return w.grad * 2 end
  end)
  compare(function(w)
    w:register_post_accumulate_grad_hook(function() return 3 end)
    return function(x) (w * x):sum():backward() end
  end)
  compare(function(w, _, notes)
    return function(x)
      local handle = w:register_post_accumulate_grad_hook(function(p) notes[#notes + 1] = p.grad * 1 end);
      (w * x):sum():backward()
      handle.remove()
    end
  end)
  compare(function(w, v)
    w:register_post_accumulate_grad_hook(sgd)
    return function(x)
      local loss = (w * x * v):sum()
      loss:backward(nil, {inputs = {v}})
      return (w * x):sum():backward(nil, {inputs = {w}})
    end
  end)
  compare(function(w)
    local n = 0
    w:register_post_accumulate_grad_hook(function() n = n + 1 end)
    return function(x) return lt.grad((w * x):sum(), w), n end
  end)
end)

test("it comes and goes between calls", function()
  local function told(wrap)
    local w, all, handle, n = leaf(0.5, -1, 2), {}, nil, 0
    local f = wrap(function(x) (w * x):sum():backward() return w.grad * 1 end)
    for i = 1, 8 do
      if i == 3 then handle = w:register_post_accumulate_grad_hook(function(p) p.grad:mul_(2) end) end
      if i == 5 then handle.remove() end
      if i == 6 then handle = w:register_post_accumulate_grad_hook(function() n = n + 1 end) end
      if i == 7 then w:register_hook(function(g) return g * 5 end) end
      all[#all + 1] = text(f(lt.tensor({1, 2, 3}) * i)) .. n
    end
    return table.concat(all, ", ")
  end
  as_eager(told)
end)

test("a backward outside of compiled code, and one that is compiled itself", function()
  for _, own in ipairs {false, true} do
    local function told(wrap)
      local w, notes, all = leaf(0.5, -1, 2), {}, {}
      w:register_post_accumulate_grad_hook(function(p) notes[#notes + 1] = text(p.grad) end)
      w:register_post_accumulate_grad_hook(sgd)
      local f = wrap(function(x) return (w * x):tanh():sum() end)
      for i = 1, 4 do
        f(lt.tensor({1, 2, 3}) * i):backward()
        all[#all + 1] = text(w)
      end
      return table.concat(all, ", ") .. table.concat(notes, ", ")
    end
    lt.config.compiled_autograd = own
    as_eager(told)
    lt.config.compiled_autograd = false
  end
end)

test("hooks of a captured frame that remove others", function()
  compare(function(w, _, notes)
    return function(x)
      local y, second = w * x, nil
      y:register_hook(function(g) notes[#notes + 1] = g * 2 second.remove() end)
      second = y:register_hook(function(g) notes[#notes + 1] = g * 3 return g * 5 end)
      y:sum():backward {retain_graph = true}
      y:sum():backward()
    end
  end)
end)

test("inputs are counted from 1", function()
  local a, b = leaf(1), lt.ones(1)
  raises("backward: input 2 does not require grad", function() a:sum():backward(nil, {inputs = {a, b}}) end)
  raises("grad: input 1 appears to not have been used", function() lt.grad(a:sum(), {leaf(2)}) end)
end)

h.finish()
