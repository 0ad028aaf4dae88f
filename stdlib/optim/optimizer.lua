-- The base of all optimisers: parameter groups, state, zero_grad, state_dict in PyTorch's layout.
-- A class gives: name, defaults (every option with its default), check(options), new_state(p, group), update_group(self, group).
-- 1. state[p] exists from the moment that p is added, so that the first step takes the same path as every other.
-- 2. What step reads are plain fields and numbers: capture makes lr, betas and step counters scalar inputs.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local keywords = use "keywords"
local module = use "nn.module"
local no_grad = lt.no_grad

local Optimizer = {}
Optimizer.__index = Optimizer

-- What exists of optimisers: their states follow parameters that module:to(...) converts.
local all = setmetatable({}, {__mode = "k"})

function lt._native.follow_parameters(params)
  for optimizer in pairs(all) do
    for _, p in ipairs(params) do
      for name, value in pairs(optimizer.state[p] or {}) do
        if type(value) == "userdata" then optimizer.state[p][name] = value:to(p.device, p.dtype) end
      end
    end
  end
end

local function add_checked_group(self, given)
  local class = getmetatable(self)
  local options = {}
  for name, value in pairs(given) do
    if name ~= "params" then options[name] = value end
  end
  local group = keywords.check(class.name, options, self.known)
  class.check(group)
  local params = given.params
  if type(params) == "userdata" then params = {params} end
  if type(params) ~= "table" then errors.wrong(class.name, "params", "a list of Tensors", params) end
  group.params = {}
  for i, p in ipairs(params) do
    if not lt.is_tensor(p) then
      fail("%s: params[%d] is %s, not a Tensor", class.name, i, errors.show(p))
    end
    if not p.is_leaf then fail("%s: params[%d] is not a leaf", class.name, i) end
    if self.state[p] then fail(class.name .. ": a parameter appears twice") end
    group.params[i] = p
    self.state[p] = class.new_state(p, group)
  end
  self.param_groups[#self.param_groups + 1] = group
end

function Optimizer:add_param_group(group)
  errors.object("Optimizer", "add_param_group", self)
  if type(group) ~= "table" then errors.wrong("add_param_group", "group", "a table with params", group) end
  add_checked_group(self, group)
end

local function construct(class, params, options)
  if type(params) ~= "table" or #params == 0 then
    errors.wrong(class.name, "params", "a list of Tensors or of groups {params = {...}, lr = ...}, not empty", params)
  end
  local defaults = keywords.check(class.name, options, class.defaults)
  class.check(defaults)
  -- A group's options default to those given for all.
  local known = {}
  for name in pairs(class.defaults) do
    if defaults[name] == nil then known[name] = keywords.none else known[name] = defaults[name] end
  end
  local self = setmetatable({param_groups = {}, state = {}, defaults = defaults, known = known}, class)
  all[self] = true
  if type(params[1]) ~= "table" then params = {{params = params}} end
  for _, group in ipairs(params) do
    if type(group) ~= "table" or group.params == nil then
      fail("%s: a group is a table with params, got %s", class.name, errors.show(group))
    end
    add_checked_group(self, group)
  end
  return self
end

local function extend(name, defaults)
  local class = {name = name, defaults = defaults}
  class.__index = class
  return setmetatable(class, {__index = Optimizer, __call = construct})
end

local function update(self)
  local groups = self.param_groups
  for i = 1, #groups do
    local lr = groups[i].lr
    if type(lr) ~= "number" then errors.wrong(self.name, "lr", "a number", lr) end
    self:update_group(groups[i])
  end
end

-- With a closure: it is called first, with grad mode as it is, and its loss returned.
function Optimizer:step(closure)
  if self == nil then errors.object("Optimizer", "step", self) end
  local loss = nil
  if closure ~= nil then
    if type(closure) ~= "function" then errors.callable("Optimizer.step", "closure", closure) end
    loss = closure()
  end
  no_grad(update, self)
  return loss
end

-- Gradients are dropped; with {set_to_none = false} they become zeros where they are.
function Optimizer:zero_grad(options)
  if self == nil then errors.object("Optimizer", "zero_grad", self) end
  local drop = options == nil or module.drops_gradients(options)
  local groups = self.param_groups
  for i = 1, #groups do
    local params = groups[i].params
    for j = 1, #params do
      if drop then params[j].grad = nil else module.zero_gradient(params[j]) end
    end
  end
end

-- {state = {[0] = {step = ..., exp_avg = ...}, ...}, param_groups = {{lr = ..., params = {0, 1, ...}}, ...}}
function Optimizer:state_dict()
  local state, groups, index = {}, {}, 0
  for g, group in ipairs(self.param_groups) do
    local packed = {params = {}}
    for name, value in pairs(group) do
      if name ~= "params" then packed[name] = value end
    end
    for i, p in ipairs(group.params) do
      packed.params[i] = index
      if next(self.state[p]) ~= nil then
        local copy = {}
        for name, value in pairs(self.state[p]) do copy[name] = value end
        state[index] = copy
      end
      index = index + 1
    end
    groups[g] = packed
  end
  return {state = state, param_groups = groups}
end

-- A loaded state: tensors are copied to the parameter's dtype, the step counter becomes a number.
local function unpack_state(p, loaded)
  local state = {}
  for name, value in pairs(loaded) do
    if name == "step" then
      state.step = type(value) == "number" and value or value:item()
    elseif type(value) == "userdata" then
      state[name] = value:to(p.device, {dtype = p.dtype, copy = true})
    else
      state[name] = value
    end
  end
  return state
end

local function check_layout(loaded)
  if type(loaded) ~= "table" then
    fail("load_state_dict: what state_dict gave is needed, not %s", errors.show(loaded))
  end
  if type(loaded.param_groups) ~= "table" or type(loaded.state) ~= "table" then
    fail("load_state_dict: a table with state and param_groups is needed, as state_dict gives it")
  end
  for g, group in ipairs(loaded.param_groups) do
    if type(group) ~= "table" or type(group.params) ~= "table" then
      fail("load_state_dict: param_groups[%d] has no list of params", g)
    end
  end
end

function Optimizer:load_state_dict(loaded)
  errors.object("Optimizer", "load_state_dict", self)
  check_layout(loaded)
  if #loaded.param_groups ~= #self.param_groups then
    fail("load_state_dict: %d parameter groups, the optimiser has %d", #loaded.param_groups, #self.param_groups)
  end
  for g, group in ipairs(self.param_groups) do
    local n, m = #loaded.param_groups[g].params, #group.params
    if n ~= m then fail("load_state_dict: group %d has %d parameters, the optimiser's %d", g, n, m) end
  end
  for g, group in ipairs(self.param_groups) do
    local source = loaded.param_groups[g]
    for name, value in pairs(source) do
      if name ~= "params" then group[name] = value end
    end
    for i, p in ipairs(group.params) do
      local state = loaded.state[source.params[i]]
      if state then self.state[p] = unpack_state(p, state) end
    end
  end
end

local function check_at_least_zero(name, group, ...)
  for i = 1, select("#", ...) do
    local option = select(i, ...)
    local value = group[option]
    if type(value) ~= "number" or not (value >= 0) then
      errors.wrong(name, option, "a number >= 0", value)
    end
  end
end

local function text_of(v)
  if type(v) ~= "table" then return tostring(v) end
  local parts = {}
  for i, each in ipairs(v) do parts[i] = tostring(each) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- Printing is inherited by hand, as metamethods are.
local function tostring_optimizer(self)
  local lines = {self.name .. " ("}
  for g, group in ipairs(self.param_groups) do
    lines[#lines + 1] = "Parameter Group " .. (g - 1)
    local names = {}
    for name in pairs(group) do
      if name ~= "params" then names[#names + 1] = name end
    end
    table.sort(names)
    for _, name in ipairs(names) do lines[#lines + 1] = "    " .. name .. ": " .. text_of(group[name]) end
  end
  lines[#lines + 1] = ")"
  return table.concat(lines, "\n")
end

return {
  extend = function(name, defaults)
    local class = extend(name, defaults)
    class.__tostring = tostring_optimizer
    return class
  end,
  check_at_least_zero = check_at_least_zero,
}
