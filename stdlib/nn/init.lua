-- lt.nn: Module, Parameter, the layers, nn.functional and nn.init. A layer's forward calls the native op it names and nothing else.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local functional = use "nn.functional"
local init = use "nn.initialisers"
local keywords = use "keywords"

local Module, Parameter = base.Module, base.Parameter
local nn = {Module = Module, Parameter = Parameter, functional = functional, init = init, is_module = base.is_module,
            is_parameter = base.is_parameter}

-- Linear -------------------------------------------------------------------------------------------------------------

local linear = lt.linear
local Linear = Module:extend("Linear")
nn.Linear = Linear

function Linear:init(in_features, out_features, options)
  options = keywords.check("Linear", options, {bias = true, dtype = "float32", device = keywords.none})
  errors.count("Linear", "in_features", in_features, 0)
  errors.count("Linear", "out_features", out_features, 0)
  self.in_features, self.out_features = in_features, out_features
  local how = {dtype = options.dtype, device = options.device}
  self.weight = Parameter(lt.empty({out_features, in_features}, how))
  if options.bias then self.bias = Parameter(lt.empty({out_features}, how)) end
  self:reset_parameters()
end

function Linear:reset_parameters()
  init.kaiming_uniform_(self.weight, {a = math.sqrt(5)})
  if self.bias then
    local bound = self.in_features > 0 and 1 / math.sqrt(self.in_features) or 0
    init.uniform_(self.bias, -bound, bound)
  end
end

function Linear:forward(input) return linear(input, self.weight, self.bias) end

function Linear:extra_repr()
  return string.format("in_features=%d, out_features=%d, bias=%s", self.in_features, self.out_features,
    self.bias and "True" or "False")
end

nn.utils = use "nn.utils"

-- In files of their own -----------------------------------------------------------------------------------------------

local norms = use "nn.norms"
nn.LayerNorm, nn.RMSNorm, nn.Embedding = norms.LayerNorm, norms.RMSNorm, norms.Embedding
use "nn.transformer"(nn)

-- Containers ---------------------------------------------------------------------------------------------------------

local Sequential = Module:extend("Sequential")
nn.Sequential = Sequential

local function append(self, module)
  base.check_module(self._name, module)
  self[#self + 1] = module
  return self
end

-- Sequential(a, b) or Sequential({a, b}).
local function fill(self, ...)
  local modules, count = {...}, select("#", ...)
  local first = modules[1]
  if count == 1 and type(first) == "table" and not base.is_module(first) and not base.is_class(first) then
    modules, count = first, #first
  end
  if count == 1 and first == nil then return end
  for i = 1, count do append(self, modules[i]) end
end

Sequential.init = fill
function Sequential:append(module) return append(self, module) end
function Sequential:len() return #self end

function Sequential:forward(input)
  for i = 1, #self do input = self[i](input) end
  return input
end

local ModuleList = Module:extend("ModuleList")
nn.ModuleList = ModuleList
ModuleList.init = fill
function ModuleList:append(module) return append(self, module) end
function ModuleList:len() return #self end

for _, class in ipairs {Sequential, ModuleList} do
  -- list:extend({a, b}) appends; Class:extend("Name") makes a class.
  function class:extend(modules)
    if type(modules) ~= "table" then return Module.extend(self, modules) end
    for i = 1, #modules do append(self, modules[i]) end
    return self
  end
  -- Positions count from 1, as in the list.
  function class:insert(position, module)
    if type(position) ~= "number" or position < 1 or position > #self + 1 then
      fail("%s: position %s is outside of 1 to %d", self._name, tostring(position), #self + 1)
    end
    append(self, module)
    for i = #self, position + 1, -1 do self[i] = self[i - 1] end
    self[position] = module
    return self
  end
  function class:pop(position)
    position = position or #self
    local module = self[position]
    if module == nil then fail("%s: there is no module %s", self._name, tostring(position)) end
    for i = position, #self do self[i] = self[i + 1] end
    return module
  end
end

-- ModuleDict({name = module, ...}), in the order in which the modules were made, or ModuleDict({{name, module}, ...}), in the order of the list.
local ModuleDict = Module:extend("ModuleDict")
nn.ModuleDict = ModuleDict

local function put(self, name, module)
  if type(name) ~= "string" or name == "" or name:find(".", 1, true) then
    fail("ModuleDict: a name is a string without dots, not " .. tostring(name))
  end
  base.check_module("ModuleDict", module)
  if rawget(self, name) == nil and self[name] ~= nil then
    fail("ModuleDict: '%s' is a method's name", name)
  end
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
function ModuleDict:items() return self:named_children() end
function ModuleDict:keys()
  local items = self:named_children()
  return function() return (items()) end
end
function ModuleDict:values() return self:children() end
function ModuleDict:len()
  local n = 0
  for _ in self:named_children() do n = n + 1 end
  return n
end
function ModuleDict:pop(name)
  local module = rawget(self, name)
  if not base.is_module(module) then fail("ModuleDict: there is no module '%s'", tostring(name)) end
  self[name] = nil
  return module
end

-- Layers without parameters: one op each -----------------------------------------------------------------------------

for name, class in pairs(use "nn.elementwise") do nn[name] = class end

local Identity = Module:extend("Identity")
nn.Identity = Identity
function Identity:init() end
function Identity:forward(input) return input end

local function layer_with_dim(name, op)
  local class = Module:extend(name)
  function class:init(dim)
    if type(dim) == "table" then dim = keywords.check(name, dim, {dim = keywords.none}).dim end
    errors.number(name, "dim", dim)
    self.dim = dim
  end
  function class:forward(input) return op(input, self.dim) end
  function class:extra_repr() return "dim=" .. self.dim end
  nn[name] = class
end

layer_with_dim("Softmax", lt.softmax)
layer_with_dim("LogSoftmax", lt.log_softmax)
layer_with_dim("Softmin", lt.softmin)

local Flatten = Module:extend("Flatten")
nn.Flatten = Flatten

function Flatten:init(start_dim, end_dim)
  self.start_dim, self.end_dim = start_dim or 1, end_dim or -1
  errors.number("Flatten", "start_dim", self.start_dim)
  errors.number("Flatten", "end_dim", self.end_dim)
end

function Flatten:forward(input) return input:flatten(self.start_dim, self.end_dim) end

function Flatten:extra_repr() return string.format("start_dim=%d, end_dim=%d", self.start_dim, self.end_dim) end

for name, class in pairs(use "nn.spatial") do nn[name] = class end
for name, class in pairs(use "nn.dropout") do nn[name] = class end
for name, class in pairs(use "nn.shapes") do nn[name] = class end

return nn
