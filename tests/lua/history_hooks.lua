-- Tests hooks and kept gradients of inputs with a history of compiled functions, and roots of lt.grad.
local lt = require "lutra"
local h = require "harness"
local test, equal, text, as_eager = h.test, h.equal, h.with_grad, h.as_eager

-- f is given what has a history, and its first result is differentiated outside, or it does so itself.
local function with_history(wanted, make)
  local function told(wrap)
    local w, notes, all = lt.tensor({0.5, -1, 2}, {requires_grad = true}), {}, {}
    local f = wrap(make(notes))
    for i = 1, 4 do
      local x = (w * i):tanh()
      local results = {pcall(f, x)}
      if type(results[2]) == "userdata" and results[2].requires_grad then
        local _, message = pcall(results[2].backward, results[2])
        all[#all + 1] = tostring(message)
      end
      for _, v in ipairs(results) do all[#all + 1] = text(v) end
      for _, v in ipairs(notes) do all[#all + 1] = text(v) end
      all[#all + 1] = text(x) .. text(w)
      w.grad = nil
    end
    return table.concat(all, ", ")
  end
  local made, broken = as_eager(told)
  if not wanted then return end
  equal(broken, 0, "breaks")
  equal(made, wanted, "graphs")
end

test("an input with a history keeps its gradient, or gets a hook", function()
  with_history(1, function()
    return function(x)
      x:retain_grad()
      return x:square():sum()
    end
  end)
  with_history(1, function()
    return function(x)
      x:retain_grad()
      x:retain_grad()
      return x:square():sum(), x
    end
  end)
  with_history(1, function(notes)
    return function(x)
      x:register_hook(function(g) notes[#notes + 1] = g return g * 2 end)
      x:retain_grad()
      x:register_hook(function(g) return g + 1 end)
      return x:square():sum()
    end
  end)
  with_history(1, function()
    return function(x)
      x:register_hook(function(g) return g * 2 end).remove()
      return x:square():sum()
    end
  end)
end)

test("an input with a history and hooks, whose gradient is computed or which is written", function()
  with_history(nil, function(notes)
    return function(x)
      x:register_hook(function(g) notes[#notes + 1] = g return g * 2 end)
      x:retain_grad()
      x:square():sum():backward()
    end
  end)
  with_history(nil, function(notes)
    return function(x)
      x:register_hook(function(g) notes[#notes + 1] = g return g * 2 end)
      return lt.grad(x:square():sum(), {x})
    end
  end)
  for _, look in ipairs {"retain_grad", "register_hook"} do
    local function double(g) return g * 2 end
    with_history(nil, function()
      return function(x)
        x[look](x, double)
        x:mul_(2)
        return x:square():sum()
      end
    end)
    with_history(nil, function()
      return function(x)
        x:mul_(2)
        x[look](x, double)
        return x:square():sum()
      end
    end)
    with_history(nil, function()
      return function(x)
        local part = x:narrow(0, 0, 2)
        part[look](part, double)
        return part:square():sum() + x:sum()
      end
    end)
  end
end)

test("hooks that a backward within does not come to end no graph", function()
  for _, prepare in ipairs {
    function(x, note) x:register_hook(note) end,
    function(x) x:retain_grad() end,
    function(_, note, part) part:register_hook(note) end,
    function(_, note, _, frozen)
      frozen:requires_grad_(true)
      frozen:register_hook(note)
      frozen:requires_grad_(false)
    end,
  } do
    local function told(wrap)
      local w, frozen = lt.tensor({0.5, -1, 2}, {requires_grad = true}), lt.ones(3)
      local notes, all = {}, {}
      local f = wrap(function(x, part, w, frozen)
        (w * w * frozen):sum():backward()
        return x:square():sum() + (part * 2):sum()
      end)
      for i = 1, 3 do
        local x = (w * i):tanh()
        local part = x:narrow(0, 0, 2)
        prepare(x, function(g) notes[#notes + 1] = text(g) return g * 2 end, part, frozen)
        f(x, part, w, frozen):backward()
        all[#all + 1] = text(x) .. text(part) .. text(w) .. text(frozen)
        w.grad = nil
      end
      return table.concat(all, " ") .. table.concat(notes, " ")
    end
    equal(select(2, as_eager(told)), 0, "breaks")
    equal(lt.counters().stats.unique_graphs, 1, "graphs")
  end
end)

test("a view that comes in gets a hook", function()
  local function told(wrap)
    local w, all = lt.tensor({0.5, -1, 2}, {requires_grad = true}), {}
    local f = wrap(function(part, write)
      part:register_hook(function(g) return g * 2 end)
      if write then part:mul_(3) end
      return part:square():sum()
    end)
    for i = 1, 4 do
      local y = w * i
      f(y:narrow(0, 1, 2), i > 2):backward()
      all[i] = text(w)
      w.grad = nil
    end
    return table.concat(all, ", ")
  end
  as_eager(told)
end)

-- As in PyTorch, hooks of a single root run and it retains its gradient, even if no requested input is behind it.
test("lt.grad that leads nowhere runs the hooks of its root", function()
  local function told(of, roots, inputs)
    local w, x = lt.tensor({0.5, -1, 2}, {requires_grad = true}), lt.ones(3, {requires_grad = true})
    local notes = {}
    local function note(name) return function(g) notes[#notes + 1] = name .. text(g) end end
    w:register_hook(note "w")
    local function gradients(w, x)
      local y = w * 2
      local s = y:sum()
      y:register_hook(note "y")
      s:register_hook(note "s")
      y:retain_grad()
      local all = {w = {w}, y = {y}, s = {s}, two = {s, y}}
      for i, root in ipairs(all[roots]) do all[i] = lt.ones_like(root) end
      local gx = lt.grad(all[roots], inputs == "x" and {x} or {x, w}, all, {allow_unused = true})
      return gx, y.grad
    end
    local gx, gy = of(gradients)(w, x)
    equal(gx, nil)
    return table.concat(notes, " ") .. " " .. text(gy)
  end
  for _, of in ipairs {function(f) return f end, lt.compile} do
    equal(told(of, "s", "x"), "s{1} nil")
    equal(told(of, "y", "x"), "y{1 1 1} {1 1 1}")
    equal(told(of, "w", "x"), "w{1 1 1} nil")
    equal(told(of, "two", "x"), " nil")
    equal(told(of, "s", "both"), "s{1} y{1 1 1} w{2 2 2} {1 1 1}")
  end
end)

test("what a root outside of the graph leads to", function()
  local function told(of)
    local w, x = lt.tensor({0.5, -1, 2}, {requires_grad = true}), lt.ones(3, {requires_grad = true})
    local notes = {}
    local y, z = of(function(w) return (w * 2):sin(), w + 1 end)(w)
    for i, t in ipairs {y, z} do t:register_hook(function(g) notes[#notes + 1] = i .. text(g) end) end
    z:retain_grad()
    local function try(f, ...)
      local ok, message = pcall(f, ...)
      notes[#notes + 1] = ok and "" or message:gsub("^[^ ]*:%d+: ", "")
    end
    try(lt.grad, y, {x}, {lt.ones(3)}, {allow_unused = true})
    try(lt.grad, z, {x}, {lt.ones(3)})
    try(z.backward, z, lt.ones(3), {inputs = {x}})
    try(y.backward, y, lt.ones(3))
    return table.concat(notes, " ") .. text(z) .. text(w) .. text(x)
  end
  local want = told(function(f) return f end)
  equal(told(lt.compile), want)
end)

test("what a function saved and gives as a gradient is no .grad that requires grad", function()
  local Keep = lt.autograd.Function:extend "Keep"
  function Keep.forward(ctx, x) ctx:save_for_backward(x) return x * 1 end
  function Keep.backward(ctx) return ctx.saved_tensors[1] end
  local x, v = lt.ones(3, {requires_grad = true}), lt.ones(3, {requires_grad = true})
  local y = v * 1
  y:register_hook(function() for _ = 1, 3 do collectgarbage() end end)  -- nobody but the engine has it any more
  local function make() return Keep.apply(x + 0):sum() + y:sum() end
  make():backward()
  equal(x.grad.requires_grad, false)
  local step = lt.compile(function(w)
    Keep.apply(w + 0):sum():backward()
    return w.grad.requires_grad
  end)
  for _ = 1, 3 do
    local w = lt.ones(3, {requires_grad = true})
    equal(step(w), false)
    equal(w.grad.requires_grad, false)
    equal(text(w.grad), text(lt.ones(3)))
  end
end)

h.finish()
