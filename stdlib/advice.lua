-- Advice for an error beside its message: "did you mean lt.softmax?" for a name that is nil, and the path of the module
-- whose forward failed, "in net.layers.2.attn, a MultiheadAttention". advice(message, level): level is the level,
-- counted from here, of the function that raised.
local lt = ...
local native = lt._native

-- Calls add(name) for the names of a value's fields and methods.
local function each_name(value, add)
  for name in next, native.lazy.names(value) do add(name) end
  for _ = 1, 20 do
    if type(value) ~= "table" then return end
    for name in next, value do add(name) end
    local meta = debug.getmetatable(value)
    value = type(meta) == "table" and (rawget(meta, "_compiled_of") or rawget(meta, "__index")) or nil
  end
end

local function names_of(value)
  local names = {}
  each_name(value, function(name) names[name] = true end)
  return names
end

-- Reads a field as a program would have done, but only through tables.
local function field(value, key)
  for _ = 1, 20 do
    if type(value) ~= "table" then return end
    local found = rawget(value, key)
    if found == nil then found = native.lazy.load(value, key) end
    if found ~= nil then return found end
    local meta = debug.getmetatable(value)
    value = type(meta) == "table" and (rawget(meta, "_compiled_of") or rawget(meta, "__index")) or nil
  end
end

-- Returns the value at the start of a path, in the function f at `level`.
local function start(kind, name, f, level)
  if kind == "global" then return field(getfenv(f), name) end
  local get, of = debug.getlocal, level + 1
  if kind == "upvalue" then get, of = debug.getupvalue, f end
  local value
  for i = 1, 250 do
    local found, v = get(of, i)
    if not found then break end
    if found == name then value = v end
  end
  return value
end

local function suggestion(message, level)
  local kind, name = message:match "attempt to %a+ (%a+) '([^']*)' %(a nil value%)$"
  if kind ~= "field" and kind ~= "method" and kind ~= "global" then return end
  local at = debug.getinfo(level + 1, "lf")
  if not at or at.currentline < 1 then return end
  if kind == "global" then return native.closest(name, names_of(getfenv(at.func))) end
  local path = native.base_of(at.func, at.currentline, name)
  if not path then return end
  local value = start(path[1], path[2], at.func, level + 1)
  for i = 3, #path do value = field(value, path[i]) end
  local meant = native.closest(name, names_of(value))
  return meant and table.concat(path, ".", 2) .. (kind == "method" and ":" or ".") .. meant
end

-- Returns the module that the function at `level` is a method of, and how the method was called (debug.getinfo).
local function module_at(level)
  local name, value = debug.getlocal(level + 1, 1)
  if name ~= "self" or type(value) ~= "table" then return end
  local class = debug.getmetatable(value)
  if type(class) ~= "table" or rawget(class, "_is_module") ~= true then return end
  return value, debug.getinfo(level + 1, "n")
end

local function place(level)
  local inner, outer, forward, root
  for l = level + 1, level + 101 do
    if not debug.getinfo(l, "l") then break end
    local module, call = module_at(l)
    if module then
      inner = inner or module
      if module ~= outer then outer, root = module, nil end
      forward = forward or call.name == "forward"
      local plain = call.namewhat == "local" or call.namewhat == "upvalue" or call.namewhat == "global"
        or call.namewhat == "field"
      if plain and call.name ~= "forward" then root = call.name end
    end
  end
  if not forward then return end
  local path
  for name, module in outer:named_modules() do
    if module == inner then path = name end
  end
  local class = debug.getmetatable(inner)._name
  root = root or debug.getmetatable(outer)._name
  local article = class:find "^[AEIOU]" and "an " or "a "
  return (path and path ~= "" and root .. "." .. path or path and root or class) .. ", " .. article .. class
end

return function(message, level)
  local meant = suggestion(message, level)
  if meant then message = message .. "; did you mean " .. meant .. "?" end
  local where = place(level)
  return where and message .. "\nin " .. where or message
end
