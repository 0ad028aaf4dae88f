-- Values that control flow carries: a tensor, or a table of such values. flatten lists the tensors in the order of
-- array fields, then of names. like replaces them. check compares two lists.
local lt, use = ...
local errors = use "errors"

local M = {}

-- Returns the names among a table's keys, sorted. It sorts by insertion, which a graph can hold, and there are few.
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

-- Returns the tensors of a value. `what` names it in errors.
function M.flatten(where, what, value) return add(where, what, value, {}) end

-- Returns a value with the structure of `value`, built from the tensors in list from `at` on, and the next position.
function M.place(value, list, at)
  if lt.is_tensor(value) then return list[at], at + 1 end
  local out = {}
  for i = 1, #value do out[i], at = M.place(value[i], list, at) end
  local names = M.names(value)
  for i = 1, #names do out[names[i]], at = M.place(value[names[i]], list, at) end
  return out, at
end

-- Returns a value with the structure of `value`, built from the tensors in list.
function M.like(value, list) return (M.place(value, list, 1)) end

-- Returns the tensors of a value that is sliced along dim, and the number of slices.
function M.slices(where, what, value, dim)
  local list = M.flatten(where, what, value)
  if #list == 0 then errors.fail("%s: %s has no tensors", where, what) end
  if type(dim) ~= "number" or dim % 1 ~= 0 then errors.wrong(where, "dim", "a whole number", dim) end
  local n
  for i = 1, #list do
    local rank = list[i]:dim()
    if dim < -rank or dim >= rank then
      errors.fail("%s: argument 'dim' is %d, but a tensor of %s has %d dimensions", where, dim, what, rank)
    end
    local size = list[i]:size(dim)
    n = n or size
    if size ~= n then
      errors.fail("%s: the tensors of %s have sizes %d and %d along dim %d", where, what, n, size, dim)
    end
  end
  return list, n
end

-- Returns a value with the structure of `value`, built from copies of its tensors.
function M.copy(value)
  if lt.is_tensor(value) then return value:clone() end
  if type(value) ~= "table" or getmetatable(value) ~= nil then return value end
  local out = {}
  for k, v in pairs(value) do out[k] = M.copy(v) end
  return out
end

-- Makes a loop's results tensors of their own: returns the value with copies of the tensors that came in (`given`).
function M.own(value, list, given)
  local copies = false
  for i = 1, #list do
    for k = 1, #given do
      if rawequal(list[i], given[k]) then
        list[i], copies = list[i]:clone(), true
        break
      end
    end
  end
  return copies and M.like(value, list) or value
end

-- Returns "f (model.lua:12)".
function M.place_of(name, f)
  if type(f) ~= "function" then return name end
  return name .. " (" .. lt._native.control_place_of(f) .. ")"
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

-- Raises if the tensors of two lists differ in number, dtype, device or shape. `given` and `wanted` name the sides.
function M.check(where, given, list, wanted, model)
  if #list ~= #model then
    errors.fail("%s: %s has %d tensors, but %s has %d", where, given(), #list, wanted, #model)
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

-- Returns the value of a condition: a boolean, or a tensor of one element.
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
