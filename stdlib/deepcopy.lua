-- lt.deepcopy(value): copies a module, an optimiser, a tensor or a table of such things. The copy shares no memory with
-- it. A value that is reached twice is copied once. Functions, classes and dtypes are shared.
local lt, use = ...
local errors = use "errors"
local module = use "nn.module"
local none = use("keywords").none

local copy

local function copy_tensor(t, seen)
  if t.requires_grad and not t.is_leaf then
    errors.fail("deepcopy: a tensor that is the result of an op has a history; copy x:detach()")
  end
  local new = t:detach():clone()
  if module.is_parameter(t) then new = module.Parameter(new,
    t.requires_grad) elseif t.requires_grad then new:requires_grad_() end
  seen[t] = new
  if t.grad ~= nil then new.grad = copy_tensor(t.grad:detach(), seen) end
  return new
end

-- Returns whether t is a class, which is shared: it is its own __index, or the class of a module.
local function is_class(t) return rawget(t, "__index") == t or module.is_class(t) end

local function copy_table(t, seen)
  local new = {}
  seen[t] = new
  for key, value in next, t do new[copy(key, seen)] = copy(value, seen) end
  local class = getmetatable(t)
  if class == nil then return new end
  setmetatable(new, class)
  if type(class._copied) == "function" then new:_copied() end
  return new
end

function copy(value, seen)
  if seen[value] ~= nil then return seen[value] end
  if lt.is_tensor(value) then return copy_tensor(value, seen) end
  if type(value) ~= "table" or value == lt or value == none or is_class(value) then return value end
  if module.is_module(value) then value = module.real(value) end
  return copy_table(value, seen)
end

return function(value) return copy(value, {}) end
