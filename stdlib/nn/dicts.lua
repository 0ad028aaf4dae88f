-- nn.ModuleDict, ParameterDict and ParameterList.
local _, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local Module, is_module = base.Module, base.is_module

local classes = {}

-- ModuleDict({name = module, ...}) has the order in which the modules were made. ModuleDict({{name, module}, ...}) has
-- the order of the list. ParameterDict does the same. accept(class name, value) returns what is stored for a value.
local function put(self, name, value)
  base.check_free_name(self, self._name, name)
  value = self._accept(self._name, value)
  local is_new = rawget(self, name) == nil
  self[name] = value
  if not is_new then return end
  local order = self._order -- moves it to the end, whenever it was made
  for i = #order, 1, -1 do
    if order[i] == name then table.remove(order, i) end
  end
  order[#order + 1] = name
end

local function dict_class(name, kind, accept)
  local class = Module:extend(name)
  classes[name] = class
  class._accept = accept
  function class:init(parts) self:update(parts or {}) end
  function class:update(parts)
    if type(parts) ~= "table" then fail("%s: a table of %ss is needed, not %s", name, kind, errors.show(parts)) end
    if is_module(parts) then
      for key, value in class.items(parts) do put(self, key, value) end
      return self
    end
    for i = 1, #parts do put(self, parts[i][1], parts[i][2]) end
    local names = {}
    for key in pairs(parts) do
      if type(key) ~= "number" then names[#names + 1] = key end
    end
    table.sort(names, function(a, b)
      local x, y = base.serial_of(parts[a]), base.serial_of(parts[b])
      if x and y then return x < y end
      return tostring(a) < tostring(b)
    end)
    for _, key in ipairs(names) do put(self, key, parts[key]) end
    return self
  end
  -- Return iterators in order: over names, values, or both.
  function class:items()
    local keys, i = base.part_keys(self, kind), 0
    return function()
      i = i + 1
      return keys[i], keys[i] and self[keys[i]]
    end
  end
  function class:keys()
    local items = self:items()
    return function() return (items()) end
  end
  function class:values()
    local items = self:items()
    return function()
      local _, value = items()
      return value
    end
  end
  function class:len() return #base.part_keys(self, kind) end
  function class:pop(key)
    local value = rawget(self, key)
    if value == nil or not base.serial_of(value) then
      fail("%s: there is no %s '%s'%s", name, kind, tostring(key), errors.known(key, base.part_keys(self, kind)))
    end
    self[key] = nil
    return value
  end
  return class
end

dict_class("ModuleDict", "module", function(name, value)
  base.check_module(name, value)
  return value
end)

-- Parameters ----------------------------------------------------------------------------------------------------------

-- Accepts tensors as parameters, as PyTorch does.
local function as_parameter(name, value)
  errors.tensor(name, "value", value)
  return base.is_parameter(value) and value or base.Parameter(value)
end

local function show_parameters(self)
  local lines = {}
  for _, key in ipairs(base.part_keys(self, "parameter")) do
    local p, shown = self[key], type(key) == "number" and key - 1 or key
    lines[#lines + 1] = string.format("(%s): Parameter containing: [%s of size %s]", shown, p.dtype,
      table.concat(p.shape, "x"))
  end
  return self._name .. "(" .. (#lines > 0 and "\n  " .. table.concat(lines, "\n  ") .. "\n" or "") .. ")"
end

local ParameterDict = dict_class("ParameterDict", "parameter", as_parameter)
ParameterDict.__tostring = show_parameters
function ParameterDict:get(key, default)
  local value = rawget(self, key)
  if base.is_parameter(value) then return value end
  return default
end
function ParameterDict:setdefault(key, default)
  if self:get(key) == nil then put(self, key, default) end
  return self[key]
end

-- ParameterList({a, b}): items count from 1; their names in a state dict count from "0".
local ParameterList = Module:extend("ParameterList")
classes.ParameterList = ParameterList
ParameterList.__tostring = show_parameters

function ParameterList:init(values)
  if values ~= nil then self:extend(values) end
end
function ParameterList:append(value)
  self[base.next_key(self, "parameter")] = as_parameter("ParameterList", value)
  return self
end
function ParameterList:extend(values)
  if type(values) == "string" then return Module.extend(self, values) end
  if type(values) ~= "table" then errors.wrong("ParameterList", "values", "a list of Tensors", values) end
  for i = 1, #values do self:append(values[i]) end
  return self
end
function ParameterList:len() return #base.part_keys(self, "parameter") end
function ParameterList:__newindex(key, value)
  if type(key) == "number" and value ~= nil then value = as_parameter("ParameterList", value) end
  base.define(self, key, value)
end

return classes
