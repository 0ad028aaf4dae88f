-- A train step with each layer, loss, optimiser and scheduler of stdlib is one graph: forward, backward, clipping of
-- the gradients and the update. modules.lua has its own cases of further layers; a class without a case fails.
local lt = require "lutra"
local h = require "harness"
local test, truthy = h.test, h.truthy
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

-- Those that no forward of one tensor is for; what tests them.
local others = {Module = "all", ModuleDict = "containers.lua", ModuleList = "containers.lua", Sequential = "below",
  ParameterDict = "containers.lua", ParameterList = "containers.lua", Embedding = "below", Bilinear = "below",
  CTCLoss = "below", SyncBatchNorm = "an error", QuantizedLinear = "quantized.lua"}

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

test("Embedding, Bilinear, CTCLoss, Sequential", function()
  local embedding, bilinear, w = nn.Embedding(7, 4), nn.Bilinear(4, 4, 3), rand(5, 2, 6):requires_grad_()
  local model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
  one_graph(train(embedding, w, function() return embedding(classes()) * w:sum() end), 2)
  one_graph(train(bilinear, w, function() return bilinear(rand(2, 4), rand(2, 4)) * w:sum() end), 2)
  one_graph(train(model, w, function() return model(rand(3, 4)) * w:sum() end), 2)
  local loss, targets = nn.CTCLoss(), lt.tensor({{1, 2}, {3, 4}}, {dtype = "int64"})
  local inputs, lengths = lt.tensor({5, 5}, {dtype = "int64"}), lt.tensor({2, 2}, {dtype = "int64"})
  one_graph(train(loss, w, function() return loss(w:log_softmax(2), targets, inputs, lengths) end), 2)
end)

for name in ("SGD RMSprop Adagrad Adadelta Rprop ASGD Adam AdamW NAdam RAdam Adamax"):gmatch "%S+" do
  test(name, function()
    local model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    local opt = optim[name](model:parameters(), {lr = 0.01})
    local scheduler = optim.lr_scheduler.ExponentialLR(opt, 0.9)
    local set = data.TensorDataset(rand(12, 4), rand(12, 2))
    lt.reset()
    local step = lt.compile(function(x, y)
      opt:zero_grad()
      local loss = nn.functional.mse_loss(model(x), y)
      loss:backward()
      nn.utils.clip_grad_norm_(model:parameters(), 1)
      opt:step()
      return loss
    end)
    for _ = 1, 3 do
      for x, y in data.DataLoader(set, {batch_size = 4, shuffle = true}) do step(x, y) end
      scheduler:step()
    end
    for reason in pairs(lt.counters().graph_break) do error("graph break: " .. reason) end
    truthy(lt.counters().stats.unique_graphs <= 3, lt.counters().stats.unique_graphs .. " graphs")
  end)
end

local S = optim.lr_scheduler
for name, make in pairs {
  StepLR = function(o) return S.StepLR(o, 2) end, MultiStepLR = function(o) return S.MultiStepLR(o, {2, 4}) end,
  ExponentialLR = function(o) return S.ExponentialLR(o, 0.9) end, ConstantLR = function(o) return S.ConstantLR(o) end,
  LinearLR = function(o) return S.LinearLR(o) end, PolynomialLR = function(o) return S.PolynomialLR(o) end,
  CosineAnnealingLR = function(o) return S.CosineAnnealingLR(o, 10) end,
  LambdaLR = function(o) return S.LambdaLR(o, function(n) return 0.9 ^ n end) end,
  CosineAnnealingWarmRestarts = function(o) return S.CosineAnnealingWarmRestarts(o, 3) end,
  MultiplicativeLR = function(o) return S.MultiplicativeLR(o, function() return 0.9 end) end,
  OneCycleLR = function(o) return S.OneCycleLR(o, {max_lr = 0.1, total_steps = 20}) end,
} do
  test(name .. " within the step", function()
    local w = rand(3):requires_grad_()
    local opt = optim.SGD({w}, {lr = 0.1})
    local scheduler = make(opt)
    lt.reset()
    local step = lt.compile(function()
      opt:zero_grad()
      local loss = (w * w):sum()
      loss:backward()
      opt:step()
      scheduler:step()
    end)
    for _ = 1, 8 do step() end
    for reason in pairs(lt.counters().graph_break) do error("graph break: " .. reason) end
    truthy(lt.counters().stats.unique_graphs <= 4, lt.counters().stats.unique_graphs .. " graphs")
  end)
end

test("each class has a case", function()
  for _, case in ipairs(require "module_references".modules) do
    for name in case.make:gmatch "nn%.(%u%w*)" do others[name] = "modules.lua" end
  end
  lt._native.use("lazy").all(nn)
  for name, class in pairs(nn) do
    if type(class) == "table" and name:find "^%u" then truthy(layers[name] or losses[name] or others[name], name) end
  end
end)

h.finish()
