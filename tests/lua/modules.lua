-- Tests modules and optimisers against PyTorch's results (module_references.lua, by tests/oracle/modules.py): results,
-- gradients, names and sizes of the state, eager and compiled. Each compiled step is one graph.
local lt = require "lutra"
local h = require "harness"
local test, equal, near, truthy, raises = h.test, h.equal, h.near, h.truthy, h.raises
local references = require "module_references"
local nn, optim = lt.nn, lt.optim

local function wave(shape, phase)
  local n, values = 1, {}
  for _, size in ipairs(shape) do n = n * size end
  for i = 0, n - 1 do values[i + 1] = 0.5 * math.sin(0.7 * i + phase) end
  return lt.tensor(values, {dtype = "float64"}):reshape(shape)
end

local function fill(module)
  local names, parameters = {}, {}
  for name, p in module:named_parameters() do names[#names + 1], parameters[name] = name, p end
  table.sort(names)
  lt.no_grad(function()
    for k, name in ipairs(names) do parameters[name]:copy_(wave(parameters[name].shape, k)) end
    for name, b in module:named_buffers() do
      b:copy_(nn.functional.normalize(wave(b.shape, name:sub(-1) == "u" and 3 or 4), 2, 0))
    end
  end)
end

-- The results of a call, lists within them spread.
local function flat(out, ...)
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    if lt.is_tensor(v) then out[#out + 1] = v elseif type(v) == "table" then flat(out, unpack(v)) end
  end
  return out
end

local function sums(t)
  t = t:detach():reshape(-1)
  return {t:sum():item(), t:abs():sum():item(), (t * lt.arange(1, t:numel() + 1, {dtype = "float64"})):sum():item()}
end

local function made(case)
  lt.manual_seed(0)
  local module = setfenv(assert(loadstring("return " .. case.make)), {nn = nn})()
  fill(module)
  local inputs = {}
  for i, input in ipairs(case.inputs) do
    inputs[i] = input.wave and wave(input.wave, i - 1):requires_grad_() or lt.tensor(input.values)
    if not input.wave and inputs[i].dtype == "float32" then
      inputs[i] = case.name:find "^EmbeddingBag" and inputs[i]:long() or inputs[i]:double()
    end
  end
  local call = assert(loadstring("local m, nn, a, b, c = ... return " .. case.call))
  local function step(...)
    local results = flat({}, call(module, nn, ...))
    local loss = 0
    for i = 1, #results do
      local r = results[i]
      loss = loss + (r * lt.arange(r:numel()):double():cos():reshape(r.shape)):sum()
    end
    loss:backward()
    return results
  end
  return module, inputs, step
end

local function check(case, module, inputs, results)
  equal(#results, #case.outputs, "results")
  for i, wanted in ipairs(case.outputs) do
    local r = results[i]:detach()
    h.deep(r.shape, wanted[1])
    h.deep(sums(r), wanted[2], 1e-8, "result " .. i)
    local elements = r:reshape(-1)
    for k, value in ipairs(wanted[3]) do near(elements[k - 1]:item(), value, 1e-9, "element " .. k) end
  end
  local grads = {}
  for name, p in module:named_parameters() do grads[name] = p.grad end
  for i, letter in ipairs {"a", "b", "c"} do grads[letter] = inputs[i] and inputs[i].grad end
  for name, wanted in pairs(case.grads) do
    truthy(grads[name], "gradient of " .. name)
    h.deep(sums(grads[name]), wanted, 1e-8, "gradient of " .. name)
  end
  for name in pairs(grads) do truthy(case.grads[name], "PyTorch's gradient of " .. name) end
end

for _, case in ipairs(references.modules) do
  test(case.name, function()
    local module, inputs, step = made(case)
    local state = {}
    for name, value in pairs(module:state_dict()) do state[name] = value.shape end
    h.deep(state, case.state)
    local results = step(unpack(inputs))
    check(case, module, inputs, results)
    lt.reset()
    local again, others, compiled = made(case)
    local twin = lt.compile(compiled)(unpack(others))
    check(case, again, others, twin)
    for i, r in ipairs(results) do truthy(r:equal(twin[i]), "compiled as eager") end
    for reason in pairs(lt.counters().graph_break) do error("graph break: " .. reason) end
    equal(lt.counters().stats.unique_graphs, 1, "graphs")
  end)
end

local function descend(name, options, compiled)
  local p = lt.tensor({0.5, -1.25, 2, 0.75}, {dtype = "float64", requires_grad = true})
  local opt = optim[name]({p}, options)
  local function closure()
    opt:zero_grad()
    local loss = (p ^ 4 / 4 - p ^ 2):sum() + p:prod()
    loss:backward()
    return loss
  end
  local step = name == "LBFGS" and function() opt:step(closure) end or function()
    closure()
    opt:step()
  end
  if compiled then step = lt.compile(step) end
  local out = {}
  for i = 1, 8 do
    step()
    out[i] = p:detach():tolist()
  end
  return out
end

for i, row in ipairs(references.optimisers) do
  local name, options, wanted = unpack(row)
  test("optimiser " .. i .. " " .. name .. " " .. options, function()
    local given = loadstring("return {" .. options .. "}")
    local eager = descend(name, given(), false)
    h.deep(eager, wanted, 1e-9)
    lt.reset()
    h.deep(descend(name, given(), true), eager)
    if name == "LBFGS" then return end
    for reason in pairs(lt.counters().graph_break) do error("graph break: " .. reason) end
    truthy(lt.counters().stats.unique_graphs <= 4, "graphs: " .. lt.counters().stats.unique_graphs)
  end)
end

-- Train steps ---------------------------------------------------------------------------------------------------------

local function trained(make, compiled)
  lt.manual_seed(2)
  local net, loss_of = make()
  local opt = optim.Adam(net:parameters(), {lr = 0.01})
  local step = function(x, y)
    opt:zero_grad()
    local loss = loss_of(net, x, y)
    loss:backward()
    opt:step()
    return loss
  end
  if compiled then step = lt.compile(step) end
  lt.reset()
  local losses = {}
  for i = 1, 4 do
    lt.manual_seed(i)
    losses[i] = step(lt.randint(0, 7, {3, 5}), lt.randint(0, 4, {3})):item()
  end
  return losses, net:state_dict()
end

local Classifier = nn.Module:extend "Classifier"
function Classifier:init(class)
  self.embed, self.rnn, self.out = nn.Embedding(7, 6),
    class(6, 8, 2, {batch_first = true, dropout = 0.25, bidirectional = true}), nn.Linear(16, 4)
end
function Classifier:forward(x)
  local y = self.rnn(self.embed(x))
  return self.out(y:select(1, -1))
end

local function classifier(class)
  return function() return Classifier(class), function(net, x, y) return nn.functional.cross_entropy(net(x), y) end end
end

local Translator = nn.Module:extend "Translator"
function Translator:init()
  self.embed, self.out = nn.Embedding(7, 8), nn.Linear(8, 7)
  self.transformer = nn.Transformer(8, 2, 1, 1, 16, {batch_first = true})
end
function Translator:forward(x)
  local mask = nn.Transformer.generate_square_subsequent_mask(x:size(1))
  local e = self.embed(x)
  return self.out(self.transformer(e, e, {tgt_mask = mask, tgt_is_causal = true}))
end

local steps = {RNN = classifier(nn.RNN), GRU = classifier(nn.GRU), LSTM = classifier(nn.LSTM), Transformer = function()
  return Translator(), function(net, x) return nn.functional.cross_entropy(net(x):flatten(0, 1), x:flatten()) end
end}
for name, make in pairs(steps) do
  test("a train step of " .. name .. " is one graph, and eager's bits", function()
    local eager, state = trained(make, false)
    local compiled, other = trained(make, true)
    h.deep(compiled, eager)
    for key, value in pairs(state) do truthy(value:equal(other[key]), key) end
    equal(h.breaks(), 0)
    truthy(lt.counters().stats.unique_graphs <= 2, "graphs: " .. lt.counters().stats.unique_graphs)
  end)
end

local Block = nn.Module:extend("Block")
function Block:init(dilation)
  self.conv = nn.Conv1d(2, 2, 3, {dilation = dilation or 1})
  self.scales = {lt.ones(2, 1), note = "none"}
end
function Block:forward(x) return self.conv(x):relu() * self.scales[1] end

-- Compiles 12 blocks and returns the graphs that their steps need. Each must give its own values.
local function graphs_of_blocks(make)
  lt.reset()
  local x, blocks = lt.arange(40):view(1, 2, 20):div(40), {}
  for i = 1, 12 do blocks[i] = make(i) end
  local compiled = {}
  for i, block in ipairs(blocks) do compiled[i] = lt.compile(block) end
  for _ = 1, 2 do
    for i, block in ipairs(blocks) do
      local want = block(x)
      want:sum():backward()
      local gradient = block.conv.weight.grad
      block.conv.weight.grad = nil
      local got = compiled[i](x)
      got:sum():backward()
      truthy(got:equal(want) and block.conv.weight.grad:equal(gradient), "block " .. i)
      block.conv.weight.grad = nil
    end
  end
  return lt.counters().stats.unique_graphs
end

test("modules that are alike share compiled code, however each is compiled", function()
  equal(graphs_of_blocks(function() return Block() end), 1)
end)

test("modules that differ do not reach the limit of recompiles together", function()
  equal(graphs_of_blocks(function(i) return Block(i % 6 + 1) end), 6)
  equal(graphs_of_blocks(function(i)
    local block = Block()
    block.scales.note = "note " .. i
    return block
  end), 12)
end)

test("fields that begin with _ and modules without tensors", function()
  lt.reset()
  local Act = nn.Module:extend("Act")
  function Act:init(name) self._act, self.scale = name, lt.ones(1) end
  function Act:forward(x) return x[self._act](x) * self.scale end
  local Free = nn.Module:extend("Free")
  function Free:forward(x) return x * 2 end
  for i, name in ipairs {"relu", "tanh", "exp", "sin", "cos", "neg", "abs", "sigmoid", "square", "floor"} do
    local x = lt.rand(2, 3)
    truthy(lt.compile(Act(name))(x):equal(x[name](x)), name)
    lt.compile(Free())(lt.ones(unpack({2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, 1, i)))
  end
  equal(lt.counters().stats.unique_graphs, 20)
end)

test("lt.compile(module) asks the fields of a module for nothing", function()
  local block = Block()
  block.guarded = setmetatable({}, {__tostring = error, __index = error, __len = error})
  block.handle = newproxy(true)
  getmetatable(block.handle).__tostring = error
  truthy(lt.compile(block)(lt.ones(1, 2, 20)):equal(block(lt.ones(1, 2, 20))))
end)

test("the code of modules that are gone is collected", function()
  local function megabytes()
    collectgarbage()
    collectgarbage()
    return tonumber(io.open "/proc/self/status":read "*a":match "VmRSS:%s*(%d+)") / 1024
  end
  local function compile_many()
    for i = 1, 300 do
      local block = Block()
      block.scales.note = "many " .. i
      lt.compile(block)(lt.ones(1, 2, 20))
    end
  end
  compile_many()
  local before = megabytes()
  for _ = 1, 3 do compile_many() end
  truthy(megabytes() - before < 12, ("%.1f MB"):format(megabytes() - before))
end)

test("recurrent layers refuse a sequence without elements", function()
  for _, name in ipairs {"RNN", "GRU", "LSTM"} do
    raises("at least one element", lt.nn[name](3, 4), lt.zeros(0, 3))
    raises("at least one element", lt.nn[name](3, 4), lt.zeros(0, 2, 3))
  end
end)

-- The steps of a layer compile in the background (nn/recurrent.lua).
test("eager recurrent layers launch one kernel a step, with the bits of a first call", function()
  local limits = {RNN = 45, GRU = 56, LSTM = 47}
  for seed, name in ipairs {"RNN", "GRU", "LSTM"} do
    for _, dtype in ipairs {"float32", "bfloat16"} do
      lt.manual_seed(seed)
      local net = nn[name](3, 5, {dtype = dtype})
      local x = lt.randn(12, 2, 3, {dtype = dtype}):requires_grad_()
      local function run()
        net:zero_grad()
        x.grad = nil
        local y = net(x)
        y:square():sum():backward()
        local grads = {x.grad}
        for _, p in ipairs(net:parameters()) do grads[#grads + 1] = p.grad end
        return {y, unpack(grads)}
      end
      local graphs = lt.counters().stats.unique_graphs
      local first = run()
      for _ = 1, 4 do
        lt.wait_compiled()
        for k, value in ipairs(run()) do truthy(value:equal(first[k]), name .. " " .. k) end
      end
      equal(lt.counters().stats.unique_graphs, graphs) -- no graph of the program
      -- Each step: a product, its bias (in GRU), the step, a part of the stacked result.
      local launches = tonumber(tostring(lt.profile(net)(x)):match "(%d+) launch")
      truthy(launches <= limits[name], name .. " launches " .. launches)
      local compiled = lt.compile(function(x) return (net(x)) end)
      truthy(compiled(x):equal(first[1]), name .. " compiled")
    end
  end
end)

test("steps of recurrent cells and packed sequences have second gradients", function()
  lt.manual_seed(1)
  local function twice(f, x)
    local g = lt.autograd.grad(f(x):square():sum(), x, {create_graph = true})
    return {g, (lt.autograd.grad(g:square():sum(), x))}
  end
  for _, name in ipairs {"RNN", "GRU", "LSTM"} do
    local cell, layer = nn[name .. "Cell"](3, 4), nn[name](3, 4)
    local x = lt.randn(5, 6, 3):requires_grad_()
    local cases = {
      function(x) local h = cell(x[0]); return name == "LSTM" and h or h * 2 end,
      function(x)
        local packed = nn.utils.rnn.pack_padded_sequence(x, lt.tensor {5, 4, 4, 2, 1, 1})
        return layer(packed).data
      end}
    for k, f in ipairs(cases) do
      local first = twice(f, x)
      for _ = 1, 3 do
        lt.wait_compiled()
        for i, value in ipairs(twice(f, x)) do truthy(value:equal(first[i]), name .. " " .. k .. " " .. i) end
      end
    end
  end
end)

h.finish()
