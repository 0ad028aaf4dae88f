-- retain_grad() and register_hook(f) of tensors that a captured frame makes: gradients, what hooks see and change, and
-- how many graphs that takes.
local lt = require "lutra"
local h = require "harness"
local test, equal, breaks = h.test, h.equal, h.breaks

local function text(v)
  if type(v) == "userdata" then
    local all = {}
    for i, e in ipairs(v:detach():reshape(-1):totable()) do all[i] = ("%.9g"):format(e) end
    return "{" .. table.concat(all, " ") .. "}" .. (v.grad and " grad " .. text(v.grad) or "")
  end
  return tostring(v)
end

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
  local want = told(function(f) return f end)
  lt.reset()
  equal(told(lt.compile), want)
  return lt.counters().stats.unique_graphs, breaks()
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

test("where a backward outside would run the hook, the graph ends", function()
  compare(function(w, notes)
    return function(x)
      local y = w * x
      y:register_hook(function(g) notes[#notes + 1] = g return g * 2 end)
      return (y * y):sum()
    end
  end)
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

h.finish()
