-- Tests what runs of a compiled function share of its leaves (jit/autograd/leaf_inputs.h). Whatever happens to a leaf
-- between two runs, or between a run and its backward, gives eager's gradients, errors and lifetimes.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local function leaf(...) return lt.tensor({...}, {requires_grad = true}) end
-- A compiled backward does not tell which argument of which op was freed, nor how far it has come there.
local function plain(message)
  return (tostring(message):gsub("^[^ ]*:%d+: ", ""):gsub("^.* was freed %(", "freed ("))
end

-- Three runs of one function, event(net, hold) after the second; then the backward of each, in both orders.
local function story(event, options)
  options = options or {}
  return function(wrap)
    local lines = {}
    local function note(...)
      local parts = {...}
      for i = 1, select("#", ...) do parts[i] = lt.is_tensor(parts[i]) and h.text(parts[i]) or plain(parts[i]) end
      lines[#lines + 1] = table.concat(parts, " ")
    end
    for _, backwards in ipairs {false, true} do
      local net = {w = leaf(1, 2, 3), b = leaf(0.5, -1, 2), frozen = lt.tensor {2, 1, 2}}
      local held = {}
      local f = wrap(function(x) return ((x * net.w + net.b) * net.w * net.frozen):sum() end)
      local x = lt.tensor({1, -1, 2}, {requires_grad = options.x})
      if options.inner then x = x * 2 end
      local losses = {}
      for round = 1, 4 do
        if options.collects then losses[round - 1] = nil collectgarbage() collectgarbage() end
        local ok, loss = pcall(f, x)
        if ok then
          losses[round] = loss
          note(round, loss, loss.requires_grad)
        else
          note(round, loss)
        end
        if round == 2 then
          local fine, message = pcall(event, net, held, note)
          if not fine then note("event", message) end
        end
      end
      for k = 1, 4 do
        local loss = losses[backwards and 5 - k or k]
        if loss and loss.requires_grad then
          local ok, message = pcall(loss.backward, loss, {retain_graph = k % 2 == 0})
          note("backward", not ok and message or "")
          local freed = not ok and plain(message) == "freed (x:free())"
          ok, message = pcall(loss.backward, loss)
          if not freed then note("again", not ok and message or "") end
        end
      end
      for _, name in ipairs {"w", "b", "frozen"} do
        local t = net[name]
        note(name, t.requires_grad, t.is_leaf, t.grad or "no gradient")
      end
      for _, t in ipairs(held) do note("held", t.grad or "no gradient") end
    end
    return table.concat(lines, "\n")
  end
end

local events = {
  nothing = function() end,
  ["other memory"] = function(net) net.w.data = lt.tensor {4, 5, 6} end,
  ["the memory of another leaf"] = function(net) net.w.data = net.b.data end,
  ["its own memory again"] = function(net) net.w.data = net.w.data end,
  ["another leaf"] = function(net, held)
    held[1] = net.w
    net.w = leaf(7, 8, 9)
  end,
  ["leaves exchanged"] = function(net) net.w, net.b = net.b, net.w end,
  ["no gradient wanted any more"] = function(net) net.w:requires_grad_(false) end,
  ["none wanted for a while"] = function(net)
    net.w:requires_grad_(false)
    net.w:requires_grad_(true)
  end,
  ["a gradient wanted"] = function(net) net.frozen:requires_grad_(true) end,
  ["written"] = function(net) lt.no_grad(function() net.w:add_(1) end) end,
  ["written through its data"] = function(net) net.w.data:add_(1) end,
  ["the frozen one written"] = function(net) net.frozen:add_(1) end,
  ["the frozen one becomes a result"] = function(net) net.frozen:mul_(net.b) end,
  ["becomes a result"] = function(net, held)
    held[1] = net.b
    net.w:requires_grad_(false)
    net.w:mul_(net.b)
  end,
  ["freed"] = function(net) net.w:free() end,
  ["the frozen one freed"] = function(net) net.frozen:free() end,
  ["a view of a leaf"] = function(net, held)
    held[1] = leaf(1, 2, 3, 4)
    net.w = held[1]:narrow(0, 1, 3)
  end,
  ["a view that is a leaf"] = function(net, held)
    local base = lt.tensor {1, 2, 3, 4}
    held[1] = base
    net.w = base:narrow(0, 1, 3):requires_grad_(true)
    base:mul_(2)
  end,
  ["a hook"] = function(net, _, note) net.w:register_hook(function(g) note("hook", g) return g * 2 end) end,
  ["a hook that is removed"] = function(net, _, note)
    net.b:register_hook(function(g) note("hook", g) end):remove()
  end,
  ["a gradient before"] = function(net) net.w.grad = lt.tensor {10, 20, 30} end,
  ["other sizes"] = function(net) net.w.data = lt.tensor {4} end,
  ["other strides"] = function(net) net.w.data = lt.tensor({{4, 0}, {5, 0}, {6, 0}}):select(1, 0) end,
  ["another dtype"] = function(net) net.w = lt.tensor({4, 5, 6}, {dtype = "float64", requires_grad = true}) end,
}
local names = {}
for name in pairs(events) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  for _, options in ipairs {{}, {x = true}, {x = true, inner = true}, {collects = true}} do
    local title = ("%s%s%s%s"):format(name, options.x and ", an input that requires grad" or "",
      options.inner and " and is no leaf" or "", options.collects and ", graphs dropped" or "")
    test(title, function() truthy(h.graphs_of(story(events[name], options)) >= 1) end)
  end
end

test("second derivatives of runs of the same leaves", function()
  h.graphs_of(function(wrap)
    local w, b = leaf(1, 2, 3), leaf(3, 2, 1)
    local f = wrap(function(x) return (x * w * w * b):sum() end)
    local x, lines = lt.tensor {1, 2, 3}, {}
    local first, second = f(x), f(x)
    for _, loss in ipairs {second, first} do
      local g = lt.grad(loss, {w, b}, {create_graph = true})
      local again = lt.grad(g[1]:sum() + g[2]:sum(), {w, b})
      for _, t in ipairs {g[1], g[2], again[1], again[2]} do lines[#lines + 1] = h.text(t) end
    end
    w.data = lt.tensor {5, 5, 5}
    local g = lt.grad(f(x), {w, b}, {create_graph = true})
    for _, t in ipairs {g[1], lt.grad(g[1]:sum(), w), lt.grad(f(x), w)} do lines[#lines + 1] = h.text(t) end
    return table.concat(lines, "\n")
  end)
end)

test("more modules in turn than are known, and modules that share leaves", function()
  h.graphs_of(function(wrap)
    local f = wrap(function(net, x) return (x * net.w + net.b):sum() end)
    local x, nets, losses, lines = lt.tensor {1, 2, 3}, {}, {}, {}
    for i = 1, 40 do nets[i] = {w = leaf(i, 2, 3), b = leaf(0, i, 0)} end
    for i = 1, 20 do nets[40 + i] = {w = nets[i].w, b = nets[i + 1].b} end
    for round = 1, 3 do
      for i, net in ipairs(nets) do losses[#losses + 1] = f(net, x * (i + round)) end
    end
    for i = #losses, 1, -1 do losses[i]:backward() end
    for _, net in ipairs(nets) do lines[#lines + 1] = h.text(net.w.grad) .. h.text(net.b.grad) end
    return table.concat(lines, "\n")
  end)
end)

test("a compiled function keeps no leaf of a module that is gone", function()
  local f = lt.compile(function(net, x) return (x * net.w + net.b):sum() end)
  local net, x = {w = leaf(1, 2, 3), b = leaf(0, 1, 0)}, lt.tensor {1, 2, 3}
  local seen = setmetatable({net.w, net.b}, {__mode = "v"})
  local loss = f(net, x)
  for _ = 1, 5 do loss = f(net, x) end
  net = nil
  collectgarbage() collectgarbage()
  loss:backward()
  loss = nil
  collectgarbage() collectgarbage()
  equal(seen[1], nil)
  equal(seen[2], nil)
end)

-- Returns the memory that runs leave behind if their losses are kept, in units of w's. step(run) runs f and more.
local function growth(f, w, rounds, step)
  local x, kept = lt.ones(512), {}
  f(x):backward()
  collectgarbage() collectgarbage()
  local before = lt.memory().allocated
  for i = 1, rounds do step(function() kept[i] = f(x) return kept[i] end) end
  collectgarbage() collectgarbage()
  return (lt.memory().allocated - before) / (4 * w:numel()), #kept
end

local function other(w) w.data = lt.zeros(512, 512) end
local steps = {
  ["before the backward"] = function(w, run)
    local loss = run()
    other(w)
    loss:backward()
  end,
  ["behind the backward"] = function(w, run)
    run():backward()
    other(w)
  end,
  ["behind one of two backwards"] = function(w, run)
    local loss = run()
    loss:backward({retain_graph = true})
    other(w)
    loss:backward()
  end,
  ["by set_"] = function(w, run)
    run():backward()
    w:requires_grad_(false):set_(lt.zeros(512, 512)):requires_grad_(true)
  end,
  ["twice"] = function(w, run)
    local loss = run()
    other(w)
    loss:backward()
    other(w)
  end,
  ["by an optimiser of one's own"] = function(w, run)
    run():backward()
    w.data = w.data - w.grad * 0.1
    w.grad:zero_()
  end,
}
for name, step in pairs(steps) do
  test("memory that a leaf has left goes with the backward of the runs that used it: " .. name, function()
    for _, wrap in ipairs {lt.compile, function(f) return f end} do
      local w = lt.zeros(512, 512, {requires_grad = true})
      local grown = growth(wrap(function(x) return (x * w * w):sum() end), w, 8, function(run) step(w, run) end)
      truthy(grown < 0.5, grown)
    end
  end)
end

test("of a leaf that has left its memory behind the backward, a kept loss knows what eager's does", function()
  h.graphs_of(function(wrap)
    local w, lines = leaf(1, 2, 3), {}
    local f = wrap(function(x) return (x * w * w):exp():sum() end)
    local x, kept = lt.tensor {1, 2, 3}, {}
    for i = 1, 4 do
      kept[i] = f(x / 10)
      kept[i]:backward()
      if i % 2 == 0 then w.data = lt.tensor {i, 1, 2} end
      for k = 1, i do
        for _, create in ipairs {false, true} do
          local ok, message = pcall(kept[k].backward, kept[k], {create_graph = create})
          lines[#lines + 1] = tostring(ok) .. plain(message)
        end
      end
      lines[#lines + 1] = h.text(w.grad) .. h.text(kept[i])
    end
    lt.no_grad(function() w:add_(1) end)
    local ok, message = pcall(kept[4].backward, kept[4], {create_graph = true})
    lines[#lines + 1] = tostring(ok) .. plain(message)
    return table.concat(lines, "\n")
  end)
end)

-- Memory that an eager backward reads is held until the backward. No other memory is.
local function held(make, reads)
  local function dynamic(f) return lt.compile(f, {dynamic = true}) end
  for _, wrap in ipairs {lt.compile, function(f) return f end, dynamic} do
    local w = lt.ones(256, 256, {requires_grad = true})
    local bytes, losses, wanted = 4 * w:numel(), {}, 0
    local f = wrap(function(x) return make(w, x) end)
    f(lt.ones(256, 256)):backward()
    local function allocated()
      collectgarbage() collectgarbage()
      return lt.memory().allocated
    end
    local before = allocated()
    for i = 1, 6 do
      local x = lt.full({256, 256}, i)
      losses[i] = f(x)
      wanted = wanted + i
    end
    local units = (allocated() - before) / bytes
    truthy(math.abs(units - (reads and 6 or 0)) < 0.5, units)
    w.grad = nil
    for i = 1, 6 do losses[i]:backward() end
    before = before - bytes  -- w's gradient of the first call, which is another now
    truthy((allocated() - before) / bytes < 1.5)
    equal(w.grad:view(-1):narrow(0, 0, 1):item(), reads and wanted or 6)
  end
end

test("a kept loss holds no input that no backward reads", function()
  held(function(w, x) return (w + x):sum() end, false)
  held(function(w, x) return (w - x:t()):sum() end, false)
  held(function(w, x) return (w:t() - x):sum() + x:sum() end, false)
end)

test("a kept loss holds inputs that the backward reads", function()
  held(function(w, x) return (w * x):sum() end, true)
  held(function(w, x) return (w * x:t()):sum() end, true)
end)

test("of a leaf that no backward reads, a kept loss holds no memory that it has left", function()
  for _, wrap in ipairs {lt.compile, function(f) return f end} do
    local w = lt.ones(256, 256, {requires_grad = true})
    local f = wrap(function() return (w + 1):sum() end)
    f():backward()
    collectgarbage() collectgarbage()
    local before, losses = lt.memory().allocated, {}
    for i = 1, 6 do
      losses[i] = f()
      w.data = lt.ones(256, 256)
    end
    collectgarbage() collectgarbage()
    truthy(math.abs(lt.memory().allocated - before) < 2 * w:numel())
    for i = 1, 6 do losses[i]:backward() end
    equal(w.grad:view(-1):narrow(0, 0, 1):item(), 7)
  end
end)

test("what no backward reads may be written or freed before it", function()
  h.graphs_of(function(wrap)
    local lines = {}
    for _, create in ipairs {false, true} do
      for _, event in ipairs {"write", "free", "resize", "data"} do
        for _, inner in ipairs {false, true} do
          local w, x = leaf(1, 2, 3), lt.tensor {4, 5, 6}
          local v = leaf(3, 2, 1)
          if inner then v = v * 2 end
          local f = wrap(function(a, b) return (w * w + a + b):sum() end)
          local loss = f(x, v)
          if event == "write" then
            x:add_(1)
          elseif event == "free" then
            x:free()
          elseif event == "resize" then
            x:resize_(7)
          else
            x.data = lt.zeros(2)
          end
          local ok, message = pcall(loss.backward, loss, {create_graph = create, retain_graph = true})
          lines[#lines + 1] = tostring(ok) .. plain(message) .. h.text(w.grad)
          ok, message = pcall(loss.backward, loss)
          lines[#lines + 1] = tostring(ok) .. plain(message) .. h.text(w.grad)
        end
      end
    end
    return table.concat(lines, "\n")
  end)
end)

-- Calls in turn that bring one tensor as two inputs, or two; how many graphs there are at the end.
local function shared(make, names)
  return h.graphs_of(function(wrap)
    lt.manual_seed(1)
    local f = wrap(function(a, b, c, x)
      local y = x * a + a
      return ((y * b) * y * a * c):sum()
    end)
    local lines = {}
    for round = 1, 6 do
      for _, name in ipairs(names) do
        local given, t = {}, {}
        for k in name:gmatch "." do
          t[k] = t[k] or lt.randn(5):requires_grad_(true)
          given[#given + 1] = k
        end
        local made = {}
        for k, leaf_of in pairs(t) do made[k] = make(leaf_of) end
        for i, k in ipairs(given) do given[i] = made[k] end
        given[4] = lt.randn(5)
        f(unpack(given)):backward()
        for k = ("a"):byte(), ("c"):byte() do
          local leaf_of = t[string.char(k)]
          lines[#lines + 1] = leaf_of and h.text(leaf_of.grad) or ""
        end
        lines[#lines + 1] = name .. round
      end
    end
    return table.concat(lines, "\n")
  end)
end
local function itself(t) return t end
local function result(t) return t * 2 end

test("one tensor as several inputs has eager's gradient", function()
  equal(shared(itself, {"abc"}), 1)
  -- Once it is known that such calls come, entries are made anew, with guards that tell them apart.
  for _, make in ipairs {itself, result} do
    equal(shared(make, {"abc", "aac"}), 3)
    equal(shared(make, {"abc", "abb"}), 3)
    equal(shared(make, {"aac", "abc"}), 4)
    equal(shared(make, {"aba", "aac"}), 2)
    truthy(shared(make, {"abc", "aac", "abb", "aba", "aaa"}) <= 8)
  end
end)

h.finish()
