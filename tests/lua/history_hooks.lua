-- Hooks and kept gradients of tensors with a history that come into a compiled function.
local lt = require "lutra"
local h = require "harness"
local test, equal, breaks = h.test, h.equal, h.breaks

local function text(v)
  if type(v) ~= "userdata" then return tostring(v) end
  local all = {}
  for i, e in ipairs(v:detach():reshape(-1):totable()) do all[i] = ("%.9g"):format(e) end
  return "{" .. table.concat(all, " ") .. "}" .. (v.grad and " grad " .. text(v.grad) or "")
end

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
  local want = told(function(f) return f end)
  lt.reset()
  equal(told(lt.compile), want)
  if not wanted then return end
  equal(breaks(), 0, "breaks")
  equal(lt.counters().stats.unique_graphs, wanted, "graphs")
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
  local want = told(function(f) return f end)
  lt.reset()
  equal(told(lt.compile), want)
end)

h.finish()
