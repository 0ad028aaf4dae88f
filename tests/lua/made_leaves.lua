-- Tests leaves that a compiled function makes and returns: parameters of a new module, tensors that require grad. Their
-- gradients are needed outside, and yet the function is one graph.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal
local nn = lt.nn

-- make(frame) gives the text of what is seen: the same for f and lt.compile(f), in so many graphs.
local function check(name, make, graphs)
  test(name, function()
    equal(h.graphs_of(function(frame)
      lt.manual_seed(7)
      return make(frame)
    end), graphs or 1, "graphs")
  end)
end

local function all(...)
  local parts = {...}
  for i = 1, select("#", ...) do parts[i] = lt.is_tensor(parts[i]) and h.text(parts[i]) or tostring(parts[i]) end
  return table.concat(parts, "\n")
end
local function parameters(module)
  local parts = {}
  for i, p in ipairs(module:parameters()) do parts[i] = all(p, p.grad, p.is_leaf) end
  return table.concat(parts, "\n")
end
local x = lt.tensor {1, 2, 3}

check("a leaf and a loss of it", function(frame)
  local f = frame(function(x)
    local w = lt.ones(3, {requires_grad = true})
    return (w * w * x):sum(), w
  end)
  local loss, w = f(x)
  local other, v = f(x)
  loss:backward()
  local first = all(w.grad, v.grad)
  other:backward()
  return all(first, w.grad, v.grad, w.is_leaf)
end)

check("a new module and a loss of it", function(frame)
  local f = frame(function(x)
    local m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    return m(x:expand(5, 3)):square():mean(), m
  end)
  local loss, m = f(x)
  loss:backward()
  local opt = lt.optim.SGD(m:parameters(), {lr = 0.1})
  opt:step()
  return all(parameters(m), m(x:expand(2, 3)))
end)

check("a module that is trained a step, and kept with its optimiser", function(frame)
  local f = frame(function(x)
    local m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    local opt = lt.optim.Adam(m:parameters(), {lr = 0.1})
    m(x):sum():backward()
    opt:step()
    opt:zero_grad()
    return m(x):sum(), m, opt
  end)
  local loss, m, opt = f(x)
  loss:backward()
  opt:step()
  return parameters(m)
end)

check("a module that is made by the first call", function(frame)
  local kept = {}
  local f = frame(function(x)
    if not kept.m then kept.m = nn.Linear(3, 3) end
    return kept.m(x):sum()
  end)
  for _ = 1, 3 do f(x):backward() end
  return parameters(kept.m)
end, 2)

check("gradients of gradients", function(frame)
  local f = frame(function(x)
    local w = lt.full({3}, 2, {requires_grad = true})
    local m = nn.Linear(3, 3)
    return (m(w * w) * x):square():sum(), w, m
  end)
  local loss, w, m = f(x)
  local g = lt.grad(loss, w, {create_graph = true})
  g:square():sum():backward()
  return all(g, w.grad, m.weight.grad)
end)

check("a leaf that was written is refused", function(frame)
  local f = frame(function(x)
    local w = lt.ones(3, {requires_grad = true})
    return (w * w * x):sum(), w
  end)
  local loss, w = f(x)
  lt.no_grad(function() w:add_(1) end)
  local ok, message = pcall(loss.backward, loss)
  return all(ok, message:gsub("^[^ ]*:%d+: ", ""), w, w.grad)
end)

check("hooks of a leaf, and a backward within", function(frame)
  local seen = {}
  local f = frame(function(x)
    local w = lt.ones(3, {requires_grad = true})
    w:register_hook(function(g) seen[#seen + 1] = g return g * 2 end)
    w:register_hook(function(g) seen[#seen + 1] = g + 1 end)
    lt.mul(w, w):sum():backward()
    return w, (w * x * w):sum()
  end)
  local w, loss = f(x)
  loss:backward()
  return all(w.grad, unpack(seen))
end, 2)

check("a result of a leaf that nobody has", function(frame)
  local seen = {}
  local f = frame(function(x)
    local w, v = lt.ones(3, {requires_grad = true}), lt.zeros(5):narrow(0, 1, 3):requires_grad_()
    local y, z = w * 2, v + 1
    y:register_hook(function(g) seen[#seen + 1] = g end)
    z:register_hook(function(g) seen[#seen + 1] = g + 1 end)
    return (y * y * x):sum(), z:sum()
  end)
  local loss, other = f(x)
  loss:backward()
  other:backward()
  return all(#seen, unpack(seen))
end)

check("a leaf that does not require grad any more", function(frame)
  local seen = {}
  local f = frame(function(x)
    local w = lt.ones(3, {requires_grad = true})
    local y = w * w
    w:requires_grad_(false)
    y:register_hook(function(g) seen[#seen + 1] = g end)
    return (y * x):sum(), w
  end)
  local loss, w = f(x)
  loss:backward()
  local ok = pcall(loss.backward, loss)
  return all(ok, w, w.requires_grad, w.grad, unpack(seen))
end)

check("a leaf that has a hook and no loss", function(frame)
  local f = frame(function(x)
    local w = lt.ones(3, {requires_grad = true})
    w:register_hook(function(g) return g * 2 end)
    return w, x * 2
  end)
  local w, y = f(x)
  local loss = (w * y):sum()
  loss:backward()
  return all(w.grad)
end, 2)

check("views of a leaf, and a leaf in the memory of an argument", function(frame)
  local f = frame(function(x)
    local w, d = lt.ones(3, {requires_grad = true}), x:detach():requires_grad_()
    local v = w:narrow(0, 0, 2)
    return (w * w * d):sum() + v:sum(), w, v, d
  end)
  local x = lt.tensor {1, 2, 3}
  local loss, w, v, d = f(x)
  loss = loss + (v * 2):sum()
  loss:backward()
  lt.no_grad(function() v:mul_(3) d:mul_(2) end)
  return all(w, w.grad, v, d, d.grad, x)
end)

check("a leaf that required grad when its gradient was computed", function(frame)
  local f = frame(function(x)
    local w = lt.ones(3, {requires_grad = true});
    (w * x):sum():backward()
    w:requires_grad_(false)
    return w
  end)
  local w = f(x)
  return all(w.requires_grad, w.grad)
end)

-- requires_grad of w at its use decides where the history leads; requires_grad now, whether its gradient is kept.
for _, before in ipairs {true, false} do
  for _, after in ipairs {true, false} do
    check(("a leaf that required grad when it was used, %s before, %s after"):format(before, after), function(frame)
      local w = lt.ones(3, {requires_grad = before})
      local f = frame(function(x)
        w:requires_grad_(true)
        local y = w * w
        w:requires_grad_(after)
        return (y * x):sum()
      end)
      local parts = {}
      for _, outside in ipairs {false, true} do
        w:requires_grad_(before)
        local loss = f(x)
        parts[#parts + 1] = all(w.requires_grad)
        w:requires_grad_(outside)
        for _ = 1, 2 do
          local ok, message = pcall(loss.backward, loss)
          parts[#parts + 1] = all(ok, message and message:gsub("^[^ ]*:%d+: ", ""), w.grad)
        end
        w.grad = nil
      end
      return table.concat(parts, "\n")
    end)
  end
end

check("a leaf behind what cannot be differentiated again", function(frame)
  local f = frame(function(x)
    local w, v = lt.ones(3, {requires_grad = true}), lt.ones(3, {requires_grad = true})
    local y = w * w * x
    y:sum():backward()
    return y:sum(), w, v
  end)
  local loss, w, v = f(x)
  local parts = {}
  for _, leaf in ipairs {w, v} do
    local ok, message = pcall(lt.grad, loss, {leaf}, {allow_unused = true, retain_graph = true})
    parts[#parts + 1] = all(ok, message and message:gsub("^[^ ]*:%d+: ", ""))
  end
  return table.concat(parts, "\n")
end)

test("a leaf goes with what it is kept by", function()
  local f = lt.compile(function(x)
    local w, other = lt.ones(3, {requires_grad = true}), lt.ones(3, {requires_grad = true})
    return (w * x):sum(), w, other
  end)
  local gone = setmetatable({}, {__mode = "v"})
  local loss
  loss, gone.w, gone.other = f(x)
  collectgarbage() collectgarbage()
  loss:backward()
  equal(gone.other, nil)
end)

test("the grad mode of the call", function()
  local programs = {
    function(x) local w = lt.ones(3, {requires_grad = true}) return w * x, w end,
    function(x) local w = lt.ones(3, {requires_grad = true}) return (w * x):sum() end,
    function(x) local y = x * 1 y:requires_grad_() return y * 2 end,
    function(x) local w = lt.ones(3, {requires_grad = true}) return w * x, (w * x).requires_grad end,
  }
  for i, program in ipairs(programs) do
    for _, first in ipairs {true, false} do
      lt.reset()
      local f = lt.compile(program)
      for _, on in ipairs {first, not first, first, not first} do
        local function call() return (f(lt.ones(3))).requires_grad end
        local y
        if on then y = call() else y = lt.no_grad(call) end
        h.equal(y, on, i)
      end
    end
  end
end)

test("a leaf that requires no more grad before it is used, in the next segment", function()
  local function program(s)
    local y, leaf, plain = x * s, x:mul(s):requires_grad_(), lt.zeros(3):requires_grad_()
    plain:requires_grad_(false)
    lt.graph_break()
    leaf:requires_grad_(false)
    local weight = lt.ones(3):requires_grad_()
    y = (y * weight) * leaf
    return (y * y):sum(), weight, leaf
  end
  local function gradients(f)
    local loss, weight, leaf = f(2)
    loss:backward()
    equal(leaf.requires_grad, false)
    equal(leaf.grad, nil)
    return weight.grad:tolist()
  end
  h.deep(gradients(lt.compile(program)), gradients(program), 0)
end)

test("a leaf's gradient where the history of other leaves is spent", function()
  local w = lt.randn({3}, {requires_grad = true})
  local function program()
    local y, leaf = w * x, lt.ones(3, {requires_grad = true})
    y:square():sum():backward()
    y = y + leaf[0]
    lt.graph_break()
    return (y * y):sum(), leaf
  end
  for _, f in ipairs {program, lt.compile(program)} do
    local loss, leaf = f()
    local got = lt.grad(loss, leaf, {retain_graph = true}):tolist()
    h.near(got[1], (2 * (w * x + 1)):sum():item(), 1e-5)
    h.raises("a second time", loss.backward, loss)
  end
end)

test("the view of a base whose history backward refuses is written", function()
  local w, v = lt.randn({4}, {requires_grad = true}), lt.randn({4}, {requires_grad = true})
  local function program(a)
    local y = (a + w):sigmoid()
    y["::, 1"] = 0.125
    local loss = (a - v):square():sum()
    loss:backward()
    return y:t()
  end
  for _, f in ipairs {program, lt.compile(program)} do
    local y = f(lt.ones(3, 4))
    y:mul_(2)
    h.deep(y[1]:tolist(), {0.25, 0.25, 0.25}, 0)
    h.raises("modified by an inplace operation", function() y:sum():backward() end)
  end
end)

h.finish()
