-- The world of one run of a program: the functions that it may call, and the values that were observed. It is loaded
-- anew for each run, so that a mode that patches functions leaves nothing behind.
local lt = require "lutra"
local bit = require "bit"

local kShown = 48  -- of more elements the first are shown, and a hash of all
local seen = {}
local describe

local function number(v)
  if v ~= v then return "nan" end
  if v == 0 then return 1 / v < 0 and "-0" or "0" end
  return ("%.17g"):format(v)
end

local function elements(x)
  local flat = x:detach():reshape(-1)
  if x.device ~= "cpu" then flat = flat:to("cpu") end
  if x.dtype == "float16" or x.dtype == "bfloat16" then flat = flat:to("float32") end
  return flat:totable()
end

local function hash(texts)
  local h = 5381
  for _, text in ipairs(texts) do
    for i = 1, #text do h = bit.bxor(bit.rol(h, 5), text:byte(i)) end
  end
  return bit.tohex(h)
end

local function describe_tensor(x)
  local texts, values = {}, elements(x)
  for i, v in ipairs(values) do texts[i] = type(v) == "number" and number(v) or tostring(v) end
  local text = table.concat(texts, " ", 1, math.min(#texts, kShown))
  if #texts > kShown then text = ("%s ... %d, hash %s"):format(text, #texts, hash(texts)) end
  local shape = table.concat(x.shape, ", ")
  return ("%s {%s}%s: %s"):format(x.dtype, shape, x.requires_grad and (x.is_leaf and " leaf" or " grad") or "", text),
    values
end

local function describe_table(t, path)
  if path[t] then return "(itself)" end
  path[t] = true
  local keys, out = {}, {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then return a < b end
    local x, y = type(a) .. tostring(a), type(b) .. tostring(b)
    if x ~= y or type(a) ~= "cdata" then return x < y end
    return describe(t[a], path) < describe(t[b], path) -- two keys of one number
  end)
  for i, k in ipairs(keys) do
    if i > kShown then
      out[i] = "... " .. #keys
      break
    end
    local key = (type(k) == "number" or type(k) == "string" or type(k) == "boolean") and tostring(k) or type(k)
    out[i] = key .. " = " .. describe(t[k], path)
  end
  path[t] = nil
  return "{" .. table.concat(out, ", ") .. "}"
end

local function is_tensor(v) return type(v) == "userdata" and lt.is_tensor(v) end

function describe(v, path)
  if type(v) == "number" then return number(v) end
  if type(v) == "string" then return #v > 400 and ("%q... %d"):format(v:sub(1, 400), #v) or ("%q"):format(v) end
  if is_tensor(v) then return (describe_tensor(v)) end
  if type(v) == "table" then return describe_table(v, path or {}) end
  if type(v) == "nil" or type(v) == "boolean" then return tostring(v) end
  return type(v) == "cdata" and "cdata " .. tostring(v):gsub("0x%x+", "0x") or type(v)
end

local function add(kind, name, v)
  local entry = {kind = kind, name = name}
  if is_tensor(v) then
    entry.text, entry.values = describe_tensor(v)
    entry.dtype, entry.shape, entry.requires_grad = v.dtype, v.shape, v.requires_grad
  else
    entry.text, entry.value = describe(v), v
  end
  seen[#seen + 1] = entry
end

local world = {seen = seen}

-- The texts of observed values. All of them must be the same in all modes.
function world.see(name, ...)
  local n = select("#", ...)
  if n <= 1 then return add("value", name, (...)) end
  for i = 1, n do add("value", name .. "." .. i, (select(i, ...))) end
end

-- A gradient: if several segments add to it, its last bits may differ.
function world.gradient(name, v) add("gradient", name, v) end

-- The text of an error is observed, but without addresses and places, and without the name that compiled code uses for
-- a tensor that was written.
function world.failed(name, message)
  local text = tostring(message):gsub("0x%x+", "0x"):gsub("^[^%s:]+:(%d+): ", world.lines and "line %1: " or "")
  text = text:gsub("(modified by an inplace operation): .*", "%1")
  seen[#seen + 1] = {kind = "error", name = name, text = "error: " .. text, error = true}
end

local function record(name, ok, ...)
  if not ok then
    world.failed(name, (...))
    return false
  end
  world.see(name, ...)
  return true, ...
end

-- A GPU reports an error at the next wait. So the error of a call is observed with that call.
local wait = lt.get_default_device():find("^cuda") and lt.cuda.synchronize
local function waited(name, ok, ...)
  if not wait then return ok, ... end
  local told, message = pcall(wait)
  if told then return ok, ... end
  if ok then return false, message end
  world.failed(name .. " at the wait", message)
  return ok, ...
end

-- pcall with all its results observed. Returns true and results, or false.
function world.try(name, f, ...) return record(name, waited(name, pcall(f, ...))) end

-- A tensor of numbers of few bits, the same in Python: data(seed, sizes...) or data(seed, sizes..., options).
function world.data(seed, ...)
  local sizes, options, count, values, state = {...}, nil, 1, {}, (seed * 48271 + 7) % 2147483647
  if type(sizes[#sizes]) == "table" then options = table.remove(sizes) end
  for _, size in ipairs(sizes) do count = count * size end
  for i = 1, count do
    state = state * 16807 % 2147483647
    values[i] = (math.floor(state / 8) % 17 - 8) / 4
  end
  local leaf = options and options.requires_grad
  local x = lt.tensor(values, options and options.dtype and {dtype = options.dtype}):reshape(sizes):clone()
  return leaf and x:requires_grad_(true) or x
end

return world
