-- nn.Sequential, ModuleList and ModuleDict. The children of a container are those of any module, in order: items of the list, and what has a
-- name. Positions count from 1, names in a state dict as PyTorch's: from 0.
local _, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local Module, is_module = base.Module, base.is_module

local classes = {}

-- The key of the next item, behind all children.
local function next_key(self)
  local keys = base.child_keys(self)
  local key = #keys
  for i = 1, #keys do
    if type(keys[i]) == "number" then key = math.max(key, keys[i]) end
  end
  return key + 1
end

local function append(self, module)
  base.check_module(self._name, module)
  self[next_key(self)] = module
  return self
end

local function is_pair(v) return type(v) == "table" and not is_module(v) and not base.is_class(v) and type(v[1]) == "string" end

-- {a, b} or {{"name", a}, {"other", b}}: lists alone have an order.
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

-- Class(a, b), Class({a, b}) or Class({{"name", a}, {"other", b}}).
local function fill(self, ...)
  local count, first = select("#", ...), (...)
  if count == 1 and first == nil then return end
  if count == 1 and type(first) == "table" and not is_module(first) and not base.is_class(first) then
    append_all(self, first)
    return
  end
  for i = 1, count do append(self, (select(i, ...))) end
end

-- Whether the children are the items 1 to n and nothing else.
local function is_list(self)
  local keys = base.child_keys(self)
  for i = 1, #keys do
    if keys[i] ~= i then return false end
  end
  return true
end

local function need_list(self, method)
  if not is_list(self) then fail("%s.%s: some of the children have names; add_module puts one behind them", self._name, method) end
end

local function list_class(name)
  local class = Module:extend(name)
  classes[name] = class
  class.init = fill
  class._named = false -- whether a key was defined that is not the next position
  function class:__newindex(key, value)
    base.define(self, key, value)
    if self._order[key] ~= key then rawset(self, "_named", true) end
  end
  function class:append(module) return append(self, module) end
  function class:len() return #base.child_keys(self) end
  -- list:extend({a, b}) appends; Class:extend("Name") makes a class.
  function class:extend(modules)
    if type(modules) ~= "table" then return Module.extend(self, modules) end
    return append_all(self, modules)
  end
  -- PyTorch's names of items are numbers.
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
    local keys = base.child_keys(self)
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
  -- The children from position first to last, as a container of the same class.
  function class:slice(first, last)
    local keys, part = base.child_keys(self), {}
    first, last = first or 1, last or #keys
    errors.count(name .. ".slice", "first", first, 1)
    errors.count(name .. ".slice", "last", last, 0)
    for i = first, math.min(last, #keys) do
      part[#part + 1] = type(keys[i]) == "string" and {keys[i], self[keys[i]]} or self[keys[i]]
    end
    local out = classes[name]()
    return append_all(out, part)
  end
  -- list[{1, 3}] would be nil.
  setmetatable(class, {__call = getmetatable(class).__call, __index = function(_, key)
    if type(key) == "table" then fail("%s: a part is list:slice(first, last), list[i] is one module", name) end
    return Module[key]
  end})
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

-- The items 1 to n, unless something has got a name or was taken away.
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

-- ModuleDict({name = module, ...}), in the order in which the modules were made, or ModuleDict({{name, module}, ...}), in the order of the list.
local ModuleDict = Module:extend("ModuleDict")
classes.ModuleDict = ModuleDict

local function put(self, name, module)
  base.check_free_name(self, "ModuleDict", name)
  base.check_module("ModuleDict", module)
  local is_new = rawget(self, name) == nil
  self[name] = module
  if not is_new then return end
  local order = self._order -- last, whenever the module was made
  for i = #order, 1, -1 do
    if order[i] == name then table.remove(order, i) end
  end
  order[#order + 1] = name
end

function ModuleDict:init(modules) self:update(modules or {}) end
function ModuleDict:update(modules)
  if type(modules) ~= "table" then fail("ModuleDict: a table of modules is needed, not %s", errors.show(modules)) end
  for i = 1, #modules do put(self, modules[i][1], modules[i][2]) end
  local names = {}
  for name in pairs(modules) do
    if type(name) ~= "number" then names[#names + 1] = name end
  end
  table.sort(names, function(a, b)
    local x, y = modules[a], modules[b]
    if base.is_module(x) and base.is_module(y) then return x._serial < y._serial end
    return tostring(a) < tostring(b)
  end)
  for _, name in ipairs(names) do put(self, name, modules[name]) end
  return self
end
-- Iterators in order: names, modules, both.
function ModuleDict:items()
  local keys, i = base.child_keys(self), 0
  return function()
    i = i + 1
    return keys[i], keys[i] and self[keys[i]]
  end
end
function ModuleDict:keys()
  local items = self:items()
  return function() return (items()) end
end
function ModuleDict:values()
  local items = self:items()
  return function()
    local _, module = items()
    return module
  end
end
function ModuleDict:len() return #base.child_keys(self) end
function ModuleDict:pop(name)
  local module = rawget(self, name)
  if not base.is_module(module) then fail("ModuleDict: there is no module '%s'%s", tostring(name), errors.known(name, base.child_keys(self))) end
  self[name] = nil
  return module
end

return classes
