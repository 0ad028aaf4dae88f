-- Tests the train step as one frame: eager = compiled bit for bit. A change makes a new entry only if the result
-- depends on it.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, breaks = h.test, h.equal, h.truthy, h.breaks
local nn, optim = lt.nn, lt.optim

local Net = nn.Module:extend("Net")
function Net:init(scale)
  self.fc1 = nn.Linear(20, 16)
  self.fc2 = nn.Linear(16, 10)
  self.scale = scale or 1
end
function Net:forward(x) return self.fc2(self.fc1(x):relu() * self.scale) end

-- A network, its optimiser and step; every call gives the same initial values.
local function setup(class, options)
  lt.manual_seed(7)
  local net = Net()
  local opt = (class or optim.AdamW)(net:parameters(), options or {lr = 1e-2})
  return {net = net, opt = opt, step = h.train_step(net, opt)}
end

local function batch(n, seed)
  lt.manual_seed(seed)
  return lt.randn(n, 20), lt.randint(0, 10, {n})
end

local function same_parameters(a, b, what)
  local other = b.net:state_dict()
  for name, value in pairs(a.net:state_dict()) do
    truthy(value:equal(other[name]), (what or "") .. " " .. name)
  end
end

local optimisers = {
  {"AdamW", optim.AdamW, {lr = 1e-2}},
  {"Adam", optim.Adam, {lr = 1e-2, weight_decay = 0.1, amsgrad = true}},
  {"SGD", optim.SGD, {lr = 0.1}},
  {"SGD with momentum", optim.SGD, {lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01}},
}

for _, threads in ipairs {1, 2} do
  for _, row in ipairs(optimisers) do
    test(string.format("20 steps of %s are bit for bit eager's, %d threads", row[1], threads), function()
      lt.reset()
      lt.config.num_threads = threads
      local eager, compiled = setup(row[2], row[3]), setup(row[2], row[3])
      local step = lt.compile(compiled.step)
      for i = 1, 20 do
        local x, y = batch(32, i)
        local a, b = eager.step(x, y), step(x, y)
        truthy(a:equal(b), "loss of step " .. i)
        same_parameters(eager, compiled, "step " .. i)
      end
      equal(breaks(), 0, "graph breaks")
      truthy(lt.counters().stats.unique_graphs <= 2, "entries: " .. lt.counters().stats.unique_graphs)
    end)
  end
end

test("AdamW's train step is one graph, and another batch size makes one more entry or none", function()
  lt.reset()
  local a, b = setup(), setup()
  local step = lt.compile(a.step)
  for i = 1, 4 do step(batch(32, i)) b.step(batch(32, i)) end
  equal(lt.counters().stats.unique_graphs, 1)
  equal(#lt.recompiles(step), 0)
  for _, n in ipairs {24, 32, 24, 17} do step(batch(n, n)) b.step(batch(n, n)) end
  truthy(#lt.recompiles(step) <= 1, "recompiles: " .. #lt.recompiles(step))
  same_parameters(a, b)
  equal(breaks(), 0)
end)

test("explain counts one graph and no break, and runs once", function()
  lt.reset()
  local a = setup()
  local p = a.net:parameters()[1]
  local report = lt.explain(a.step)(batch(8, 1))
  equal(report.graph_count, 1)
  equal(report.graph_break_count, 0)
  truthy(report.op_count > 10)
  equal(a.opt.state[p].step, 1)
  truthy(#tostring(report) > 0)
end)

-- Each row changes one thing both networks read. `entries` is how many the change may add.
local changes = {
  {"the learning rate", 0, function(s) s.opt.param_groups[1].lr = 0.5 end},
  {"eps", 0, function(s) s.opt.param_groups[1].eps = 1e-3 end},
  {"betas", 0, function(s) s.opt.param_groups[1].betas = {0.75, 0.8} end},
  {"a number of the forward", 0, function(s) s.net.scale = 1.5 end},
  {"the values of a parameter", 0, function(s) lt.no_grad(function() s.net.fc1.weight:mul_(0.5) end) end},
  {"an unrelated field", 0, function(s) s.net.note = "new" end},
  {"an unrelated global", 0, function() _G.lutra_test_unrelated = (_G.lutra_test_unrelated or 0) + 1 end},
  {"weight decay off", 1, function(s) s.opt.param_groups[1].weight_decay = 0 end},
  {"a layer", 1, function(s) lt.manual_seed(3) s.net.fc2 = nn.Linear(16, 10) end},
  {"a layer by an activation", 1, function(s)
    s.net.fc1.forward = function(self, x) return lt.linear(x, self.weight, self.bias):tanh() end
  end},
  {"requires_grad", 1, function(s) s.net.fc1.weight:requires_grad_(false) s.net.fc1.weight.grad = nil end},
  {"a missing bias", 1, function(s) s.net.fc2.bias = nil end},
  {"a method of the class", 1, function() end, function(on)
    local forward = nn.Linear.forward
    nn.Linear.forward = function(self, x) return lt.linear(x, self.weight, self.bias) * 2 end
    return function() nn.Linear.forward = forward end
  end},
  {"a tensor by a number", 1, function(s) s.net.scale = lt.full({16}, 0.5) end},
  {"the group's maximize", 1, function(s) s.opt.param_groups[1].maximize = true end},
}

-- A step that reads more: a global function and number, an upvalue table, the module through its metatable, a module's
-- flag.
function _G.lutra_test_scale(x) return x * 2 end
_G.lutra_test_number = 0.5
local config = {double = false, names = {"a"}}

local function wide_step(net, opt)
  return function(x, y)
    local out = lutra_test_scale(net(x)) * lutra_test_number
    if config.double then out = out * 2 end
    if net.training then out = out + 1 / #config.names end
    local loss = nn.functional.cross_entropy(out, y)
    net:zero_grad()
    loss:backward()
    opt:step()
    return loss
  end
end

local function swap_class(s)
  local Other = Net:extend("Other")
  function Other:forward(x) return self.fc2(self.fc1(x):tanh()) end
  setmetatable(s.net, Other)
end

local wide_changes = {
  {"a global number", 0, function() _G.lutra_test_number = _G.lutra_test_number + 0.25 end, once = true},
  {"a global function", 1, function() _G.lutra_test_scale = function(x) return x - 1 end end, once = true},
  {"a flag in an upvalue's field", 1, function() config.double = not config.double end, once = true},
  {"the length of a list", 0, function() config.names[#config.names + 1] = "b" end, once = true, may = 1},
  {"training", 1, function(s) s.net:eval() end},
  {"the module's metatable", 1, swap_class},
  {"the dtype of everything", 1, function(s)
    s.net:to("float64")
    s.opt = optim.AdamW(s.net:parameters(), {lr = 1e-2})
    s.remake = true
  end, double = true},
}

for _, change in ipairs(wide_changes) do
  test("change " .. change[1], function()
    lt.reset()
    local eager, compiled = setup(), setup()
    local f = wide_step(compiled.net, compiled.opt)
    local want, step = wide_step(eager.net, eager.opt), lt.compile(f)
    local double = false
    local function both(i)
      local x, y = batch(8, i)
      if double then x = x:to("float64") end
      truthy(want(x, y):equal(step(x, y)), "loss of step " .. i)
      same_parameters(eager, compiled, "step " .. i)
    end
    both(1) both(2)
    local before = lt.counters().stats.unique_graphs
    change[3](eager)
    if not change.once then change[3](compiled) end
    if eager.remake then
      want, double = wide_step(eager.net, eager.opt), true
      step = lt.compile(wide_step(compiled.net, compiled.opt))
    end
    both(3) both(4) both(5)
    local added = lt.counters().stats.unique_graphs - before
    if change[2] == 0 then
      truthy(added <= (change.may or 0), "entries added: " .. added)
    else
      truthy(added >= 1 and added <= 2, "entries added: " .. added)
    end
  end)
end

test("batch sizes: at most 3 compiles in ascending order, 4 in any", function()
  for limit, sizes in pairs {[3] = {1, 2, 3, 4, 5, 9, 16, 17, 33}, [4] = {7, 1, 16, 2, 1, 33, 3, 7}} do
    lt.reset()
    local eager, compiled = setup(), setup()
    local step = lt.compile(compiled.step)
    for i, n in ipairs(sizes) do
      local x, y = batch(n, i)
      truthy(eager.step(x, y):equal(step(x, y)), "loss of batch " .. n)
      same_parameters(eager, compiled, "batch " .. n)
    end
    truthy(lt.counters().stats.unique_graphs <= limit, "graphs: " .. lt.counters().stats.unique_graphs)
  end
end)

test("more entries than the limit: eager's answers go on", function()
  lt.reset()
  local function f(x, mode) if mode == "a" then return x
    + 1 elseif mode == "b" then return x * 2 end return x - #mode end
  local cf = lt.compile(f)
  local x = lt.randn(3)
  for round = 1, 2 do
    for i = 1, 15 do
      local mode = string.rep("c", i)
      truthy(f(x, mode):equal(cf(x, mode)))
    end
  end
  truthy(lt.counters().stats.unique_graphs <= lt.config.recompile_limit)
end)

for _, change in ipairs(changes) do
  test("change " .. change[1], function()
    lt.reset()
    local eager, compiled = setup(), setup()
    local step = lt.compile(compiled.step)
    local function both(i)
      local x, y = batch(8, i)
      local a, b = eager.step(x, y), step(x, y)
      truthy(a:equal(b), "loss of step " .. i)
      same_parameters(eager, compiled, "step " .. i)
    end
    both(1) both(2)
    local before = lt.counters().stats.unique_graphs
    change[3](eager)
    change[3](compiled)
    local undo = change[4] and change[4]()
    local ok, message = pcall(function() both(3) both(4) end)
    if undo then undo() end
    if not ok then error(message, 0) end
    local added = lt.counters().stats.unique_graphs - before
    if change[2] == 0 then equal(added, 0, "entries added") else truthy(added >= 1, "no entry added") end
    if added > 0 then truthy(#lt.recompiles(step) >= 1, "a recompile without a reason") end
  end)
end

test("inputs: dtype, strides, grad mode", function()
  lt.reset()
  local function f(x, w) return (x * 2 + w):tanh():sum(0) end
  local cf = lt.compile(f)
  local x, w = lt.randn(6, 4), lt.randn(6, 4, {requires_grad = true})
  local function both(...)
    local a, b = f(...), cf(...)
    truthy(a:equal(b) and a.dtype == b.dtype and a.requires_grad == b.requires_grad)
  end
  both(x, w)
  both(x, w)
  equal(lt.counters().stats.unique_graphs, 1)
  both(lt.randn(4, 6):transpose(0, 1), w)
  both(x:to("float64"), w)
  both(x, w:detach())
  lt.no_grad(function() both(x, w) end)
  both(x, 3)
  both(x, lt.randn(4))
end)

test("an error in a compiled step is eager's, and the session goes on", function()
  lt.reset()
  local a = setup()
  local step = lt.compile(a.step)
  local x, y = batch(8, 1)
  step(x, y)
  local ok, eager_text = pcall(a.step, lt.randn(8, 3), y)
  truthy(not ok)
  local ok2, text = pcall(step, lt.randn(8, 3), y)
  truthy(not ok2)
  equal(tostring(text):gsub("^.-: ", ""), (tostring(eager_text):gsub("^.-: ", "")))
  step(x, y)
end)

test("a compiled module with backward outside", function()
  lt.reset()
  local eager, compiled = setup(), setup()
  local forward = lt.compile(compiled.net)
  for i = 1, 5 do
    local x, y = batch(8, i)
    local a = nn.functional.cross_entropy(eager.net(x), y)
    local b = nn.functional.cross_entropy(forward(x), y)
    truthy(a:equal(b))
    for _, s in ipairs {{eager, a}, {compiled, b}} do
      s[1].opt:zero_grad()
      s[2]:backward()
      s[1].opt:step()
    end
    same_parameters(eager, compiled, "step " .. i)
  end
end)

h.finish()
