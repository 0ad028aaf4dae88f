-- lr_scheduler against PyTorch's recorded rates, nn.utils, RMSprop and Adagrad, containers.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, near, deep, raises = h.test, h.equal, h.truthy, h.near, h.deep, h.raises
local nn, optim = lt.nn, lt.optim
local S = optim.lr_scheduler
local references = require "scheduler_references"

local function parameter(...) return lt.tensor({...}, {dtype = "float64", requires_grad = true}) end
local function two_groups(class, options)
  options = options or {lr = 0.1, momentum = 0.9}
  return (class or optim.SGD)({{params = {parameter(0)}}, {params = {parameter(0)}, lr = 0.05}}, options)
end

local metrics = {1, .9, .8, .8, .8, .8, .8, .79999, .7, .7, .7, .7, .7, .7, .7, .7, .7, .7, .6, .6, .6, .6, .6, .6, .6}
local makers = {
  StepLR = function(o) return S.StepLR(o, 3, {gamma = 0.5}) end,
  MultiStepLR = function(o) return S.MultiStepLR(o, {2, 5, 5, 9}, 0.3) end,
  ConstantLR = function(o) return S.ConstantLR(o, {factor = 0.5, total_iters = 4}) end,
  ExponentialLR = function(o) return S.ExponentialLR(o, 0.9) end,
  LinearLR = function(o) return S.LinearLR(o, {start_factor = 0.25, end_factor = 0.8, total_iters = 6}) end,
  PolynomialLR = function(o) return S.PolynomialLR(o, 10, 2) end,
  CosineAnnealingLR = function(o) return S.CosineAnnealingLR(o, {T_max = 7, eta_min = 0.01}) end,
  CosineAnnealingWarmRestarts = function(o) return S.CosineAnnealingWarmRestarts(o, 3, 2, 0.001) end,
  OneCycleLR = function(o) return S.OneCycleLR(o, {1, 0.5}, 25) end,
  OneCycleLR3 = function(o)
    return S.OneCycleLR(o,
      {max_lr = 0.4, epochs = 5, steps_per_epoch = 5, pct_start = 0.4, anneal_strategy = "linear", three_phase = true,
                            div_factor = 10, final_div_factor = 100})
  end,
  LambdaLR = function(o) return S.LambdaLR(o, function(e) return 0.95 ^ e end) end,
  MultiplicativeLR = function(o) return S.MultiplicativeLR(o, function() return 0.95 end) end,
  ReduceLROnPlateau = function(o) return S.ReduceLROnPlateau(o, "min",
    {factor = 0.5, patience = 2, cooldown = 1, min_lr = 0.01}) end,
  SequentialLR = function(o)
    return S.SequentialLR(o,
      {schedulers = {S.ConstantLR(o, 0.1, 20), S.ExponentialLR(o, 0.9), S.StepLR(o, 2, 0.5)}, milestones = {4, 12}})
  end,
  ChainedScheduler = function(o) return S.ChainedScheduler({S.ConstantLR(o, 0.1, 5), S.ExponentialLR(o, 0.9)}) end,
}

-- Runs steps `from` to 25; another scheduler, made anew, goes on from a saved state at step 11.
for name, make in pairs(makers) do
  test(name, function()
    for _, resumed in ipairs {false, true} do
      local opt = two_groups()
      local s = make(opt)
      for i, want in ipairs(references[name]) do
        if resumed and i == 11 then
          local state, saved = s:state_dict(), opt:state_dict()
          opt = two_groups()
          s = make(opt)
          opt:load_state_dict(saved)
          s:load_state_dict(state)
        end
        for g = 1, 2 do
          near(opt.param_groups[g].lr, want[g], 1e-14, string.format("step %d, group %d", i - 1, g))
          near(s:get_last_lr()[g], want[g], 1e-14)
        end
        near(opt.param_groups[1].momentum, want[3], 1e-14, "momentum at step " .. (i - 1))
        opt:step()
        if i < 25 or name:find("OneCycle") == nil then s:step(name == "ReduceLROnPlateau" and metrics[i] or nil) end
      end
    end
  end)
end

test("schedulers: Adam's betas cycle; errors name what is wrong", function()
  local opt = two_groups(optim.AdamW, {lr = 0.1})
  S.OneCycleLR(opt, 1, 10)
  equal(opt.param_groups[1].betas[1], 0.95)
  raises("OneCycleLR: step 11 of 10", function()
    local s = S.OneCycleLR(two_groups(), 1, 10)
    for _ = 1, 11 do s:step() end
  end)
  raises("StepLR: argument 'optimizer' must be an optimiser, got number 3", S.StepLR, 3, 1)
  raises("StepLR: argument 'step_size' must be a number, got nil", S.StepLR, opt)
  raises("StepLR: unknown option 'gama' (known: gamma, last_epoch, step_size)", S.StepLR, opt, 3, {gama = 1})
  raises("total_steps is needed", S.OneCycleLR, opt, 1)
  raises("factor must be below 1", S.ReduceLROnPlateau, opt, "min", {factor = 2})
  raises("scheduler 1 is of another optimiser", S.SequentialLR, opt,
    {schedulers = {S.StepLR(two_groups(), 1)}, milestones = {}})
  raises("a list of one less than schedulers", S.SequentialLR, opt, {schedulers = {S.StepLR(opt, 1)}, milestones = {1}})
end)

test("a changing learning rate compiles once", function()
  for _, class in ipairs {optim.SGD, optim.RMSprop, optim.Adagrad, optim.AdamW} do
    lt.reset()
    local w = lt.rand(4, 4, {requires_grad = true})
    local opt = class({w}, {lr = 0.1})
    local s = S.ExponentialLR(opt, 0.9)
    local x = lt.rand(8, 4)
    local step = lt.compile(function(x)
      opt:zero_grad()
      local loss = (x:matmul(w)):pow(2):mean()
      loss:backward()
      local norm = nn.utils.clip_grad_norm_({w}, 0.5)
      opt:step()
      return loss, norm
    end)
    for _ = 1, 8 do
      step(x)
      s:step()
    end
    equal(#lt.recompiles(step) <= 1, true, class.name .. " recompiles")
    local breaks = 0
    for _ in pairs(lt.counters().graph_break) do breaks = breaks + 1 end
    equal(breaks, 0, class.name .. " graph breaks")
  end
end)

local check = h.follows

test("RMSprop", function()
  for _, o in ipairs {{}, {momentum = 0.9}, {centered = true}, {momentum = 0.5, centered = true, weight_decay = 0.1},
    {maximize = true, alpha = 0.5}} do
    o.lr = 0.05
    check(optim.RMSprop, o, function(p, g, s)
      local a = o.alpha or 0.99
      if o.maximize then g = -g end
      g = g + (o.weight_decay or 0) * p
      s.v = a * (s.v or 0) + (1 - a) * g * g
      local v = s.v
      if o.centered then
        s.m = (s.m or 0) + (g - (s.m or 0)) * (1 - a)
        v = v - s.m * s.m
      end
      local d = math.sqrt(v) + 1e-8
      s.b = (o.momentum or 0) * (s.b or 0) + g / d
      return p - 0.05 * s.b
    end)
  end
end)

test("Adagrad", function()
  for _, o in ipairs {{}, {lr_decay = 0.1, weight_decay = 0.2}, {initial_accumulator_value = 0.5, eps = 1e-3},
    {maximize = true}} do
    o.lr = 0.1
    check(optim.Adagrad, o, function(p, g, s, step)
      if o.maximize then g = -g end
      g = g + (o.weight_decay or 0) * p
      s.sum = (s.sum or o.initial_accumulator_value or 0) + g * g
      return p - o.lr / (1 + (step - 1) * (o.lr_decay or 0)) * g / (math.sqrt(s.sum) + (o.eps or 1e-10))
    end)
  end
end)

test("clip_grad_norm_ and clip_grad_value_", function()
  local function with_grads(...)
    local list = {}
    for i, g in ipairs {...} do
      list[i] = lt.zeros(#g, {requires_grad = true})
      list[i].grad = lt.tensor(g)
    end
    list[#list + 1] = lt.zeros(2, {requires_grad = true}) -- without a gradient
    return list
  end
  local list = with_grads({3, 0}, {0, 4, 0})
  near(nn.utils.clip_grad_norm_(list, 1):item(), 5, 1e-6)
  deep(list[1].grad:totable(), {0.6, 0}, 1e-6)
  deep(list[2].grad:totable(), {0, 0.8, 0}, 1e-6)
  list = with_grads({3, 0}, {0, 4, 0})
  near(nn.utils.clip_grad_norm_(list, 10):item(), 5, 1e-6)
  deep(list[1].grad:totable(), {3, 0})
  near(nn.utils.clip_grad_norm_(with_grads({3, -7}), 1, math.huge):item(), 7, 1e-6)
  near(nn.utils.clip_grad_norm_(with_grads({3, -7}), 1, {norm_type = 1}):item(), 10, 1e-6)
  near(nn.utils.clip_grad_norm_(with_grads({3, -7}, {2}), 1, 3):item(), (27 + 343 + 8) ^ (1 / 3), 1e-4)
  equal(nn.utils.clip_grad_norm_({}, 1):item(), 0)
  raises("is not finite", nn.utils.clip_grad_norm_, with_grads({math.huge}), 1, {error_if_nonfinite = true})
  raises("clip_grad_norm_: argument 'max_norm' must be a number, got nil", nn.utils.clip_grad_norm_, list)
  raises("clip_grad_norm_: argument 'parameters' must be a Tensor or a list of Tensors, got a Linear",
    nn.utils.clip_grad_norm_, nn.Linear(1, 1), 1)
  list = with_grads({3, -7, 0.5})
  nn.utils.clip_grad_value_(list, 1)
  deep(list[1].grad:totable(), {1, -1, 0.5})
  nn.utils.clip_grad_value_(list, 0.1, {foreach = true})
  raises("clip_grad_value_: unknown option 'norm'", nn.utils.clip_grad_value_, list, 1, {norm = 1})
  raises("clip_grad_norm_: parameters[2] is number 3, not a Tensor", nn.utils.clip_grad_norm_, {list[1], 3}, 1)
  raises("clip_grad_norm_: unknown option 'norm' (known:", nn.utils.clip_grad_norm_, list, 1, {norm = 1})
  local total = nn.utils.get_total_norm
  near(total({lt.tensor {3, 0}, lt.tensor {4}}):item(), 5, 1e-6)
  near(total({lt.tensor {3, -7}}, {norm_type = 1}):item(), 10, 1e-6)
  near(total({lt.tensor {3, -7}}, math.huge):item(), 7, 1e-6)
  raises("get_total_norm: the norm is not finite", total, {lt.tensor {math.huge}}, {error_if_nonfinite = true})
  raises("get_total_norm: argument 'tensors' must be a Tensor or a list of Tensors, got number 1", total, 1)
  raises("parameters_to_vector: parameters[1] is number 1, not a Tensor", nn.utils.parameters_to_vector, {1})
end)

test("parameters as a vector", function()
  local net = nn.Linear(3, 2)
  local v = nn.utils.parameters_to_vector(net:parameters())
  equal(v:numel(), 8)
  nn.utils.vector_to_parameters(lt.arange(8):float(), net:parameters())
  deep(net.weight:detach():totable(), {{0, 1, 2}, {3, 4, 5}})
  deep(net.bias:detach():totable(), {6, 7})
  truthy(net.weight.is_leaf and net.weight.requires_grad)
  raises("7 elements for parameters of 8", nn.utils.vector_to_parameters, lt.zeros(7), net:parameters())
end)

test("ModuleDict, and lists that change", function()
  local d = nn.ModuleDict({{"second", nn.Linear(1, 2)}, {"first", nn.ReLU()}})
  equal(d:len(), 2)
  local names = {}
  for name in d:keys() do names[#names + 1] = name end
  deep(names, {"second", "first"})
  truthy(d.second == d["second"])
  truthy(d:state_dict()["second.weight"])
  d:update({zz = nn.Identity(), aa = nn.Identity()})
  names = {}
  for name, m in d:items() do
    names[#names + 1] = name
    truthy(nn.is_module(m))
  end
  deep(names, {"second", "first", "zz", "aa"})
  d:pop("first")
  equal(d:len(), 3)
  raises("'forward' is a method's name", nn.ModuleDict, {forward = nn.ReLU()})
  raises("a module is needed, not number 3", nn.ModuleDict, {x = 3})
  raises("a string without dots", nn.ModuleDict, {["a.b"] = nn.ReLU()})
  local l = nn.ModuleList({nn.Linear(1, 1), nn.Linear(1, 2)})
  l:insert(2, nn.Linear(1, 7)):extend({nn.Linear(1, 9)})
  equal(#l, 4)
  equal(l[2].out_features, 7)
  equal(l:state_dict()["1.bias"]:numel(), 7)
  equal(l:pop(1).out_features, 1)
  equal(l:pop().out_features, 9)
  equal(l:len(), 2)
  equal(l:state_dict()["0.bias"]:numel(), 7)
  equal(l:state_dict()["2.bias"], nil)
  local Mine = nn.Sequential:extend("Mine")
  equal(Mine(nn.ReLU())._name, "Mine")
end)

test("load_state_dict says what it was given", function()
  local net = nn.Linear(2, 2)
  raises("load_state_dict of Linear: a table from names to tensors is needed, not nil", net.load_state_dict, net, nil)
  raises("weight is number 3, not a Tensor", net.load_state_dict, net, {weight = 3, bias = lt.zeros(2)})
  raises("weight has size {2, 2}, the state's {3}", net.load_state_dict, net,
    {weight = lt.zeros(3), bias = lt.zeros(2)})
  raises("missing: bias; unexpected: other", net.load_state_dict, net, {weight = lt.zeros(2, 2), other = lt.zeros(1)})
  local opt = optim.SGD(net:parameters(), {lr = 1})
  raises("what state_dict gave is needed, not nil", opt.load_state_dict, opt, nil)
  raises("a table with state and param_groups", opt.load_state_dict, opt, {})
  raises("param_groups[1] has no list of params", opt.load_state_dict, opt, {state = {}, param_groups = {{}}})
end)

test("dtypes of modules", function()
  local net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
  equal(net:to("float64")[1].weight.dtype, "float64")
  equal(net:float()[1].weight.dtype, "float32")
  equal(net:double():forward(lt.ones(1, 2, {dtype = "float64"})).dtype, "float64")
  equal(net:bfloat16()[1].bias.dtype, "bfloat16")
end)

h.finish()
