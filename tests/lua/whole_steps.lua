-- Tests that a train step with each class of lt.nn, lt.optim, lt.data and lt.amp is one graph: forward, backward,
-- gradient clipping and the update. Layers without a case here are made and called as in module_references.lua. The
-- last test lists each table's classes and fails for a class without a case.
local lt = require "lutra"
local h = require "harness"
local test, truthy, equal = h.test, h.truthy, h.equal
local nn, optim, data = lt.nn, lt.optim, lt.data

local function rand(...) return lt.rand({...}) end
local FLAT, ONE, TWO, THREE = {4, 6}, {2, 4, 6}, {2, 4, 6, 6}, {2, 4, 4, 4, 4}

-- name -> arguments of the class, the shape that its input has.
local layers = {}
local function add(names, shape, ...)
  for name in names:gmatch "%S+" do layers[name] = {shape = shape, ...} end
end
add("CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh Identity LeakyReLU LogSigmoid Mish PReLU RReLU ReLU "
  .. "ReLU6 SELU SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Flatten AlphaDropout Dropout", FLAT)
add("LogSoftmax Softmax Softmin", FLAT, 1)
add("Threshold", FLAT, 0.5, 0.1)
add("RMSNorm BatchNorm1d", FLAT, 6)
add("Softmax2d Dropout2d FeatureAlphaDropout UpsamplingNearest2d UpsamplingBilinear2d Upsample", TWO)
for _, name in ipairs {"UpsamplingNearest2d", "UpsamplingBilinear2d", "Upsample"} do
  layers[name][1] = {scale_factor = 2}
end
add("Dropout1d", ONE)
add("Dropout3d", THREE)
add("AdaptiveAvgPool1d AdaptiveMaxPool1d AvgPool1d MaxPool1d", ONE, 2)
add("AdaptiveAvgPool2d AdaptiveMaxPool2d AvgPool2d MaxPool2d LocalResponseNorm ChannelShuffle PixelShuffle "
  .. "PixelUnshuffle Unfold", TWO, 2)
add("FractionalMaxPool2d", TWO, 2, {output_size = 3})
add("Fold", {2, 16, 9}, {4, 4}, 2)
add("Unflatten", FLAT, 1, {2, 3})
add("CircularPad1d ConstantPad1d ReflectionPad1d ReplicationPad1d ZeroPad1d InstanceNorm1d", ONE, 2)
add("CircularPad2d ConstantPad2d ReflectionPad2d ReplicationPad2d ZeroPad2d", TWO, 2)
add("CircularPad3d ConstantPad3d ReflectionPad3d ReplicationPad3d ZeroPad3d", THREE, 1)
for d, shape in ipairs {ONE, TWO, THREE} do
  layers["ConstantPad" .. d .. "d"] = {shape = shape, 1, 0.5}
  layers["InstanceNorm" .. d .. "d"] = d < 3 and {shape = shape, 4, {affine = true}} or nil
  layers["LazyBatchNorm" .. d .. "d"] = {shape = shape}
  layers["LazyInstanceNorm" .. d .. "d"] = d < 3 and {shape = shape} or nil
  if d < 3 then
    layers["LazyConv" .. d .. "d"] = {shape = shape, 3, 2}
    layers["LazyConvTranspose" .. d .. "d"] = {shape = shape, 3, 2}
  end
end
add("BatchNorm2d", TWO, 4)
add("BatchNorm3d", THREE, 4)
add("GroupNorm", TWO, 2, 4)
add("ConvTranspose2d", TWO, 4, 3, 2)
add("LazyLinear", FLAT, 3)

local losses = {}
local function add_losses(names, first, second, third)
  for name in names:gmatch "%S+" do losses[name] = {first, second, third} end
end
local function logits() return rand(4, 6) end
local function classes() return lt.tensor({0, 2, 5, 1}, {dtype = "int64"}) end
local function signs() return lt.tensor {1, -1, 1, 1} end
add_losses("BCELoss BCEWithLogitsLoss HuberLoss KLDivLoss L1Loss MSELoss PairwiseDistance PoissonNLLLoss SmoothL1Loss "
  .. "CosineSimilarity", logits, logits)
add_losses("CrossEntropyLoss NLLLoss MultiMarginLoss", logits, classes)
add_losses("CosineEmbeddingLoss", logits, logits, signs)
add_losses("MarginRankingLoss", function() return rand(4) end, function() return rand(4) end, signs)
add_losses("HingeEmbeddingLoss SoftMarginLoss", function() return rand(4) end, signs)
add_losses("TripletMarginLoss TripletMarginWithDistanceLoss GaussianNLLLoss", logits, logits, logits)

-- Bases of others, which run nothing, and a class that says what it lacks.
local others = {Module = true, Optimizer = true, SyncBatchNorm = true}

-- A test whose name has all classes that it is a case of.
local function case(names, run)
  for name in names:gmatch "%u%w+" do others[name] = true end
  test(names, run)
end

-- step() runs three times, compiled: one graph, at most one more for what the first step makes, and no break.
local function one_graph(step, graphs)
  lt.reset()
  local compiled = lt.compile(step)
  for _ = 1, 3 do compiled() end
  for reason in pairs(lt.counters().graph_break) do error("graph break: " .. reason) end
  local made = lt.counters().stats.unique_graphs
  truthy(made >= 1 and made <= (graphs or 1), made .. " graphs")
end

local function first_tensor(r)
  if lt.is_tensor(r) then return r end
  return first_tensor(r[1])
end

local function train(module, w, run)
  local parameters = {w}
  for _, p in ipairs(module:parameters()) do parameters[#parameters + 1] = p end
  local opt = optim.AdamW(parameters, {lr = 0.01})
  return function()
    opt:zero_grad()
    local loss = first_tensor(run()):sum()
    loss:backward()
    nn.utils.clip_grad_norm_(parameters, 1)
    opt:step()
    return loss
  end
end

for name, layer in pairs(layers) do
  test(name, function()
    lt.manual_seed(1)
    local module = nn[name](unpack(layer))
    local x, w = lt.rand(layer.shape), lt.rand(layer.shape, {requires_grad = true})
    module(x)  -- lazy layers make their parameters
    one_graph(train(module, w, function() return module(x * w) end), 2)
  end)
end

for name, loss in pairs(losses) do
  test(name, function()
    lt.manual_seed(1)
    local module, target, third = nn[name](), loss[2](), loss[3] and loss[3]()
    local w = loss[1]():requires_grad_()
    one_graph(train(module, w, function() return module(w * 0.9, target, third) end), 2)
  end)
end

case("Embedding, Bilinear, CTCLoss", function()
  local embedding, bilinear, w = nn.Embedding(7, 4), nn.Bilinear(4, 4, 3), rand(5, 2, 6):requires_grad_()
  one_graph(train(embedding, w, function() return embedding(classes()) * w:sum() end), 2)
  one_graph(train(bilinear, w, function() return bilinear(rand(2, 4), rand(2, 4)) * w:sum() end), 2)
  local loss, targets = nn.CTCLoss(), lt.tensor({{1, 2}, {3, 4}}, {dtype = "int64"})
  local inputs, lengths = lt.tensor({5, 5}, {dtype = "int64"}), lt.tensor({2, 2}, {dtype = "int64"})
  one_graph(train(loss, w, function() return loss(w:log_softmax(2), targets, inputs, lengths) end), 2)
end)

case("Sequential, ModuleList, ModuleDict", function()
  local w, Net = rand(3, 4):requires_grad_(), nn.Module:extend "Net"
  function Net:init()
    self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    self.list = nn.ModuleList {nn.Linear(4, 4), nn.Tanh()}
    self.dict = nn.ModuleDict {first = nn.Linear(4, 4), last = nn.Sigmoid()}
  end
  function Net:forward(x)
    x = self.body(x)
    for _, layer in ipairs(self.list) do x = layer(x) end
    for i = 1, self.list:len() do x = self.list[i](x) end
    for _, layer in self.dict:items() do x = layer(x) end
    return self.dict.last(self.dict.first(x))
  end
  local net = Net()
  one_graph(train(net, w, function() return net(w * 2) end), 2)
end)

case("ParameterList, ParameterDict", function()
  local w, Net = rand(3, 4):requires_grad_(), nn.Module:extend "Net"
  function Net:init()
    self.list = nn.ParameterList {rand(4), rand(4)}
    self.dict = nn.ParameterDict {scale = rand(4), shift = rand(4)}
  end
  function Net:forward(x)
    for _, p in ipairs(self.list) do x = x * p end
    for _, p in self.dict:items() do x = x * p end
    return x * self.dict.scale + self.dict.shift + self.list[1]
  end
  local net = Net()
  one_graph(train(net, w, function() return net(w * 2) end), 2)
end)

-- As in PyTorch it has no gradient. So it is the teacher of a student here.
case("QuantizedLinear", function()
  for bits = 4, 8, 4 do
    local student, x = nn.Linear(32, 6), rand(3, 32)
    local teacher = nn.QuantizedLinear(nn.Linear(32, 6), {bits = bits, group_size = 32})
    one_graph(train(student, rand(1):requires_grad_(), function() return student(x) - teacher(x) end), 2)
  end
end)

local function reference_inputs(given)
  local inputs = {}
  for i, input in ipairs(given.inputs) do
    inputs[i] = input.wave and lt.rand(input.wave, {dtype = "float64"}) or lt.tensor(input.values)
    if inputs[i].dtype == "float32" then
      inputs[i] = given.name:find "^EmbeddingBag" and inputs[i]:long() or inputs[i]:double()
    end
  end
  return inputs
end

for _, given in ipairs(require "module_references".modules) do
  local known = false
  for name in given.make:gmatch "nn%.(%u%w*)" do
    known = known or layers[name] or losses[name]
    others[name] = true
  end
  if not known then
    test(given.name .. " with an optimiser", function()
      lt.manual_seed(1)
      local module = setfenv(assert(loadstring("return " .. given.make)), {nn = nn})()
      local inputs, w = reference_inputs(given), lt.rand({1}, {dtype = "float64", requires_grad = true})
      local call = assert(loadstring("local m, nn, a, b, c = ... return " .. given.call))
      one_graph(train(module, w, function() return first_tensor {call(module, nn, unpack(inputs))} * w end), 2)
    end)
  end
end

local function linear_step(model, opt)
  return function(x, y)
    opt:zero_grad()
    local loss = nn.functional.mse_loss(model(x), y)
    loss:backward()
    nn.utils.clip_grad_norm_(model:parameters(), 1)
    opt:step()
    return loss
  end
end

local function no_breaks(graphs)
  for reason in pairs(lt.counters().graph_break) do error("graph break: " .. reason) end
  truthy(lt.counters().stats.unique_graphs <= graphs, lt.counters().stats.unique_graphs .. " graphs")
end

lt._native.use("lazy").all(optim)
for name, class in pairs(optim) do
  if class.step and class ~= optim.Optimizer and name ~= "LBFGS" then
    case(name, function()
      local model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
      local opt = class(model:parameters(), {lr = 0.01})
      local scheduler = optim.lr_scheduler.ExponentialLR(opt, 0.9)
      local set = data.TensorDataset(rand(12, 4), rand(12, 2))
      lt.reset()
      local step = lt.compile(linear_step(model, opt))
      for _ = 1, 3 do
        for x, y in data.DataLoader(set, {batch_size = 4, shuffle = true}) do step(x, y) end
        scheduler:step()
      end
      no_breaks(3)
    end)
  end
end

-- LBFGS goes on by what it reads of losses and gradients: breaks for that alone, and its closure is one graph.
case("LBFGS", function()
  local w = rand(3):requires_grad_()
  local opt = optim.LBFGS({w}, {max_iter = 3})
  lt.reset()
  local step = lt.compile(function()
    return opt:step(function()
      opt:zero_grad()
      local loss = (w * w - w):sum()
      loss:backward()
      return loss
    end)
  end)
  for _ = 1, 3 do step() end
  for reason in pairs(lt.counters().graph_break) do truthy(reason:find "item", reason) end
end)

-- Datasets and loaders: those of batches outside the step, within it, and a whole epoch as a step.
case("TensorDataset, DataLoader, Subset", function()
  local model = nn.Linear(4, 2)
  local opt = optim.SGD(model:parameters(), {lr = 0.1})
  local set, step = data.TensorDataset(rand(12, 4), rand(12, 2)), linear_step(model, opt)
  local subset = data.Subset(set, {1, 3, 5, 7, 9, 11, 0, 2})
  for _, part in ipairs {set, subset, data.random_split(set, {0.5, 0.5})[1]} do
    local loader = data.DataLoader(part, {batch_size = 2, shuffle = true})
    lt.reset()
    local compiled = lt.compile(step)
    for _ = 1, 3 do
      for x, y in loader do compiled(x, y) end
    end
    no_breaks(1)
    local rows = lt.tensor({0, 3, 5}, {dtype = "int64"})
    one_graph(function() return step(part:batch(rows)) end)
    one_graph(function() return step(part:batch {0, 3, 5}) end)
    one_graph(function() return step(part:get(2)) end)
    one_graph(function()
      for x, y in loader do step(x, y) end
    end)
  end
end)

-- The step and the update read whether a gradient is not finite, so each breaks once.
case("GradScaler", function()
  local model = nn.Linear(4, 2)
  local opt, scaler = optim.SGD(model:parameters(), {lr = 0.1}), lt.amp.GradScaler "cpu"
  lt.reset()
  local step = lt.compile(function(x, y)
    opt:zero_grad()
    scaler:scale(nn.functional.mse_loss(model(x), y)):backward()
    scaler:unscale_(opt)
    nn.utils.clip_grad_norm_(model:parameters(), 1)
    scaler:step(opt)
    scaler:update()
  end)
  for _ = 1, 3 do step(rand(3, 4), rand(3, 2)) end
  for reason in pairs(lt.counters().graph_break) do equal(reason, "an answer about elements is needed") end
  truthy(lt.counters().stats.unique_graphs <= 3, lt.counters().stats.unique_graphs .. " graphs")
end)

-- A scheduler's makers; stepping with its metric where it takes one.
local S = optim.lr_scheduler
local schedulers = {
  StepLR = function(o) return S.StepLR(o, 2) end, MultiStepLR = function(o) return S.MultiStepLR(o, {2, 4}) end,
  ExponentialLR = function(o) return S.ExponentialLR(o, 0.9) end, ConstantLR = function(o) return S.ConstantLR(o) end,
  LinearLR = function(o) return S.LinearLR(o) end, PolynomialLR = function(o) return S.PolynomialLR(o) end,
  CosineAnnealingLR = function(o) return S.CosineAnnealingLR(o, 10) end,
  LambdaLR = function(o) return S.LambdaLR(o, function(n) return 0.9 ^ n end) end,
  CosineAnnealingWarmRestarts = function(o) return S.CosineAnnealingWarmRestarts(o, 3) end,
  MultiplicativeLR = function(o) return S.MultiplicativeLR(o, function() return 0.9 end) end,
  OneCycleLR = function(o) return S.OneCycleLR(o, {max_lr = 0.1, total_steps = 20}) end,
  SequentialLR = function(o) return S.SequentialLR(o, {S.ConstantLR(o), S.ExponentialLR(o, 0.9)}, {3}) end,
  ChainedScheduler = function(o) return S.ChainedScheduler {S.ConstantLR(o), S.ExponentialLR(o, 0.9)} end,
  ReduceLROnPlateau = function(o) return S.ReduceLROnPlateau(o, {patience = 1}) end,
}
local metrics = {1, 0.5, 0.75, 0.625, 0.375, 0.5, 0.5, 0.5}

-- The rates after each of 8 steps, the last of whose metric is a number.
local function rates_of(make, wrap)
  lt.manual_seed(1)
  local w = rand(3):requires_grad_()
  local opt = optim.SGD({w}, {lr = 0.1})
  local scheduler, rates = make(opt), {}
  lt.reset()
  local step = wrap(function(metric)
    opt:zero_grad()
    local loss = (w * w):sum()
    loss:backward()
    opt:step()
    scheduler:step(metric)
  end)
  for i, metric in ipairs(metrics) do
    step(make == schedulers.ReduceLROnPlateau and metric or nil)
    rates[i] = opt.param_groups[1].lr
  end
  rates[#rates + 1] = w:tolist()
  return rates
end

for name, class in pairs(S) do
  if class.step then
    case(name .. " within the step", function()
      local make = schedulers[name]
      truthy(make, "a case of " .. name)
      local eager = rates_of(make, function(step) return step end)
      h.deep(rates_of(make, lt.compile), eager)
      no_breaks(4)
    end)
  end
end

-- The loss itself as the metric is read where the scheduler compares it: after all that the step computes.
test("ReduceLROnPlateau of the step's loss is one graph and a break", function()
  local w = rand(3):requires_grad_()
  local opt = optim.SGD({w}, {lr = 0.1})
  local scheduler = S.ReduceLROnPlateau(opt)
  lt.reset()
  local step = lt.compile(function()
    opt:zero_grad()
    local loss = (w * w):sum()
    loss:backward()
    opt:step()
    scheduler:step(loss)
  end)
  for _ = 1, 8 do step() end
  equal(lt.counters().stats.unique_graphs, 1)
end)

test("each class has a case", function()
  for _, each in ipairs {nn, optim, S, data, lt.amp} do
    lt._native.use("lazy").all(each)
    for name, class in pairs(each) do
      local callable = type(class) == "table" and getmetatable(class) and getmetatable(class).__call
      if callable and name:find "^%u" then truthy(layers[name] or losses[name] or others[name], name) end
    end
  end
end)

h.finish()
