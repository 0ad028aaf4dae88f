-- nn.utils.parametrize: a parameter of a module that modules compute from stored tensors. m.weight runs
-- m.parametrizations.weight, which holds `original` (or original0, original1 ... if right_inverse returns several
-- tensors). m gets a class of its own, whose lookup finds m.weight in this way.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local containers = use "nn.containers"
local keywords = use "keywords"

local M = {}

local function same_kind(where, new, old)
  if not lt.is_tensor(new) then fail("%s: a parametrization gives a Tensor, got %s", where, errors.show(new)) end
  if new.dtype ~= old.dtype then
    fail("%s: the dtype changes from %s to %s, which unsafe = true allows", where, old.dtype, new.dtype)
  end
  local a, b = table.concat(new.shape, ", "), table.concat(old.shape, ", ")
  if a ~= b then fail("%s: the shape changes from {%s} to {%s}, which unsafe = true allows", where, b, a) end
end

-- The chain of one parameter ------------------------------------------------------------------------------------------

local ParametrizationList = containers.ModuleList:extend("ParametrizationList")
M.ParametrizationList = ParametrizationList

-- Returns the tensors to store for a value, back through the chain. missing: a module without right_inverse is an
-- error.
local function stored(self, missing, ...)
  local values = {n = select("#", ...), ...}
  for i = self:len(), 1, -1 do
    local module = self[i]
    if module.right_inverse ~= nil then
      values = (function(...) return {n = select("#", ...), ...} end)(module:right_inverse(unpack(values, 1, values.n)))
    elseif missing then
      fail("parametrization %s does not implement right_inverse", module._name)
    end
  end
  return values
end

-- Writes a value into a parameter, which stays the same object.
local function write(t, value)
  if t == value then return end
  local a, b = table.concat(t.shape, ", "), table.concat(value.shape, ", ")
  if a == b then t:copy_(value) else lt._native.set_data(t, value:detach():clone()) end
end

local function hold(self, name, tensor, like)
  if base.is_parameter(like) then
    self[name] = base.is_parameter(tensor) and tensor or base.Parameter(tensor, like.requires_grad)
  else
    self:register_buffer(name, tensor)
  end
end

function ParametrizationList:init(parametrization, original, unsafe)
  containers.ModuleList.init(self, {parametrization})
  local values = lt.no_grad(stored, self, false, original)
  for i = 1, values.n do errors.tensor("right_inverse", "result " .. i, values[i]) end
  self.is_tensor, self.ntensors = values.n == 1, values.n
  if self.is_tensor then
    if values[1].dtype ~= original.dtype then
      fail("right_inverse: one tensor keeps its dtype, %s, got %s", original.dtype, values[1].dtype)
    end
    lt.no_grad(write, original, values[1])
    hold(self, "original", original, original)
  else
    for i = 1, values.n do hold(self, "original" .. (i - 1), values[i], original) end
  end
  if not unsafe then same_kind("register_parametrization", self(), original) end
end

function ParametrizationList:forward()
  local x
  if self.is_tensor then
    x = self[1](self.original)
  elseif self.ntensors == 2 then
    x = self[1](self.original0, self.original1)
  else
    local originals = {}
    for i = 1, self.ntensors do originals[i] = self["original" .. (i - 1)] end
    x = self[1](unpack(originals, 1, self.ntensors))
  end
  local i = 2
  while self[i] ~= nil do
    x = self[i](x)
    i = i + 1
  end
  return x
end

function ParametrizationList:assign(value)
  lt.no_grad(function()
    local values = stored(self, true, value)
    if values.n ~= self.ntensors then fail("right_inverse: %d tensors are needed, got %d", self.ntensors, values.n) end
    for i = 1, values.n do
      errors.tensor("right_inverse", "result " .. i, values[i])
      local at = self.is_tensor and self.original or self["original" .. (i - 1)]
      if values[i].dtype ~= at.dtype then
        fail("right_inverse: the dtype changes from %s to %s", at.dtype, values[i].dtype)
      end
      write(at, values[i])
    end
  end)
end

-- The class of a module with such parameters --------------------------------------------------------------------------

-- [coroutine][module][name], while cached() runs in that coroutine. A coroutine that yields in it does not affect
-- others, and one that is dropped there takes its cache along.
local caches = setmetatable({}, {__mode = "k"})
local main = {} -- stands for the main coroutine

local function here() return coroutine.running() or main end

local function computed(module, name)
  local list = module.parametrizations[name]
  local cache = next(caches) ~= nil and caches[here()]
  if not cache then return list() end
  cache[module] = cache[module] or {}
  if cache[module][name] == nil then cache[module][name] = list() end
  return cache[module][name]
end

local function inject(module)
  local old = getmetatable(module)
  local class = old:extend("Parametrized" .. old._name)
  local index, define = class.__index, class.__newindex
  class._before = old
  function class:__index(key)
    local own = rawget(self, "_parametrized")
    if own ~= nil and own[key] then return computed(self, key) end
    if type(index) == "function" then return index(self, key) end
    return index[key]
  end
  function class:__newindex(key, value)
    if self._parametrized[key] then return self.parametrizations[key]:assign(value) end
    return define(self, key, value)
  end
  rawset(module, "_parametrized", {})
  setmetatable(module, class)
  module.parametrizations = use("nn.dicts").ModuleDict()
end

-- Functions -----------------------------------------------------------------------------------------------------------

function M.is_parametrized(module, tensor_name)
  base.check_module("is_parametrized", module)
  local own = rawget(module, "_parametrized")
  if own == nil then return false end
  return tensor_name == nil or own[tensor_name] == true
end

local function append(module, name, parametrization, unsafe)
  if not unsafe then
    local y = module[name]
    local x = parametrization(y)
    same_kind("register_parametrization", x, y)
    if parametrization.right_inverse ~= nil then same_kind("right_inverse", parametrization:right_inverse(x), y) end
  end
  module.parametrizations[name]:append(parametrization)
end

function M.register_parametrization(module, tensor_name, parametrization, options)
  base.check_module("register_parametrization", module)
  base.check_module("register_parametrization", parametrization)
  errors.text("register_parametrization", "tensor_name", tensor_name)
  local unsafe = keywords.check("register_parametrization", options, {unsafe = false}).unsafe
  parametrization:train(module.training)
  if M.is_parametrized(module, tensor_name) then
    append(module, tensor_name, parametrization, unsafe)
    return module
  end
  local original = rawget(module, tensor_name)
  if not base.is_parameter(original) and module._buffers[tensor_name] == nil then
    fail("register_parametrization: %s has no parameter or buffer '%s'", module._name, tensor_name)
  end
  local list = ParametrizationList(parametrization, original, unsafe)
  rawset(module, tensor_name, nil)
  base.forget(module, tensor_name)
  if not M.is_parametrized(module) then inject(module) end
  module._buffers[tensor_name] = nil
  module.parametrizations:update({{tensor_name, list}})
  module._parametrized[tensor_name] = true
  return module
end

function M.remove_parametrizations(module, tensor_name, leave_parametrized)
  if type(leave_parametrized) == "table" then
    leave_parametrized = keywords.check("remove_parametrizations", leave_parametrized,
      {leave_parametrized = true}).leave_parametrized
  end
  if leave_parametrized == nil then leave_parametrized = true end
  if not M.is_parametrized(module, tensor_name) then
    fail("remove_parametrizations: %s has no parametrization of '%s'", module._name, tensor_name)
  end
  local list = module.parametrizations[tensor_name]
  if not list.is_tensor and not leave_parametrized then
    fail("remove_parametrizations: '%s' is made of several tensors, so its value is left, not what is stored",
      tensor_name)
  end
  local now, original = lt.no_grad(list.forward, list), list.is_tensor and list.original or nil
  if original == nil then
    original = list.original0
    if base.is_parameter(original) then original = base.Parameter(now, original.requires_grad) else original = now end
  elseif leave_parametrized then
    lt.no_grad(write, original, now)
  end
  module._parametrized[tensor_name] = nil
  module.parametrizations:pop(tensor_name)
  if next(module._parametrized) == nil then
    rawset(module, "parametrizations", nil)
    base.forget(module, "parametrizations")
    rawset(module, "_parametrized", nil)
    setmetatable(module, getmetatable(module)._before)
  end
  if base.is_parameter(original) then module[tensor_name] = original else module:register_buffer(tensor_name,
    original) end
  return module
end

function M.type_before_parametrizations(module)
  base.check_module("type_before_parametrizations", module)
  return M.is_parametrized(module) and getmetatable(module)._before or getmetatable(module)
end

local function restore(before, ok, ...)
  caches[here()] = before
  if not ok then error((...), 0) end
  return ...
end

-- cached(f, ...): runs f. Each parameter is computed once in it, in the coroutine that runs it.
function M.cached(f, ...)
  errors.callable("cached", "f", f)
  local before = caches[here()]
  caches[here()] = before or setmetatable({}, {__mode = "k"})
  return restore(before, pcall(f, ...))
end

return M
