-- Tests data-dependent sizes (x[mask], nonzero, masked_select) in compiled functions that are differentiated outside.
-- The backward gets them from the run.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local F = lt.nn.functional

local graphs, breaks = h.graphs, h.breaks

-- Masks of 30 elements with so many set.
local function mask_of(n) return lt.arange(30):mul(7):remainder(30):lt(n) end

local programs = {
  mask = function(w, m) return (w * 2)[m]:exp():sum() end,
  ["two masks"] = function(w, m)
    local a = w.sin(w)[m]
    local b = a[a:sum(1):gt(0)]
    return (a * a):sum() + b:prod(1):sum()
  end,
  nonzero = function(w, m) return (w * 2):index_select(0, m:nonzero():squeeze(1)):pow(3):mean() end,
  masked_select = function(w, m) return (w:tanh() * 3):masked_select(m:unsqueeze(1)):square():sum() end,
  ["losses of some rows"] = function(w, m)
    return F.nll_loss(w:log_softmax(1)[m], lt.arange(30)[m]:remainder(4))
  end,
  ["a product of some rows"] = function(w, m)
    local rows = w[m]
    return (rows:mm(rows:t()):softmax(1):mm(rows) + rows:mean(0, true)):logsumexp({0, 1})
  end,
  ["results of such sizes"] = function(w, m)
    local rows = w[m]
    return rows * rows:size(0), rows:sum(0)
  end,
  ["random numbers of such sizes"] = function(w, m)
    local rows = w[m]
    return (F.dropout(rows, 0.5) * lt.rand_like(rows)):sum()
  end,
  ["the size as a number"] = function(w, m)
    local rows = w[m]
    return (rows * rows:size(0)):sum() / rows:size(0)
  end,
}

local start = lt.arange(120):view(30, 4):mul(0.37):sin()

-- Results and gradients of f for masks of so many elements.
local function outcome(f, counts, backward)
  lt.manual_seed(3)
  local seen = {}
  for _, n in ipairs(counts) do
    local w = start:clone():requires_grad_(true)
    local results = {f(w, mask_of(n))}
    for _, r in ipairs(results) do seen[#seen + 1] = r:detach():clone() end
    backward(results, w, seen)
    seen[#seen + 1] = w.grad
  end
  return seen
end

local function once(results)
  local loss = 0
  for _, r in ipairs(results) do loss = loss + (r * r):sum() end
  loss:backward()
end
local function twice(results)
  local loss = 0
  for _, r in ipairs(results) do loss = loss + r:sum() end
  loss:backward(nil, {retain_graph = true})
  loss:backward()
end
local function second(results, w, seen)
  local loss = 0
  for _, r in ipairs(results) do loss = loss + r:exp():sum() end
  local g = lt.autograd.grad(loss, w, {create_graph = true})
  if type(g) == "table" then g = g[1] end
  seen[#seen + 1] = g:detach():clone()
  g:square():sum():backward()
end
local function hooked(results, _, seen)
  for _, r in ipairs(results) do
    r:register_hook(function(g)
      seen[#seen + 1] = g:clone()
      return g * 2
    end)
  end
  once(results)
end

-- NaN is NaN.
local function same(a, b)
  return a.dtype == b.dtype and table.concat(a.shape, ",") == table.concat(b.shape, ",")
    and lt.logical_or(a:eq(b), lt.logical_and(a:ne(a), b:ne(b))):all():item()
end

local counts = {12, 7, 29, 30, 2, 12, 1, 0, 5}

local function compare(options, backward, most, without)
  for name, f in pairs(programs) do
    if name ~= without then
      lt.reset()
      local want = outcome(f, counts, backward)
      local got = outcome(lt.compile(f, options), counts, backward)
      equal(#got, #want)
      for i = 1, #want do truthy(same(got[i], want[i]), name .. ", " .. i) end
      if most then
        truthy(graphs() <= most, name .. ": " .. graphs() .. " graphs")
        equal(breaks(), 0, name)
      end
    end
  end
end

test("one graph, whatever size comes", function()
  for name, f in pairs(programs) do
    lt.reset()
    local g = lt.compile(f, {fullgraph = true})
    outcome(g, {12, 7, 29, 30, 2, 12, 5}, once)
    equal(graphs(), 1, name)
    equal(breaks(), 0, name)
    equal(lt.counters().cache.lost_sizes, 0, name)
  end
end)

test("a backward outside", function() compare(nil, once) end)
test("two of them", function() compare(nil, twice) end)
test("a second derivative", function() compare(nil, second) end)
test("hooks of results", function() compare(nil, hooked) end)
test("backends", function()
  compare({backend = "eager"}, once)
  compare({backend = "aot_eager"}, once)
end)
test("code from the background", function() compare({wait = false}, once) end)

test("values that are computed again", function()
  for _, setting in ipairs {{"activation_memory_budget", 0}, {"activation_memory_budget", 0.5}, {"random_cut", 5}} do
    local before = lt.config[setting[1]]
    lt.config[setting[1]] = setting[2]
    compare(nil, once)
    compare(nil, second)
    lt.config[setting[1]] = before
  end
end)

test("a backward that is captured by itself", function()
  lt.config.compiled_autograd = true
  compare(nil, once)
  lt.config.compiled_autograd = false
end)

test("lt.config.verify", function()
  lt.config.verify = 1
  compare(nil, once)
  equal(lt.counters().verify.mismatches, 0)
  lt.config.verify = 0
end)

test("a train step that gives its loss", function()
  lt.reset()
  local w = start:clone():requires_grad_(true)
  local function step(m)
    w.grad = nil
    local loss = F.nll_loss(w:log_softmax(1)[m], lt.arange(30)[m]:remainder(4))
    loss:backward()
    return loss
  end
  local compiled = lt.compile(step, {fullgraph = true})
  for _, n in ipairs {12, 9, 20, 3} do
    local loss = compiled(mask_of(n))
    local grad = w.grad
    truthy(lt.equal(loss, step(mask_of(n))))
    truthy(lt.equal(grad, w.grad))
    h.raises("backward", function() loss:backward() end)
  end
  equal(graphs(), 1)
end)

test("an error names the sizes of its run", function()
  local function message(f, n)
    local x = lt.ones(n):requires_grad_(true)
    local y = x * 2
    local loss = f(y)
    y:add_(1)
    local ok, text = pcall(function() loss:backward() end)
    return not ok and text:match("operation: (.*)")
  end
  for name, f in pairs {
    ["a view of an input"] = function(y) local v = y:narrow(0, 0, 2) return (v * v):sum() end,
    ["a view that follows the input"] = function(y) local v = y:view(2, -1) return (v * v):sum() end,
  } do
    lt.reset()
    local g = lt.compile(f)
    for _, n in ipairs {6, 8, 10} do
      local want = message(f, n)
      truthy(want, name)
      equal(message(g, n), want, name)
    end
  end
end)

test("an error tells of the write and the run that it is about", function()
  local function message(f, x)
    local ok, text = pcall(f, x)
    return not ok and text:match("operation: (.*)") or ok
  end
  local function half(v) return v * v end
  local function double(v) return v * 2 end
  for name, f in pairs {
    ["of the forward"] = function(x) local z = x:exp() z:mul_(2) z:add_(1) return z:sum() end,
    ["of a view"] = function(x)
      local y = x * 2
      local z = (y:view(-1) * y:view(-1)):sum()
      y:add_(1)
      return z
    end,
    ["behind a break"] = function(x)
      local z = x:exp()
      z:mul_(2)
      lt.graph_break()
      z:add_(1)
      lt.graph_break()
      return z:mul_(3):sum()
    end,
    ["of an input"] = function(x)
      local y = x * 1
      y:add_(1)
      lt.graph_break()
      local z = y * y
      y:mul_(2)
      lt.graph_break()
      y:add_(1)
      return (y + z):sum()
    end,
    ["of what a branch reads"] = function(x)
      local y = x * 2
      local z = lt.cond(x:sum():gt(0), half, double, y)
      y:add_(1)
      lt.graph_break()
      y:add_(1)
      return z:sum()
    end,
  } do
    lt.reset()
    local g = lt.compile(f)
    local step = lt.compile(function(x) f(x):backward() end)
    for call = 1, 2 do
      for _, n in ipairs {4, 6, -6, 8} do
        local function leaf() return lt.full({math.abs(n), 2}, n):requires_grad_() end
        local want = message(function(x) f(x):backward() end, leaf())
        equal(message(function(x) g(x):backward() end, leaf()), want, name .. " " .. n)
        equal(message(step, leaf()), want, name .. " in a step " .. n)
      end
    end
  end
end)

test("runs that overlap keep their own sizes", function()
  local f = programs["a product of some rows"]
  local compiled, kept = lt.compile(f), {}
  for i, n in ipairs {8, 3, 17} do
    local w = start:clone():requires_grad_(true)
    kept[i] = {w, compiled(w, mask_of(n)), n}
  end
  for _, k in ipairs(kept) do
    k[2]:backward()
    local w = start:clone():requires_grad_(true)
    f(w, mask_of(k[3])):backward()
    truthy(lt.equal(k[1].grad, w.grad))
  end
end)

h.finish()
