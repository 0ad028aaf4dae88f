-- Values that control flow carries: a tensor, or a table of such values. flatten gives the tensors in a list, in the
-- order of array fields, then of names; like puts others in their places; check compares two.
local lt, use = ...
local errors = use "errors"

local M = {}

-- The names among a table's keys, sorted; by insertion, which a graph can hold, as there are few.
function M.names(t)
  local names = {}
  for key in pairs(t) do
    if type(key) == "string" then
      local at = #names + 1
      while at > 1 and key < names[at - 1] do
        names[at] = names[at - 1]
        at = at - 1
      end
      names[at] = key
    end
  end
  return names
end

local function add(where, what, value, list)
  if lt.is_tensor(value) then
    list[#list + 1] = value
  elseif type(value) == "table" then
    for i = 1, #value do add(where, what, value[i], list) end
    local names = M.names(value)
    for i = 1, #names do add(where, what, value[names[i]], list) end
  else
    errors.fail("%s: %s must be a tensor or a table of tensors, got %s", where, what, errors.show(value))
  end
  return list
end

-- The tensors of a value. `what` names it in errors.
function M.flatten(where, what, value) return add(where, what, value, {}) end

-- A value built as `value` is, of the tensors in list from `at` on; where the next one would begin.
function M.place(value, list, at)
  if lt.is_tensor(value) then return list[at], at + 1 end
  local out = {}
  for i = 1, #value do out[i], at = M.place(value[i], list, at) end
  local names = M.names(value)
  for i = 1, #names do out[names[i]], at = M.place(value[names[i]], list, at) end
  return out, at
end

-- A value built as `value` is, of the tensors in list.
function M.like(value, list) return (M.place(value, list, 1)) end

-- f(t) for each tensor of a value, in a value built as it is.
function M.map(where, what, value, f)
  local list = M.flatten(where, what, value)
  for i = 1, #list do list[i] = f(list[i]) end
  return M.like(value, list)
end

-- "f (model.lua:12)"
function M.place_of(name, f)
  if type(f) ~= "function" then return name end
  local about = debug.getinfo(f, "S")
  return ("%s (%s:%d)"):format(name, about.short_src, about.linedefined)
end

local function describe(t) return ("%s of {%s}"):format(t.dtype, table.concat(t.shape, ", ")) end

local function same_shape(a, b)
  local n = a:dim()
  if n ~= b:dim() then return false end
  for d = 0, n - 1 do
    if a:size(d) ~= b:size(d) then return false end
  end
  return true
end

-- Raises where the tensors of two lists differ in number, dtype, device or shape. `given` and `wanted` name the sides.
function M.check(where, given, list, wanted, model)
  if #list ~= #model then
    errors.fail("%s: %s gives %d tensors, but %s has %d", where, given(), #list, wanted, #model)
  end
  for i = 1, #list do
    local a, b = list[i], model[i]
    if a.dtype ~= b.dtype or not same_shape(a, b) then
      errors.fail("%s: tensor %d of %s is %s, but that of %s is %s", where, i, given(), describe(a), wanted,
        describe(b))
    end
    if a.device ~= b.device then
      errors.fail("%s: tensor %d of %s is on %s, but that of %s on %s", where, i, given(), a.device, wanted, b.device)
    end
  end
end

-- What a condition says: a boolean, or a tensor of one element.
function M.truth(where, what, value)
  if type(value) == "boolean" then return value end
  if not lt.is_tensor(value) then errors.wrong(where, what, "a boolean or a tensor of one element", value) end
  if value:numel() ~= 1 then
    errors.fail("%s: argument '%s' must have one element, has shape {%s}", where, what,
      table.concat(value.shape, ", "))
  end
  local item = value:item()
  return item ~= false and item ~= 0
end

return M
