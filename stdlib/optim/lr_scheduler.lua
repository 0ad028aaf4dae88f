-- optim.lr_scheduler: PyTorch's schedules of learning rates. A scheduler writes group.lr, a plain number. So a compiled
-- step takes it as an input and never recompiles. The constructor sets the rates of step 0. step() advances by one.
-- 1. A class is a table with init(self, options) and rates(self): the list of rates at self.last_epoch, one for each
--    group. If PyTorch computes a rate from the previous one, rates does too, so that a rate set by hand is scaled
--    further.
-- 2. state_dict is all plain data of the scheduler: numbers, strings, booleans, lists of them.
local _, use = ...
local errors = use "errors"
local fail = errors.fail
local keywords = use "keywords"
local none = keywords.none

local M = {}

local Scheduler = {}

function Scheduler:get_last_lr() return self._last_lr end

local function current(self)
  local out = {}
  for i, group in ipairs(self.optimizer.param_groups) do out[i] = group.lr end
  return out
end

local function set_rates(self, rates)
  for i, group in ipairs(self.optimizer.param_groups) do group.lr = rates[i] end
  self._last_lr = rates
end

function Scheduler:step(epoch)
  if epoch ~= nil then
    if type(epoch) ~= "number" then fail(self._name .. ": an epoch is a number, not a " .. type(epoch)) end
    self.last_epoch = epoch
    set_rates(self, self.closed_rates and self:closed_rates() or self:rates())
    return
  end
  self.last_epoch = self.last_epoch + 1
  set_rates(self, self:rates())
end

local function copy(v)
  if type(v) ~= "table" then return v end
  local out = {}
  for key, value in pairs(v) do out[key] = copy(value) end
  return out
end

local function storable(v)
  if type(v) ~= "table" then return type(v) == "number" or type(v) == "string" or type(v) == "boolean" end
  if getmetatable(v) then return false end
  for _, value in pairs(v) do
    if not storable(value) then return false end
  end
  return true
end

function Scheduler:state_dict()
  local out = {}
  for key, value in pairs(self) do
    if key ~= "optimizer" and storable(value) then out[key] = copy(value) end
  end
  return out
end

function Scheduler:load_state_dict(state)
  if type(state) ~= "table" then fail(self._name .. ".load_state_dict: a table is needed, not a " .. type(state)) end
  for key, value in pairs(state) do
    if key ~= "schedulers" then self[key] = copy(value) end
  end
end

local function is_optimizer(v) return type(v) == "table" and type(v.param_groups) == "table"
  and type(v.step) == "function" end

-- Reads positional arguments in PyTorch's order, then options by name. Missing ones get their defaults.
local function read_options(name, order, known, ...)
  local options = {}
  local n = select("#", ...)
  local last = n > 0 and select(n, ...) or nil
  local by_name = nil
  if n > 0 and type(last) == "table" and #last == 0 and getmetatable(last) == nil then
    by_name, n = last, n - 1
  end
  for i = 1, n do
    if not order[i] then fail("%s: too many arguments", name) end
    options[order[i]] = (select(i, ...))
  end
  for key, value in pairs(by_name or {}) do options[key] = value end
  return keywords.check(name, options, known)
end

local function class_of(name, order, known)
  local class = setmetatable({_name = name}, {__index = Scheduler})
  class.__index = class
  known.last_epoch = known.last_epoch or -1
  class._known, class._order = known, order -- for help
  getmetatable(class).__call = function(_, optimizer, ...)
    if not is_optimizer(optimizer) then errors.wrong(name, "optimizer", "an optimiser", optimizer) end
    local self = setmetatable({optimizer = optimizer}, class)
    local options = read_options(name, order, known, ...)
    self.last_epoch = options.last_epoch
    self.base_lrs = {}
    for i, group in ipairs(optimizer.param_groups) do
      if self.last_epoch == -1 and group.initial_lr == nil then group.initial_lr = group.lr end
      if group.initial_lr == nil then fail(name .. ": to go on at an epoch, the groups need an initial_lr") end
      self.base_lrs[i] = group.initial_lr
    end
    class.init(self, options)
    if class.rates then self:step() end
    return self
  end
  M[name] = class
  return class
end

local function need_number(name, options, key, least)
  local v = options[key]
  if type(v) ~= "number" then errors.wrong(name, key, "a number", v) end
  if least and v < least then fail("%s: %s must be at least %g, got %g", name, key, least, v) end
  return v
end

local function one_of(name, options, key, one, other)
  local v = options[key]
  if v ~= one and v ~= other then
    fail("%s: %s is '%s' or '%s', got %s%s", name, key, one, other, errors.show(v), errors.question(v, {one, other}))
  end
end

local function map(list, f)
  local out = {}
  for i, v in ipairs(list) do out[i] = f(v, i) end
  return out
end

-- Steps ---------------------------------------------------------------------------------------------------------------

local StepLR = class_of("StepLR", {"step_size", "gamma", "last_epoch"}, {step_size = none, gamma = 0.1})
function StepLR:init(options)
  self.step_size, self.gamma = need_number("StepLR", options, "step_size", 1), need_number("StepLR", options, "gamma")
end
function StepLR:rates()
  local falls = self.last_epoch ~= 0 and self.last_epoch % self.step_size == 0
  return map(current(self), function(lr) return falls and lr * self.gamma or lr end)
end
function StepLR:closed_rates()
  return map(self.base_lrs, function(lr) return lr * self.gamma ^ math.floor(self.last_epoch / self.step_size) end)
end

local MultiStepLR = class_of("MultiStepLR", {"milestones", "gamma", "last_epoch"}, {milestones = none, gamma = 0.1})
function MultiStepLR:init(options)
  if type(options.milestones) ~= "table" then
    errors.wrong("MultiStepLR", "milestones", "a list of epochs", options.milestones)
  end
  for _, m in ipairs(options.milestones) do errors.number("MultiStepLR", "milestones", m) end
  self.milestones, self.gamma = copy(options.milestones), need_number("MultiStepLR", options, "gamma")
  table.sort(self.milestones)
end
local function falls_at(self, epoch)
  local n = 0
  for _, m in ipairs(self.milestones) do n = n + (m == epoch and 1 or 0) end
  return n
end
function MultiStepLR:rates()
  local n = falls_at(self, self.last_epoch)
  return map(current(self), function(lr) return n > 0 and lr * self.gamma ^ n or lr end)
end
function MultiStepLR:closed_rates()
  local n = 0
  for _, m in ipairs(self.milestones) do n = n + (m <= self.last_epoch and 1 or 0) end
  return map(self.base_lrs, function(lr) return lr * self.gamma ^ n end)
end

local ConstantLR = class_of("ConstantLR", {"factor", "total_iters", "last_epoch"}, {factor = 1 / 3, total_iters = 5})
function ConstantLR:init(options)
  self.factor, self.total_iters = need_number("ConstantLR", options, "factor", 0),
    need_number("ConstantLR", options, "total_iters", 0)
  if self.factor > 1 then fail("ConstantLR: factor must be at most 1") end
end
function ConstantLR:rates()
  if self.last_epoch == 0 then return map(current(self), function(lr) return lr * self.factor end) end
  if self.last_epoch ~= self.total_iters then return current(self) end
  return map(current(self), function(lr) return lr * (1 / self.factor) end)
end

function ConstantLR:closed_rates()
  local factor = self.last_epoch >= self.total_iters and 1 or self.factor
  return map(self.base_lrs, function(lr) return lr * factor end)
end

local ExponentialLR = class_of("ExponentialLR", {"gamma", "last_epoch"}, {gamma = none})
function ExponentialLR:init(options) self.gamma = need_number("ExponentialLR", options, "gamma") end
function ExponentialLR:rates()
  if self.last_epoch == 0 then return current(self) end
  return map(current(self), function(lr) return lr * self.gamma end)
end
function ExponentialLR:closed_rates()
  return map(self.base_lrs, function(lr) return lr * self.gamma ^ self.last_epoch end)
end

local LinearLR = class_of("LinearLR", {"start_factor", "end_factor", "total_iters", "last_epoch"},
  {start_factor = 1 / 3, end_factor = 1, total_iters = 5})
function LinearLR:init(options)
  self.start_factor, self.end_factor = need_number("LinearLR", options, "start_factor"),
    need_number("LinearLR", options, "end_factor", 0)
  self.total_iters = need_number("LinearLR", options, "total_iters", 0)
  if self.start_factor > 1 or self.start_factor <= 0 then
    fail("LinearLR: start_factor must be over 0 and at most 1")
  end
  if self.end_factor > 1 then fail("LinearLR: end_factor must be at most 1") end
end
function LinearLR:rates()
  local epoch, first, last, n = self.last_epoch, self.start_factor, self.end_factor, self.total_iters
  if epoch == 0 then return map(current(self), function(lr) return lr * first end) end
  if epoch > n then return current(self) end
  return map(current(self),
    function(lr) return lr * (1 + (last - first) / (n * first + (epoch - 1) * (last - first))) end)
end
function LinearLR:closed_rates()
  local first, last, n = self.start_factor, self.end_factor, self.total_iters
  return map(self.base_lrs, function(lr) return lr * (first + (last - first) * math.min(n, self.last_epoch) / n) end)
end

local PolynomialLR = class_of("PolynomialLR", {"total_iters", "power", "last_epoch"}, {total_iters = 5, power = 1})
function PolynomialLR:init(options)
  self.total_iters, self.power = need_number("PolynomialLR", options, "total_iters", 0),
    need_number("PolynomialLR", options, "power")
end
function PolynomialLR:rates()
  local epoch, n = self.last_epoch, self.total_iters
  if epoch == 0 or epoch > n then return current(self) end
  local factor = ((1 - epoch / n) / (1 - (epoch - 1) / n)) ^ self.power
  return map(current(self), function(lr) return lr * factor end)
end

function PolynomialLR:closed_rates()
  return map(self.base_lrs, function(lr)
    return lr * (1 - math.min(self.total_iters, self.last_epoch) / self.total_iters) ^ self.power
  end)
end

-- Cosines -------------------------------------------------------------------------------------------------------------

local CosineAnnealingLR = class_of("CosineAnnealingLR", {"T_max", "eta_min", "last_epoch"}, {T_max = none, eta_min = 0})
function CosineAnnealingLR:init(options)
  self.T_max, self.eta_min = need_number("CosineAnnealingLR", options, "T_max", 1),
    need_number("CosineAnnealingLR", options, "eta_min")
end
function CosineAnnealingLR:rates()
  local epoch, T, low = self.last_epoch, self.T_max, self.eta_min
  if epoch == 0 then return current(self) end
  if (epoch - 1 - T) % (2 * T) == 0 then
    return map(current(self), function(lr, i) return lr
      + (self.base_lrs[i] - low) * (1 - math.cos(math.pi / T)) / 2 end)
  end
  local factor = (1 + math.cos(math.pi * epoch / T)) / (1 + math.cos(math.pi * (epoch - 1) / T))
  return map(current(self), function(lr) return factor * (lr - low) + low end)
end
function CosineAnnealingLR:closed_rates()
  return map(self.base_lrs, function(lr)
    return self.eta_min + (lr - self.eta_min) * (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
  end)
end

local Restarts = class_of("CosineAnnealingWarmRestarts", {"T_0", "T_mult", "eta_min", "last_epoch"},
  {T_0 = none, T_mult = 1, eta_min = 0})
function Restarts:init(options)
  local name = "CosineAnnealingWarmRestarts"
  self.T_0, self.T_mult = need_number(name, options, "T_0", 1), need_number(name, options, "T_mult", 1)
  self.eta_min = need_number(name, options, "eta_min")
  if self.T_0 % 1 ~= 0 or self.T_mult % 1 ~= 0 then fail(name .. ": T_0 and T_mult are whole numbers") end
  self.T_i, self.T_cur = self.T_0, self.last_epoch
end
function Restarts:rates()
  return map(self.base_lrs, function(lr)
    return self.eta_min + (lr - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
  end)
end
-- step(epoch) may take a fraction of an epoch.
function Restarts:step(epoch)
  if epoch == nil then
    epoch = self.last_epoch + 1
    if self.last_epoch < 0 then epoch = 0 end
    self.T_cur = epoch == 0 and 0 or self.T_cur + 1
    if self.T_cur >= self.T_i then
      self.T_cur = self.T_cur - self.T_i
      self.T_i = self.T_i * self.T_mult
    end
  else
    if type(epoch) ~= "number" or epoch < 0 then fail("CosineAnnealingWarmRestarts: an epoch is a number >= 0") end
    self.T_i, self.T_cur = self.T_0, epoch
    if epoch >= self.T_0 then
      if self.T_mult == 1 then
        self.T_cur = epoch % self.T_0
      else
        local n = math.floor(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1) / math.log(self.T_mult))
        self.T_cur = epoch - self.T_0 * (self.T_mult ^ n - 1) / (self.T_mult - 1)
        self.T_i = self.T_0 * self.T_mult ^ n
      end
    end
  end
  self.last_epoch = math.floor(epoch)
  set_rates(self, self:rates())
end

-- One cycle -----------------------------------------------------------------------------------------------------------

local OneCycleLR = class_of("OneCycleLR",
  {"max_lr", "total_steps", "epochs", "steps_per_epoch", "pct_start", "anneal_strategy", "cycle_momentum",
    "base_momentum", "max_momentum",
   "div_factor", "final_div_factor", "three_phase", "last_epoch"},
  {max_lr = none, total_steps = none, epochs = none, steps_per_epoch = none, pct_start = 0.3, anneal_strategy = "cos",
    cycle_momentum = true,
   base_momentum = 0.85, max_momentum = 0.95, div_factor = 25, final_div_factor = 1e4, three_phase = false})

-- Returns a list: one number for all groups, or one for each.
local function per_group(self, name, value)
  if type(value) == "number" then return map(self.optimizer.param_groups, function() return value end) end
  if type(value) ~= "table" or #value ~= #self.optimizer.param_groups then
    fail("OneCycleLR: %s is a number, or a list of one a group", name)
  end
  return copy(value)
end

local anneals = {
  cos = function(first, last, pct) return last + (first - last) / 2 * (math.cos(math.pi * pct) + 1) end,
  linear = function(first, last, pct) return (last - first) * pct + first end,
}

local function momentum_of(group, value)
  if group.betas then
    if value ~= nil then group.betas = {value, group.betas[2]} end
    return group.betas[1]
  end
  if value ~= nil then group.momentum = value end
  return group.momentum
end

function OneCycleLR:init(options)
  if options.total_steps ~= nil then
    self.total_steps = need_number("OneCycleLR", options, "total_steps", 1)
  elseif options.epochs ~= nil and options.steps_per_epoch ~= nil then
    self.total_steps = need_number("OneCycleLR", options, "epochs", 1) * need_number("OneCycleLR", options,
      "steps_per_epoch", 1)
  else
    fail("OneCycleLR: total_steps is needed, or epochs and steps_per_epoch")
  end
  local pct = need_number("OneCycleLR", options, "pct_start", 0)
  if pct > 1 then fail("OneCycleLR: pct_start must be at most 1") end
  one_of("OneCycleLR", options, "anneal_strategy", "cos", "linear")
  self.anneal_strategy, self.cycle_momentum = options.anneal_strategy, options.cycle_momentum
  local last = self.total_steps - 1
  if options.three_phase then
    self.phases = {{pct * self.total_steps - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"},
                   {2 * pct * self.total_steps - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"},
                   {last, "initial_lr", "min_lr", "max_momentum", "max_momentum"}}
  else
    self.phases = {{pct * self.total_steps - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum"},
                   {last, "max_lr", "min_lr", "base_momentum", "max_momentum"}}
  end
  local max = per_group(self, "max_lr", options.max_lr)
  for i, group in ipairs(self.optimizer.param_groups) do
    if self.last_epoch == -1 then
      group.initial_lr = max[i] / options.div_factor
      group.max_lr, group.min_lr = max[i], group.initial_lr / options.final_div_factor
    end
  end
  if self.cycle_momentum then
    local low, high = per_group(self, "base_momentum", options.base_momentum),
      per_group(self, "max_momentum", options.max_momentum)
    for i, group in ipairs(self.optimizer.param_groups) do
      if momentum_of(group) == nil then
        fail("OneCycleLR: the optimiser has no momentum to cycle; give cycle_momentum=false")
      end
      if self.last_epoch == -1 then
        group.base_momentum, group.max_momentum = low[i], high[i]
        momentum_of(group, high[i])
      end
    end
  end
end

function OneCycleLR:rates()
  local step, anneal = self.last_epoch, anneals[self.anneal_strategy]
  if step > self.total_steps then
    fail("OneCycleLR: step %d of %d steps in all", step, self.total_steps)
  end
  return map(self.optimizer.param_groups, function(group)
    local start = 0
    for i, phase in ipairs(self.phases) do
      local finish = phase[1]
      if step <= finish or i == #self.phases then
        local pct = (step - start) / (finish - start)
        if self.cycle_momentum then momentum_of(group, anneal(group[phase[4]], group[phase[5]], pct)) end
        return anneal(group[phase[2]], group[phase[3]], pct)
      end
      start = finish
    end
  end)
end

-- Custom functions ----------------------------------------------------------------------------------------------------

-- Returns a list: one function for all groups, or one for each.
local function functions_of(self, name, f)
  if type(f) == "function" then return map(self.optimizer.param_groups, function() return f end) end
  if type(f) ~= "table" or #f ~= #self.optimizer.param_groups then
    fail("%s: lr_lambda is a function, or a list of one a group", name)
  end
  return f
end

-- read_options treats a trailing table without a list part as options. A list of functions is an argument.
local LambdaLR = class_of("LambdaLR", {"lr_lambda", "last_epoch"}, {lr_lambda = none})
function LambdaLR:init(options) self.lr_lambdas = functions_of(self, "LambdaLR", options.lr_lambda) end
function LambdaLR:rates()
  return map(self.base_lrs, function(lr, i) return lr * self.lr_lambdas[i](self.last_epoch) end)
end

local MultiplicativeLR = class_of("MultiplicativeLR", {"lr_lambda", "last_epoch"}, {lr_lambda = none})
function MultiplicativeLR:init(options) self.lr_lambdas = functions_of(self, "MultiplicativeLR", options.lr_lambda) end
function MultiplicativeLR:rates()
  if self.last_epoch == 0 then return current(self) end
  return map(current(self), function(lr, i) return lr * self.lr_lambdas[i](self.last_epoch) end)
end

-- Plateaus ------------------------------------------------------------------------------------------------------------

local Plateau = class_of("ReduceLROnPlateau",
  {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"},
  {mode = "min", factor = 0.1, patience = 10, threshold = 1e-4, threshold_mode = "rel", cooldown = 0, min_lr = 0,
    eps = 1e-8})
Plateau.rates = nil

function Plateau:init(options)
  local name = "ReduceLROnPlateau"
  if need_number(name, options, "factor") >= 1 then fail(name .. ": factor must be below 1") end
  one_of(name, options, "mode", "min", "max")
  one_of(name, options, "threshold_mode", "rel", "abs")
  for _, key in ipairs {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "eps"} do
    self[key] = options[key]
  end
  self.min_lrs = type(options.min_lr) == "table" and copy(options.min_lr)
    or map(self.base_lrs, function() return options.min_lr end)
  self.best = options.mode == "min" and math.huge or -math.huge
  self.cooldown_counter, self.num_bad_epochs, self.last_epoch = 0, 0, 0
  self._last_lr = current(self)
end

local function is_better(self, value)
  local sign = self.mode == "min" and -1 or 1
  if self.threshold_mode == "rel" then return sign * value > sign * self.best * (1 + sign * self.threshold) end
  return sign * value > sign * (self.best + sign * self.threshold)
end

function Plateau:step(metric)
  if type(metric) == "userdata" then metric = metric:item() end
  if type(metric) ~= "number" then fail("ReduceLROnPlateau: step takes the metric, a number") end
  self.last_epoch = self.last_epoch + 1
  if is_better(self, metric) then
    self.best, self.num_bad_epochs = metric, 0
  else
    self.num_bad_epochs = self.num_bad_epochs + 1
  end
  if self.cooldown_counter > 0 then
    self.cooldown_counter = self.cooldown_counter - 1
    self.num_bad_epochs = 0
  end
  if self.num_bad_epochs > self.patience then
    for i, group in ipairs(self.optimizer.param_groups) do
      local lower = math.max(group.lr * self.factor, self.min_lrs[i])
      if group.lr - lower > self.eps then group.lr = lower end
    end
    self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
  end
  self._last_lr = current(self)
end

-- Schedules of schedules ----------------------------------------------------------------------------------------------

local function check_schedulers(name, optimizer, schedulers)
  if type(schedulers) ~= "table" or #schedulers == 0 then
    fail(name .. ": schedulers are a list of schedulers, not empty")
  end
  for i, s in ipairs(schedulers) do
    if type(s) ~= "table" or s.optimizer ~= optimizer then
      fail("%s: scheduler %d is of another optimiser", name, i)
    end
  end
end

local function states_of(self)
  local state = Scheduler.state_dict(self)
  state.schedulers = map(self.schedulers, function(s) return s:state_dict() end)
  return state
end
local function load_states(self, state)
  Scheduler.load_state_dict(self, state)
  for i, s in ipairs(self.schedulers) do s:load_state_dict(state.schedulers[i]) end
end

local SequentialLR = class_of("SequentialLR", {"schedulers", "milestones", "last_epoch"},
  {schedulers = none, milestones = none})
SequentialLR.state_dict, SequentialLR.load_state_dict = states_of, load_states
function SequentialLR:init(options)
  check_schedulers("SequentialLR", self.optimizer, options.schedulers)
  if type(options.milestones) ~= "table" or #options.milestones ~= #options.schedulers - 1 then
    fail("SequentialLR: milestones are a list of one less than schedulers")
  end
  self.schedulers, self.milestones = options.schedulers, copy(options.milestones)
  -- All schedulers have set their first rates. Goes back to the start, so that only the first one applies.
  for _, group in ipairs(self.optimizer.param_groups) do group.lr = group.initial_lr end
  for _, s in ipairs(self.schedulers) do s.last_epoch = s.last_epoch - 1 end
  self.last_epoch = self.last_epoch + 1
  self.schedulers[1]:step()
  self._last_lr = self.schedulers[1]._last_lr
end
function SequentialLR:step()
  self.last_epoch = self.last_epoch + 1
  local at = 1
  while self.milestones[at] and self.milestones[at] <= self.last_epoch do at = at + 1 end
  local s = self.schedulers[at]
  if at > 1 and self.milestones[at - 1] == self.last_epoch then s:step(0) else s:step() end
  self._last_lr = s._last_lr
end

local ChainedScheduler = setmetatable({_name = "ChainedScheduler"}, {__index = Scheduler})
ChainedScheduler.__index = ChainedScheduler
ChainedScheduler.state_dict, ChainedScheduler.load_state_dict = states_of, load_states
getmetatable(ChainedScheduler).__call = function(class, schedulers)
  local first = type(schedulers) == "table" and schedulers[1]
  check_schedulers("ChainedScheduler", first and first.optimizer, schedulers)
  return setmetatable({optimizer = first.optimizer, schedulers = schedulers,
    _last_lr = schedulers[#schedulers]._last_lr}, class)
end
function ChainedScheduler:step()
  for _, s in ipairs(self.schedulers) do s:step() end
  self._last_lr = current(self)
end
M.ChainedScheduler = ChainedScheduler

return M
