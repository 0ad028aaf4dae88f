-- The trace's interface for control flow: makes a branch or the body of a loop a function of the graph.
local lt, use = ...
local tree = use "control.tree"
local native = lt._native
local open, close, refuse = native.control_open, native.control_close, native.control_refuse

local M = {}

local function list_of(...) return {...}, select("#", ...) end

-- Returns the tensors of n values in one list. A nil has none.
function M.flatten(where, values, n)
  local flat = {}
  for i = 1, n do
    if values[i] ~= nil then
      local part = tree.flatten(where, "value " .. i, values[i])
      for k = 1, #part do flat[#flat + 1] = part[k] end
    end
  end
  return flat
end

-- Returns n values with the structure of `values`, built from the tensors in list, from `at` on.
function M.rebuild(values, n, list, at)
  local out = {}
  at = at or 1
  for i = 1, n do
    if values[i] ~= nil then
      out[i], at = tree.place(values[i], list, at)
    end
  end
  return out
end

-- Returns the n results, with the structure of `values`.
function M.unpack(values, n, list) return unpack(M.rebuild(values, n, list), 1, n) end

-- Names a side of control flow for messages: "f (model.lua:12)".
M.side = tree.place_of

-- Traces f(...). Returns the function's number, the results and their count. name: the name of f.
function M.call(where, name, f, ...)
  local parameters = open({}, M.side(name, f))
  local results, n = list_of(f(...))
  return close(M.flatten(where, results, n), parameters, 0), results, n
end

-- Does the same for f(values...). The tensors of its arguments are parameters; the first `carried` of them are carried
-- by a loop. tests: f decides whether a loop goes on.
function M.body(where, name, carried, f, values, n, tests)
  local tensors = M.flatten(where, values, n)
  while true do
    local parameters = open(tensors, M.side(name, f), tests)
    local results, m = list_of(f(unpack(M.rebuild(values, n, parameters), 1, n)))
    local number = close(M.flatten(where, results, m), parameters, carried)
    if number then return number, results, m end
  end
end

local function shape(value)
  if lt.is_tensor(value) then return "tensor" end
  if type(value) ~= "table" then return type(value) end
  local parts = {}
  for i = 1, #value do parts[#parts + 1] = shape(value[i]) end
  local names = tree.names(value)
  for i = 1, #names do parts[#parts + 1] = names[i] .. " = " .. shape(value[names[i]]) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- Returns the structure of values: "tensor, {a = tensor}".
local function shapes(values, n)
  if n == 0 then return "nothing" end
  local parts = {}
  for i = 1, n do parts[i] = shape(values[i]) end
  return table.concat(parts, ", ")
end

-- Leaves control flow to Lua if the values of two sides, named by texts, have different structures.
function M.same(first, a, n, second, b, m)
  local one, other = shapes(a, n), shapes(b, m)
  if one ~= other then refuse(first .. " gives " .. one .. ", but " .. second .. " " .. other) end
end

return M
