-- nn.Sequential and ModuleList. A container's parts are those of any module, in order: items of the list, and named
-- fields. Positions count from 1; names in a state dict are PyTorch's and count from 0.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local Module, is_module = base.Module, base.is_module

local classes = {}

local function append(self, module)
  base.check_module(self._name, module)
  self[base.next_key(self, "module")] = module
  return self
end

local function is_pair(v) return type(v) == "table" and not is_module(v) and not base.is_class(v)
  and type(v[1]) == "string" end

-- Appends {a, b} or {{"name", a}, {"other", b}}. The table must be a list, because only lists have an order.
local function append_all(self, modules)
  local n = #modules
  for key in pairs(modules) do
    if type(key) ~= "number" or key < 1 or key > n or key % 1 ~= 0 then
      fail('%s: the fields of a table have no order: give {{"%s", module}, ...}', self._name, tostring(key))
    end
  end
  for i = 1, n do
    local item = modules[i]
    if is_pair(item) then
      base.check_free_name(self, self._name, item[1])
      if rawget(self, item[1]) ~= nil then fail("%s: the name '%s' is given twice", self._name, item[1]) end
      base.check_module(self._name, item[2])
      self:add_module(item[1], item[2])
    else
      append(self, item)
    end
  end
  return self
end

-- Implements Class(a, b), Class({a, b}) and Class({{"name", a}, {"other", b}}).
local function fill(self, ...)
  local count, first = select("#", ...), (...)
  if count == 1 and first == nil then return end
  if count == 1 and type(first) == "table" and not is_module(first) and not base.is_class(first) then
    append_all(self, first)
    return
  end
  for i = 1, count do append(self, (select(i, ...))) end
end

-- Returns whether the children are exactly the items 1 to n.
local function is_list(self)
  local keys = base.part_keys(self, "module")
  for i = 1, #keys do
    if keys[i] ~= i then return false end
  end
  return true
end

local function need_list(self, method)
  if not is_list(self) then
    fail("%s.%s: some of the children have names; add_module puts one behind them", self._name, method)
  end
end

-- list[{start, stop, step}]: a container of the same class with the items from start to before stop, like x[{{start,
-- stop, step}}] of a tensor. Positions are those of list[i]; negative ones count from the end.
local function part_of(self, slice)
  local keys = base.part_keys(self, "module")
  for key in pairs(slice) do
    if key ~= 1 and key ~= 2 and key ~= 3 then
      fail("%s: a part is list[{start, stop, step}]; the table has a field %s", self._name, tostring(key))
    end
  end
  local function position(at, default)
    if at == nil then return default end
    if type(at) ~= "number" or at % 1 ~= 0 then
      errors.wrong(self._name, "slice", "whole numbers {start, stop, step}", at)
    end
    return math.max(1, math.min(at < 0 and at + #keys + 1 or at, #keys + 1))
  end
  local step = slice[3] or 1
  errors.count(self._name, "step", step, 1)
  local part = {}
  for i = position(slice[1], 1), position(slice[2], #keys + 1) - 1, step do
    part[#part + 1] = type(keys[i]) == "string" and {keys[i], self[keys[i]]} or self[keys[i]]
  end
  return append_all(classes[self._list](), part)
end

-- Looks up keys that are not fields: list[{1, 3}] or, from the end, list[-1].
local function item(self, key)
  if type(key) == "table" and getmetatable(key) == nil then return part_of(self, key) end
  if type(key) ~= "number" or key >= 0 then return nil end
  local keys = base.part_keys(self, "module")
  if -key > #keys then fail("%s: there is no module %d of %d", self._name, key, #keys) end
  return self[keys[#keys + 1 + key]]
end

local function set_item(self, key, value)
  if type(key) == "table" then fail("%s: a part cannot be assigned, its modules can: list[i] = module", self._name) end
  if type(key) == "number" and key < 1 then
    fail("%s: a module is assigned at a position from 1, not %s", self._name, tostring(key))
  end
  base.define(self, key, value)
  if self._order[key] ~= key then rawset(self, "_named", true) end
end

local function list_class(name)
  local class = Module:extend(name)
  classes[name] = class
  class.init, class._list = fill, name
  class._named = false -- whether a key other than the next position was defined
  function class:append(module) return append(self, module) end
  function class:len() return #base.part_keys(self, "module") end
  -- list:extend({a, b}) appends; Class:extend("Name") makes a class.
  function class:extend(modules)
    if type(modules) ~= "table" then return Module.extend(self, modules) end
    return append_all(self, modules)
  end
  -- PyTorch names items by numbers.
  function class:add_module(key, module)
    local number = type(key) == "string" and key:find "^%d+$" and tostring(tonumber(key)) == key and tonumber(key)
    if not number then return Module.add_module(self, key, module) end
    if module ~= nil then base.check_module("add_module", module) end
    self[number + 1] = module
  end
  function class:insert(position, module)
    need_list(self, "insert")
    if type(position) ~= "number" or position < 1 or position > #self + 1 then
      fail("%s: position %s is outside of 1 to %d", self._name, tostring(position), #self + 1)
    end
    append(self, module)
    for i = #self, position + 1, -1 do self[i] = self[i - 1] end
    self[position] = module
    return self
  end
  function class:pop(position)
    local keys = base.part_keys(self, "module")
    position = position or #keys
    local key = keys[position]
    if key == nil then fail("%s: there is no module %s", self._name, tostring(position)) end
    local module, shift = self[key], is_list(self)
    if shift then
      for i = position, #keys do self[i] = self[i + 1] end
      key = #keys
    end
    self[key] = nil
    base.forget(self, key)
    return module
  end
  -- Returns the children from position first to last, as a container of the same class.
  function class:slice(first, last)
    local keys, part = base.part_keys(self, "module"), {}
    first, last = first or 1, last or #keys
    errors.count(name .. ".slice", "first", first, 1)
    errors.count(name .. ".slice", "last", last, 0)
    for i = first, math.min(last, #keys) do
      part[#part + 1] = type(keys[i]) == "string" and {keys[i], self[keys[i]]} or self[keys[i]]
    end
    local out = classes[name]()
    return append_all(out, part)
  end
  class._item, class.__newindex = item, set_item
  class.__index = base.index_of(class)
  return class
end

local Sequential = list_class "Sequential"
list_class "ModuleList"

local function run_named(self, order, input)
  for i = 1, #order do
    local child = rawget(self, order[i])
    if is_module(child) then input = child(input) end
  end
  return input
end

-- Runs the items 1 to n, unless a part has a name or was removed.
function Sequential:forward(input)
  local order, n = self._order, #self
  if self._named or #order ~= n then
    input = run_named(self, order, input)
    return input
  end
  for i = 1, n do
    local child = self[i]
    if child ~= nil then input = child(input) end
  end
  return input
end

return classes
