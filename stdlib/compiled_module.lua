-- The function and the object of lt.compile(module). The function calls the module and is what gets compiled; the
-- object also has the module's fields.
--
-- Functions of one prototype share compiled code and one recompile_limit. Modules that are alike get one prototype: of
-- twelve equal blocks that are compiled one by one, only the first is captured. Others get prototypes of their own, so
-- that many different modules do not reach the limit together. Guards decide whether code serves a module; so an
-- address in the text below that belonged to another object before costs a recompile at most.
local lt = ...

local most_parts = 10000 -- a larger module shares nothing, so that its text stays small
-- The bookkeeping of every module. Serial numbers differ; the rest follows from the other fields.
local bookkeeping = {_serial = true, _order = true, _known = true, _buffers = true, _parameters = true, _hooks = true}

-- Returns the fields that tell modules apart, in order; nil if they are too many.
local function fields_of(value, room)
  local keys = {}
  for key in next, value do
    if type(key) == "number" or type(key) == "string" and not bookkeeping[key] then
      if #keys > room then return end
      keys[#keys + 1] = key
    end
  end
  table.sort(keys, function(a, b)
    if type(a) ~= type(b) then return type(a) == "number" end
    return a < b
  end)
  return keys
end

-- Adds the parts of the text of `value`: class, fields in order, sizes of tensors. False if there are too many.
local function describe(value, seen, parts)
  local kind = type(value)
  if lt.is_tensor(value) then
    seen.tensors = true
    parts[#parts + 1] = ("%s %s %s {%s}"):format(value.dtype, value.device, tostring(value.requires_grad),
      table.concat(value.shape, ","))
    return true
  elseif kind == "number" or kind == "string" or kind == "boolean" then
    parts[#parts + 1] = ("%s %d %s"):format(kind, #tostring(value), tostring(value))
    return true
  elseif kind ~= "table" then -- by its address: __tostring is the program's
    parts[#parts + 1] = kind == "cdata" and kind or ("%s %p"):format(kind, value)
    return true
  elseif seen[value] then
    parts[#parts + 1] = "seen " .. seen[value]
    return true
  end
  local keys = fields_of(value, most_parts - #parts)
  if not keys then return false end
  seen.n = seen.n + 1
  seen[value] = seen.n
  parts[#parts + 1] = ("table %p"):format(getmetatable(value))
  for _, key in ipairs(keys) do
    parts[#parts + 1] = ("%s %s ="):format(type(key), key)
    if not describe(rawget(value, key), seen, parts) then return false end
  end
  parts[#parts + 1] = "end"
  return true
end

-- By the text of modules that are alike. The compiled modules keep their maker.
local makers = setmetatable({}, {__mode = "v"})

local function maker_of(module)
  local parts, seen = {}, {n = 0}
  -- Modules without tensors are told apart by their inputs only.
  local text = describe(module, seen, parts) and seen.tensors and table.concat(parts, "\n")
  local maker = text and makers[text]
  if not maker then
    maker = lt._native.module_wrapper()
    if text then makers[text] = maker end
  end
  return maker
end

-- Returns the function that calls the module, and a function that makes the object for its compiled form.
return function(module)
  local maker = maker_of(module)
  local run, as_call = maker(module)
  return run, function(f)
    return setmetatable({}, {
      _is_module = rawget(getmetatable(module), "_is_module"), _compiled_of = module, _maker = maker,
      __index = module, __newindex = module, __call = as_call(f),
      __tostring = function() return tostring(module) end,
    })
  end
end
