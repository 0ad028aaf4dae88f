-- optim.Optimizer, the base of all optimisers: parameter groups, state, zero_grad, state_dict in PyTorch's layout.
-- A custom class: Mine = optim.Optimizer:extend "Mine". Mine:init(params, ...) calls optim.Optimizer.init(self, params,
-- defaults). It has a step of its own, or an update_group(self, group), which the step here calls with grad mode off.
-- Classes of base.define have: schema (PyTorch's arguments in order), check(options), new_state(p, group),
-- update_one(self, p, grad, state, group).
-- 1. state[p] exists from the moment that p is added, so that the first step takes the same path as every other.
-- 2. step reads plain fields and numbers, so capture makes lr, betas and step counters scalar inputs.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local keywords = use "keywords"
local module = use "nn.module"
local no_grad = lt.no_grad

local Optimizer = {name = "Optimizer"}
Optimizer.__index = Optimizer

function Optimizer.check() end
function Optimizer.new_state() return {} end

-- All existing optimisers. Their states follow parameters that module:to(...) converts.
local all = setmetatable({}, {__mode = "k"})

-- Replaces the tensors of a state, and of the lists in it, by convert(tensor).
local function converted(value, convert)
  if type(value) == "userdata" then return convert(value) end
  if type(value) ~= "table" then return value end
  local out = {}
  for key, each in pairs(value) do out[key] = converted(each, convert) end
  return out
end

function lt._native.follow_parameters(params)
  for optimizer in pairs(all) do
    for _, p in ipairs(params) do
      local function follow(value) return value:to(p.device, p.dtype) end
      for name, value in pairs(optimizer.state[p] or {}) do optimizer.state[p][name] = converted(value, follow) end
    end
  end
end

local function has_other_size(value, size)
  return lt.is_tensor(value) and table.concat(value.shape, " ") ~= size
end

-- Called when a lazy layer's parameters get their elements. Makes anew the states that were made without elements.
function lt._native.renew_states(fresh)
  for optimizer in pairs(all) do
    local class = getmetatable(optimizer)
    for _, group in ipairs(class.new_state ~= Optimizer.new_state and optimizer.param_groups or {}) do
      for _, p in ipairs(group.params) do
        local size, stale = fresh[p] and table.concat(p.shape, " "), false
        for _, value in pairs(size and optimizer.state[p] or {}) do stale = stale or has_other_size(value, size) end
        if stale then optimizer.state[p] = class.new_state(p, group) end
      end
    end
  end
end

-- PyTorch's options that choose how a step is launched. is_together reads foreach and fused. Counters are numbers, so
-- the effect of capturable is always on.
local implied = {{"foreach", keywords.none}, {"fused", keywords.none}, {"capturable", keywords.none},
  {"differentiable", keywords.none}}

local function check_implied(name, group)
  for _, row in ipairs(implied) do
    local value = group[row[1]]
    if value ~= nil then errors.boolean(name, row[1], value) end
  end
  if group.foreach and group.fused then fail("%s: fused and foreach cannot both be true", name) end
  if group.differentiable then fail("%s: differentiable = true does not exist yet: a step is not recorded", name) end
end

local function same(tensor) return tensor end

-- A group keeps keys of the program's own, as in PyTorch: name, lr_scale.
local function add_checked_group(self, given)
  local class = getmetatable(self)
  local options, own = {}, {}
  for name, value in pairs(given) do
    if type(name) ~= "string" then
      fail("%s: a group of parameters has keys such as params and lr, not %s", class.name, errors.show(name))
    end
    if self.known[name] ~= nil then options[name] = value elseif name ~= "params" then own[name] = value end
  end
  local group = converted(keywords.check(class.name, options, self.known), same) -- copies lists
  for name, value in pairs(own) do group[name] = value end
  class.check(group)
  if class.schema then check_implied(class.name, group) end
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

-- defaults: every option with its default. keywords.none stands for nil.
function Optimizer:init(params, defaults)
  errors.object("Optimizer", "init", self)
  local name = self.name
  if defaults ~= nil and type(defaults) ~= "table" then
    errors.wrong(name, "defaults", "a table of options", defaults)
  end
  if type(params) ~= "table" or #params == 0 then
    errors.wrong(name, "params", "a list of Tensors or of groups {params = {...}, lr = ...}, not empty", params)
  end
  self.param_groups, self.state, self.defaults, self.known = {}, {}, {}, {}
  for option, value in pairs(defaults or {}) do
    self.known[option] = value
    if value ~= keywords.none then self.defaults[option] = value end
  end
  all[self] = true
  if type(params[1]) ~= "table" then params = {{params = params}} end
  for _, group in ipairs(params) do
    if type(group) ~= "table" or group.params == nil then
      fail("%s: a group is a table with params, got %s", name, errors.show(group))
    end
    add_checked_group(self, group)
  end
end

function Optimizer:_copied() all[self] = true end

local function construct(class, ...)
  local self = setmetatable({}, class)
  class.init(self, ...)
  return self
end

-- Makes a subclass, which looks up missing fields in its parent.
function Optimizer:extend(name)
  errors.text("extend", "name", name)
  local class = {name = name, __tostring = self.__tostring}
  class.__index = class
  return setmetatable(class, {__index = self, __call = construct})
end
setmetatable(Optimizer, {__call = construct})

-- Returns whether the updates of a group's parameters are launched together: with foreach or fused, and by default on a
-- GPU.
local function is_together(group)
  local foreach, fused, first = group.foreach, group.fused, group.params[1]
  return foreach or fused or foreach == nil and fused == nil and first ~= nil and first.is_cuda or false
end

-- together: updates only the groups for which is_together returns this; nil: all.
local function update(self, together)
  local groups = self.param_groups
  for i = 1, #groups do
    local group = groups[i]
    if together == nil or is_together(group) == together then
      if type(group.lr) ~= "number" and self.schema ~= nil then
        errors.wrong(self.name, "lr", "a number", group.lr)
      end
      self:update_group(group)
    end
  end
end

local compiled_updates = setmetatable({}, {__mode = "k"}) -- optimiser -> its compiled update

-- An eager step runs the compiled update of the groups that are launched together: a few kernels in place of several
-- for each parameter. It compiles in the background, and until then parameters are updated one by one.
local function eager_update(self)
  local together, apart = false, false
  for _, group in ipairs(self.param_groups) do
    if is_together(group) then together = true else apart = true end
  end
  if apart then update(self, false) end
  if not together then return end
  local compiled = compiled_updates[self]
  if compiled == nil then
    compiled = lt._native.compile_for_library(update)
    compiled_updates[self] = compiled
  end
  compiled(self, true)
end

function Optimizer:update_group() fail("%s: neither step nor update_group is defined", self.name) end

-- With a closure: calls it first, in the current grad mode, and returns its loss.
function Optimizer:step(closure)
  if self == nil then errors.object("Optimizer", "step", self) end
  local loss = nil
  if closure ~= nil then
    if type(closure) ~= "function" then errors.callable("Optimizer.step", "closure", closure) end
    loss = closure()
  end
  local plain = lt.is_compiling() or self.known.foreach == nil -- nil: a class without such options
  no_grad(plain and update or eager_update, self)
  return loss
end

-- Drops gradients. With {set_to_none = false} existing ones become zeros.
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

-- Returns {state = {[0] = {step = ..., exp_avg = ...}, ...}, param_groups = {{lr = ..., params = {0, 1, ...}}, ...}}.
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

-- Returns a loaded state. Tensors are copied to the parameter's dtype. Counters that are tensors in PyTorch become
-- numbers.
local function unpack_state(p, loaded, own)
  local function copy(value) return value:to(p.device, {dtype = p.dtype, copy = true}) end
  local state = {}
  for name, value in pairs(loaded) do
    if type(value) == "userdata" and (name == "step" or type(own[name]) == "number") then
      state[name] = value:item()
    else
      state[name] = converted(value, copy)
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
      if state then self.state[p] = unpack_state(p, state, self.state[p]) end
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

function Optimizer:__tostring()
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

-- Updates each parameter with a gradient. Applies maximize and the weight decay: it adds the decay to the gradient or,
-- if decoupled, shrinks the parameter.
local function update_each(self, group)
  local params, all_state, update_one = group.params, self.state, self.update_one
  local decay, maximize, decoupled = group.weight_decay or 0, group.maximize, self.decoupled
    or group.decoupled_weight_decay
  for i = 1, #params do
    local p = params[i]
    local grad = p.grad
    if grad ~= nil then
      if maximize then grad = -grad end
      if decay ~= 0 then
        if decoupled then p:mul_(1 - group.lr * decay) else grad = grad + p * decay end
      end
      update_one(self, p, grad, all_state[p], group)
    end
  end
end

-- Defines a class by its schema: {{"lr", 1e-3}, ...}, PyTorch's arguments behind params, in order. launches = false: it
-- has no options for how a step is launched.
local function define(name, schema, launches)
  local class = Optimizer:extend(name)
  class.schema, class.defaults, class.update_group = schema, {}, update_each -- schema and defaults for help, too
  for _, row in ipairs(launches == false and {} or implied) do schema[#schema + 1] = row end
  for _, row in ipairs(schema) do class.defaults[row[1]] = row[2] end
  function class:init(params, ...)
    local options
    if select("#", ...) == 0 and type(params) == "table" and params.params ~= nil then -- all arguments by name
      local named = {}
      for key, value in pairs(params) do named[key] = value end
      params, named.params = named.params, nil
      options = keywords.read(name, schema, named)
    else
      options = keywords.read(name, schema, ...)
    end
    self.check(options)
    for option in pairs(class.defaults) do
      if options[option] == nil then options[option] = keywords.none end
    end
    Optimizer.init(self, params, options)
  end
  return class
end

-- Checks betas and their like: n numbers >= 0 and < 1.
local function check_fractions(name, group, option, n)
  local list = group[option]
  for i = 1, n do
    local value = type(list) == "table" and list[i]
    if type(value) ~= "number" or not (value >= 0 and value < 1) then
      fail("%s: %s are %s numbers >= 0 and < 1", name, option, n == 2 and "two" or n)
    end
  end
end

return {Optimizer = Optimizer, define = define, check_at_least_zero = check_at_least_zero,
  check_fractions = check_fractions}
