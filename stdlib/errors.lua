-- Errors of the standard library. They name the script's line: that of the first function on the stack that is not the
-- library's own. They also name the function that refuses a value. errors.fail(format, ...) raises. count, number,
-- boolean, tensor, text and callable raise if a value is of another kind.
local lt = ...
local raise = lt._native.fail

local M = {}

-- Formats a value as errors of ops do: "number 3", "string 'a'", "a Tensor".
local function show(v)
  local kind = type(v)
  if kind == "nil" then return "nil" end
  if kind == "string" then return "string '" .. (#v > 40 and v:sub(1, 37) .. "..." or v) .. "'" end
  if kind == "number" then return v ~= v and "number nan" or string.format("number %.14g", v) end
  if kind == "boolean" then return "boolean " .. tostring(v) end
  if lt.is_tensor(v) then return "a Tensor" end
  local class = kind == "table" and getmetatable(v)
  local name = type(class) == "table" and (rawget(class, "_name") or rawget(class, "name"))
  return "a " .. (type(name) == "string" and name or kind)
end
M.show = show

local function fail(format, ...)
  if select("#", ...) > 0 then format = string.format(format, ...) end
  raise(format)
end
M.fail = fail

-- Returns the end of an error that refuses a name: "; did you mean 'b'?", or "". The keys or items of `names` are the
-- known names.
local function question(name, names)
  local known = {}
  for key, value in pairs(names) do known[type(key) == "string" and key or value] = true end
  local meant = type(name) == "string" and lt._native.closest(name, known)
  return meant and ("; did you mean '%s'?"):format(meant) or ""
end
M.question = question

-- Returns the same after " (known: a, b)". A list keeps its order; keys are sorted.
function M.known(name, names)
  local list = names
  if names[1] == nil then
    list = {}
    for key in pairs(names) do list[#list + 1] = key end
    table.sort(list)
  end
  return (" (known: %s)%s"):format(table.concat(list, ", "), question(name, list))
end

-- The valid names are those that `wanted` quotes.
local function wrong(where, name, wanted, v)
  local names = {}
  for each in wanted:gmatch "['\"]([%w_]+)['\"]" do names[#names + 1] = each end
  fail("%s: argument '%s' must be %s, got %s%s", where, name, wanted, show(v), question(v, names))
end
M.wrong = wrong

function M.count(where, name, v, least)
  if type(v) ~= "number" or v % 1 ~= 0 or v < least then wrong(where, name, "a whole number >= " .. least, v) end
end

function M.number(where, name, v)
  if type(v) ~= "number" then wrong(where, name, "a number", v) end
end

function M.boolean(where, name, v)
  if type(v) ~= "boolean" then wrong(where, name, "a boolean", v) end
end

function M.tensor(where, name, v)
  if not lt.is_tensor(v) then wrong(where, name, "a Tensor", v) end
end

function M.text(where, name, v)
  if type(v) ~= "string" then wrong(where, name, "a string", v) end
end

-- Accepts a function, or an object with __call. A number has __call too, for portals, but is refused.
function M.callable(where, name, v)
  if type(v) == "function" then return end
  local meta = (type(v) == "table" or type(v) == "userdata") and getmetatable(v)
  if not (type(meta) == "table" and rawget(meta, "__call")) then wrong(where, name, "a function or a module", v) end
end

-- Raises if a method was called without its object: m.eval().
function M.object(where, method, v)
  if type(v) ~= "table" then
    fail("%s.%s: is called with a colon, object:%s(), got %s as the object", where, method, method, show(v))
  end
end

return M
