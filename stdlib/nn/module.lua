-- nn.Module, the base of all modules, and nn.Parameter.
-- 1. A value assigned to a module (`self.fc1 = nn.Linear(2, 3)`) is a plain field of its table. Reading it is one table
--    access.
-- 2. __newindex sees the first assignment of each name. It records the name, never the value: `_order` is the order of
--    definition. Parameters, buffers and children are found by what the recorded fields hold now, so re-assignment
--    needs no hook. `_parameters` has the names that held a parameter, so that a plain tensor in such a place is an
--    error. Lua executes `self.a, self.b = A(), B()` from the right. So the order of making counts for parts that were
--    made after the module and assigned without anything being made in between.
-- 3. Nothing here requires that init calls its parent's: the records exist before init runs.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail

local keywords = use "keywords"
local state_options = {prefix = keywords.none}
local buffer_options, load_options, parameter_options = {{"persistent", true}}, {strict = true}, {requires_grad = true}

-- The number of modules and parameters made so far. The number of each is its serial.
local made = 0

-- [parameter] = serial. Being a parameter is a property of a tensor. The keys are weak, so the mark dies with the
-- tensor.
local is_parameter = setmetatable({}, {__mode = "k"})

local function Parameter(data, requires_grad)
  errors.tensor("Parameter", "data", data)
  if type(requires_grad) == "table" then
    requires_grad = keywords.check("Parameter", requires_grad, parameter_options).requires_grad
  end
  if requires_grad ~= nil then errors.boolean("Parameter", "requires_grad", requires_grad) end
  local p = data:detach()
  p:requires_grad_(requires_grad ~= false)
  made = made + 1
  is_parameter[p] = made
  return p
end

local Module = {_is_module = true, _name = "Module"}

local function is_module(v)
  if type(v) ~= "table" then return false end
  local class = getmetatable(v)
  return type(class) == "table" and rawget(class, "_is_module") == true
end

-- Returns whether v is a class: nn.ReLU instead of nn.ReLU().
local function is_class(v) return type(v) == "table" and rawget(v, "_is_module") == true and not is_module(v) end

local function check_module(where, v)
  if is_module(v) then return end
  if is_class(v) then fail("%s: a module is needed, not the class %s: make one, %s(...)", where, v._name, v._name) end
  fail("%s: a module is needed, not %s", where, errors.show(v))
end

-- Classes ------------------------------------------------------------------------------------------------------------

local function serial_of(value)
  if is_module(value) then return value._serial end
  return is_parameter[value]
end

-- Checks that a name that has held a parameter or a buffer still holds one, or nil.
local function check_slot(self, name, value)
  if value == nil or is_module(value) or is_parameter[value] then return end
  local tensor = type(value) == "userdata"
  local buffer = self._buffers[name] ~= nil
  if not (buffer and not tensor or not buffer and self._parameters[name]) then return end
  fail("%s: cannot assign %s as %s '%s' (%s or nil is expected)", self._name,
    tensor and "a Tensor" or errors.show(value), buffer and "buffer" or "parameter", tostring(name),
    buffer and "a Tensor" or "a Parameter")
end

-- Records a new name. `_known[name]` is the number of things made when the name was first assigned.
local function define(self, name, value)
  check_slot(self, name, value)
  rawset(self, name, value)
  if is_parameter[value] then self._parameters[name] = true end
  local order, known = self._order, self._known
  if known[name] then return end
  known[name] = made
  local at = #order + 1
  local serial = type(name) == "string" and value ~= nil and serial_of(value)
  -- keeps items in order
  while type(name) == "number" and at > 1 and type(order[at - 1]) == "number" and order[at - 1] > name do
    at = at - 1
  end
  while serial and serial > self._serial and at > 1 and known[order[at - 1]] == made do
    local before = rawget(self, order[at - 1])
    if before ~= nil and (serial_of(before) or serial) < serial then break end
    at = at - 1
  end
  table.insert(order, at, name)
end

local function construct(class, ...)
  made = made + 1
  local self = setmetatable({training = true, _serial = made, _order = {}, _known = {}, _buffers = {},
    _parameters = {}, _hooks = false}, class)
  if class.init then class.init(self, ...) end
  return self
end

local call_hooked = nil -- set by nn/hooks.lua

-- One function for both, so that a loop over modules is known to call different functions.
local function call(self, ...)
  local forward = self._hooks and call_hooked or self.forward
  return forward(self, ...)
end

Module.__index = Module
Module.__newindex = define
Module.__call = call
setmetatable(Module, {__call = construct})

-- Returns the __index of a class's instances: the class, or a function that calls _item(self, key) for keys that are no
-- names.
local function index_of(class)
  if not class._item then return class end
  return function(self, key)
    if type(key) == "string" then return class[key] end
    return class._item(self, key)
  end
end

-- Makes a subclass. A class is the metatable of its instances and looks up missing fields in its parent.
function Module:extend(name)
  errors.text("extend", "name", name)
  local class = {}
  for key, value in pairs(self) do -- metamethods are not inherited through __index
    if type(key) == "string" and key:sub(1, 2) == "__" then class[key] = value end
  end
  class._is_module, class._name = true, name
  setmetatable(class, {__index = self, __call = construct})
  class.__index = index_of(class)
  return class
end

-- Called for a module that deepcopy has filled.
function Module:_copied()
  made = made + 1
  self._serial = made
end

function Module:forward()
  fail(self._name .. ": forward is not defined")
end

-- What a module holds ------------------------------------------------------------------------------------------------

-- Lists count from 1. The names of their items count from 0, as in PyTorch.
local function name_of(key) return type(key) == "number" and tostring(key - 1) or key end

local function join(prefix, key)
  local name = name_of(key)
  return prefix == "" and name or prefix .. "." .. name
end

-- Returns the module itself. lt.compile(module) returns an object that stands for the module and has its fields.
local function real(self)
  if type(self) ~= "table" then
    fail("Module: methods are called with a colon, module:method(), got %s as the module", errors.show(self))
  end
  return rawget(getmetatable(self) or {}, "_compiled_of") or self
end

-- Calls visit(full name, value, module, key) for each own parameter ("parameter"), buffer ("buffer") or child
-- ("module").
local function each(self, kind, prefix, visit)
  self = real(self)
  for _, key in ipairs(self._order) do
    local value = rawget(self, key)
    check_slot(self, key, value)
    local found
    if type(value) == "userdata" then
      found = is_parameter[value] and "parameter" or self._buffers[key] ~= nil and "buffer"
      if found == "parameter" and not self._parameters[key] then self._parameters[key] = true end
    elseif is_module(value) then
      found = "module"
    end
    if found == kind then visit(join(prefix, key), value, self, key) end
  end
end

local function walk_modules(self, prefix, seen, visit)
  self = real(self)
  if seen[self] then return end
  seen[self] = true
  visit(prefix, self)
  each(self, "module", prefix, function(name, child) walk_modules(child, name, seen, visit) end)
end

-- Returns a list of {name, value, module, key} of one kind: each value once unless `repeated`; `shallow` leaves out the
-- children's.
local function collect(self, kind, prefix, repeated, shallow)
  local list, seen = {}, {}
  local function visit(path, module)
    each(module, kind, path, function(name, value, owner, key)
      if repeated or not seen[value] then
        seen[value] = true
        list[#list + 1] = {name, value, owner, key}
      end
    end)
  end
  if shallow then visit(prefix, self) else walk_modules(self, prefix, {}, visit) end
  return list
end

local function iterate(list)
  local i = 0
  return function()
    i = i + 1
    local item = list[i]
    if item then return item[1], item[2] end
  end
end

local function values(list)
  local out = {}
  for i, item in ipairs(list) do out[i] = item[2] end
  return out
end

local recurse, named = {{"recurse", true}}, {{"prefix", ""}, {"recurse", true}, {"remove_duplicate", true}}

local function listed(self, method, kind, ...)
  return values(collect(self, kind, "", false, ... ~= nil and not keywords.read(method, recurse, ...).recurse))
end
function Module:parameters(...) return listed(self, "parameters", "parameter", ...) end
function Module:buffers(...) return listed(self, "buffers", "buffer", ...) end

local function iterated(self, method, kind, ...)
  local options = keywords.read(method, named, ...)
  errors.text(method, "prefix", options.prefix)
  return iterate(collect(self, kind, options.prefix, not options.remove_duplicate, not options.recurse))
end
function Module:named_parameters(...) return iterated(self, "named_parameters", "parameter", ...) end
function Module:named_buffers(...) return iterated(self, "named_buffers", "buffer", ...) end

function Module:named_modules(...)
  local list, prefix = {}, keywords.read("named_modules", {{"prefix", ""}}, ...).prefix
  errors.text("named_modules", "prefix", prefix)
  walk_modules(self, prefix, {}, function(name, module) list[#list + 1] = {name, module} end)
  return iterate(list)
end

function Module:named_children()
  local list, seen = {}, {}
  each(self, "module", "", function(name, child)
    if not seen[child] then list[#list + 1] = {name, child} end
    seen[child] = true
  end)
  return iterate(list)
end

local function second(each_named) return function() return (select(2, each_named())) end end
function Module:modules() return second(self:named_modules()) end
function Module:children() return second(self:named_children()) end

-- Returns the keys of the parts of a kind, in order. A part that is there twice has two keys.
local function part_keys(self, kind)
  local keys = {}
  each(self, kind, "", function(_, _, _, key) keys[#keys + 1] = key end)
  return keys
end

-- Returns the key of the next item, behind all parts of a kind.
local function next_key(self, kind)
  local keys = part_keys(self, kind)
  local key = #keys
  for i = 1, #keys do
    if type(keys[i]) == "number" then key = math.max(key, keys[i]) end
  end
  return key + 1
end

-- Forgets a key that is no longer used. A later assignment to it is a new definition.
local function forget(self, key)
  self._known[key], self._parameters[key] = nil, nil
  for i = #self._order, 1, -1 do
    if self._order[i] == key then table.remove(self._order, i) end
  end
end

-- Checks a name for registering a tensor or module: no method and no other field may have it.
local function check_free_name(self, where, name)
  errors.text(where, "name", name)
  if name == "" or name:find(".", 1, true) then
    errors.wrong(where, "name", "a string without dots, not empty", name)
  end
  local held = self[name]
  if held ~= nil and (rawget(self, name) == nil or not lt.is_tensor(held) and not is_module(held)) then
    fail("%s: '%s' is %s", where, name, type(held) == "function" and "a method's name"
      or "a field of the module already")
  end
end

local function check_name(self, method, name)
  errors.object("Module", method, self)
  check_free_name(self, method, name)
end

function Module:register_buffer(name, tensor, ...)
  check_name(self, "register_buffer", name)
  if tensor ~= nil then errors.tensor("register_buffer", "tensor", tensor) end
  local options = keywords.read("register_buffer", buffer_options, ...)
  self._buffers[name] = options.persistent and "persistent" or "transient"
  self[name] = tensor
end

function Module:register_parameter(name, parameter)
  check_name(self, "register_parameter", name)
  if parameter ~= nil and not is_parameter[parameter] then
    errors.wrong("register_parameter", "parameter", "an nn.Parameter", parameter)
  end
  self[name] = parameter
end

function Module:add_module(name, module)
  check_name(self, "add_module", name)
  if module ~= nil and not is_module(module) then errors.wrong("add_module", "module", "a module", module) end
  self[name] = module
end
function Module:register_module(name, module) self:add_module(name, module) end

-- Follows "encoder.0.weight": the fields that lead there, by PyTorch's names, in which items of lists count from 0.
local function found(self, where, path, kind)
  errors.text(where, "target", path)
  local module, name = self, path
  for step in path:gmatch "([^.]*)%." do
    module = module:get_submodule(step)
  end
  name = path:match "[^.]*$"
  local known = {}
  each(module, kind, "", function(full, value) known[full] = value end)
  if known[name] == nil then
    fail("%s: %s has no %s '%s'%s", where, self._name, kind, path, errors.question(name, known))
  end
  return known[name]
end

function Module:get_submodule(target)
  errors.object("Module", "get_submodule", self)
  if target == "" then return self end
  return found(self, "get_submodule", target, "module")
end
function Module:get_parameter(target) return found(self, "get_parameter", target, "parameter") end
function Module:get_buffer(target) return found(self, "get_buffer", target, "buffer") end

-- State --------------------------------------------------------------------------------------------------------------

local function walk_state(self, prefix, visit)
  each(self, "parameter", prefix, visit)
  each(self, "buffer", prefix, function(name, value, module, key)
    if module._buffers[key] == "persistent" then visit(name, value) end
  end)
  each(self, "module", prefix, function(name, child) walk_state(child, name, visit) end)
end

-- Returns a table from PyTorch's names ("0.weight") to tensors that share the module's storage.
function Module:state_dict(prefix)
  errors.object("Module", "state_dict", self)
  if type(prefix) == "table" then prefix = keywords.check("state_dict", prefix, state_options).prefix end
  if prefix ~= nil then errors.text("state_dict", "prefix", prefix) end
  local state = {}
  -- PyTorch's prefix ends with the dot.
  local front = (prefix or ""):gsub("%.$", "")
  walk_state(self, front, function(name, value) state[name] = value:detach() end)
  return state
end

local function size_text(t)
  local parts = {}
  for i, n in ipairs(t.shape) do parts[i] = tostring(n) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function same_size(a, b)
  local m, n = a.shape, b.shape
  if #m ~= #n then return false end
  for i = 1, #m do
    if m[i] ~= n[i] then return false end
  end
  return true
end

local function copy_all(pairs_of_tensors)
  for _, pair in ipairs(pairs_of_tensors) do pair[1]:copy_(pair[2]) end
end

local function raise_state_errors(self, wrong, missing, unexpected, strict)
  local errors = {}
  if strict and #missing > 0 then errors[#errors + 1] = "missing: " .. table.concat(missing, ", ") end
  if strict and #unexpected > 0 then errors[#errors + 1] = "unexpected: " .. table.concat(unexpected, ", ") end
  for _, text in ipairs(wrong) do errors[#errors + 1] = text end
  if #errors > 0 then fail("load_state_dict of " .. self._name .. ": " .. table.concat(errors, "; ")) end
end

local loaded_meta = {}
function loaded_meta:__tostring()
  if #self.missing_keys + #self.unexpected_keys == 0 then return "<All keys matched successfully>" end
  return string.format("missing_keys: {%s}, unexpected_keys: {%s}", table.concat(self.missing_keys, ", "),
    table.concat(self.unexpected_keys, ", "))
end

-- Returns tensors like those that parameters and buffers of lazy layers will be, and functions that make them so.
local function expected_of(self, state)
  local expected, become = {}, {}
  for name, module in self:named_modules() do
    if rawget(module, "_lazy") then
      local like, make = module:_expect(state, name == "" and "" or name .. ".")
      become[#become + 1] = make
      for t, wanted in pairs(like or {}) do expected[t] = wanted end
    end
  end
  return expected, become
end

-- Copies the tensors of `state` into the module. With strict (the default) the names must be the same. If there is an
-- error, nothing is copied.
function Module:load_state_dict(state, options)
  errors.object("Module", "load_state_dict", self)
  if type(state) ~= "table" then
    fail("load_state_dict of %s: a table from names to tensors is needed, not %s", self._name, errors.show(state))
  end
  local strict = keywords.check("load_state_dict", options, load_options).strict
  local expected, become = expected_of(self, state)
  local missing, unexpected, wrong, known, copies = {}, {}, {}, {}, {}
  walk_state(self, "", function(name, value)
    known[name] = true
    local source = state[name]
    if source == nil then
      missing[#missing + 1] = name
    elseif not lt.is_tensor(source) then
      wrong[#wrong + 1] = string.format("%s is %s, not a Tensor", name, errors.show(source))
    elseif not same_size(expected[value] or value, source) then
      wrong[#wrong + 1] = string.format("%s has size %s, the state's %s", name, size_text(expected[value] or value),
        size_text(source))
    else
      copies[#copies + 1] = {value, source}
    end
  end)
  for name in pairs(state) do
    if not known[name] then unexpected[#unexpected + 1] = tostring(name) end
  end
  table.sort(unexpected)
  raise_state_errors(self, wrong, missing, unexpected, strict)
  for _, each in ipairs(become) do each() end
  lt.no_grad(copy_all, copies)
  return setmetatable({missing_keys = missing, unexpected_keys = unexpected}, loaded_meta)
end

-- Changes ------------------------------------------------------------------------------------------------------------

local function is_floating(t) return t.dtype:find("float", 1, true) ~= nil end

-- Converts parameters and buffers to a device or dtype. A parameter stays the same object, as in PyTorch: optimisers
-- hold it, and their states follow. Shared ones stay shared. Only floating-point tensors change their dtype.
local function convert(self, target)
  local is_dtype = type(target) == "string" and lt[target] == target
  if is_dtype and not target:find("float", 1, true) then
    fail("Module.to: parameters can be converted to floating point dtypes only, got %s", target)
  end
  local buffers, moved = {}, {}
  for _, item in ipairs(collect(self, "parameter", "")) do
    local p = item[2]
    local new = (is_dtype and not is_floating(p)) and p or p:detach():to(target)
    if new.device ~= p.device or new.dtype ~= p.dtype then
      local grad = p.grad and p.grad:detach():to(target) -- before anything changes, because memory may run out
      p.grad = nil
      lt._native.set_data(p, new)
      p.grad = grad
      moved[#moved + 1] = p
    end
  end
  for _, item in ipairs(collect(self, "buffer", "", true)) do
    local _, value, module, key = unpack(item)
    if not buffers[value] then buffers[value] = (is_dtype and not is_floating(value)) and value or value:to(target) end
    module[key] = buffers[value]
  end
  local follow = lt._native.follow_parameters -- set if an optimiser exists
  if follow then follow(moved) end
end

-- Lays parameters and buffers of 4 dimensions out in a memory format.
local function lay_out(self, format)
  for _, kind in ipairs {"parameter", "buffer"} do
    for _, item in ipairs(collect(self, kind, "", true)) do
      local t = item[2]
      if t:dim() == 4 then lt._native.set_data(t, t:detach():contiguous {memory_format = format}) end
    end
  end
end

-- to(device), to(dtype), to(device, dtype), to(tensor); {dtype =, device =, non_blocking =, memory_format =} may
-- follow, as for tensors.
function Module:to(target, ...)
  errors.object("Module", "to", self)
  if type(target) == "table" then
    local options = keywords.check("Module.to", target,
      {device = keywords.none, dtype = keywords.none, non_blocking = false,
      memory_format = keywords.none})
    if options.device ~= nil then convert(self, options.device) end
    if options.dtype ~= nil then convert(self, options.dtype) end
    if options.memory_format ~= nil then lay_out(self, options.memory_format) end
    return self
  end
  if lt.is_tensor(target) then
    convert(self, target.device)
    target = target.dtype
  end
  if target ~= nil then convert(self, target) end
  if select("#", ...) > 0 then return self:to(...) end
  return self
end

for _, dtype in ipairs {"float", "double", "half", "bfloat16"} do
  local name = lt[dtype]
  Module[dtype] = function(self) return self:to(name) end
end
function Module:cpu() return self:to("cpu") end
function Module:cuda(device) return self:to(type(device) == "number" and "cuda:" .. device or device or "cuda") end

-- Returns set_to_none of zero_grad's arguments, which may be a table.
local function drops_gradients(options)
  if type(options) == "table" then return keywords.check("zero_grad", options, {set_to_none = true}).set_to_none end
  errors.boolean("zero_grad", "set_to_none", options)
  return options
end

local function zero_gradient(p)
  local grad = p.grad
  if grad ~= nil then p.grad = grad:detach():zero_() end
end

function Module:train(mode)
  errors.object("Module", "train", self)
  if mode == nil then mode = true end
  errors.boolean("train", "mode", mode)
  for module in self:modules() do module.training = mode end
  return self
end

function Module:eval()
  errors.object("Module", "eval", self)
  return self:train(false)
end

function Module:requires_grad_(on)
  errors.object("Module", "requires_grad_", self)
  if on ~= nil then errors.boolean("requires_grad_", "requires_grad", on) end
  for _, p in ipairs(self:parameters()) do p:requires_grad_(on ~= false) end
  return self
end

-- Drops gradients. With {set_to_none = false} existing ones become zeros.
function Module:zero_grad(options)
  if self == nil then errors.object("Module", "zero_grad", self) end
  local drop = options == nil or drops_gradients(options)
  for _, p in ipairs(self:parameters()) do
    if drop then p.grad = nil else zero_gradient(p) end
  end
end

-- Calls f(module) for every module, children first.
function Module:apply(f)
  errors.object("Module", "apply", self)
  if type(f) ~= "function" then errors.wrong("apply", "f", "a function", f) end
  for child in self:children() do child:apply(f) end
  f(self)
  return self
end

-- Printing -----------------------------------------------------------------------------------------------------------

-- Returns the text between a module's parentheses. Classes without children return their settings.
function Module:extra_repr() return "" end

function Module:__tostring()
  local lines = {}
  local extra = self:extra_repr()
  if extra ~= "" then lines[1] = extra end
  local children = 0
  each(self, "module", "", function(name, child)
    children = children + 1
    lines[#lines + 1] = "(" .. name .. "): " .. tostring(child):gsub("\n", "\n  ")
  end)
  if children == 0 then return self._name .. "(" .. extra .. ")" end
  return self._name .. "(\n  " .. table.concat(lines, "\n  ") .. "\n)"
end

return {Module = Module, Parameter = Parameter, is_module = is_module, is_class = is_class, check_module = check_module,
  define = define,
        check_free_name = check_free_name, part_keys = part_keys, next_key = next_key, forget = forget,
          drops_gradients = drops_gradients, zero_gradient = zero_gradient,
        is_parameter = function(t) return is_parameter[t] ~= nil end, serial_of = serial_of, index_of = index_of,
          real = real,
        set_call_hooked = function(f) call_hooked = f end}
