-- Helpers for the arguments of layers over images and sequences: lists of one number a dimension, and their text.
local _, use = ...
local errors = use "errors"
local M = {}

-- Returns a list of `dims` numbers.
function M.list_of(where, name, value, dims)
  if type(value) == "number" then value = {value, value} end
  if type(value) ~= "table" or #value < dims then
    errors.wrong(where, name, "a number or a list of " .. dims, value)
  end
  local list = {}
  for i = 1, dims do
    errors.count(where, name, value[i], 0)
    list[i] = value[i]
  end
  return list
end

function M.text_of(value)
  if type(value) ~= "table" then return tostring(value) end
  return "(" .. table.concat(value, ", ") .. (#value == 1 and ",)" or ")")
end

function M.python_bool(b) return b and "True" or "False" end

return M
