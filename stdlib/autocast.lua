-- lt.autocast(device_type, {dtype =, enabled =, cache_enabled =}, f, ...): runs f with ops on that device in the types that PyTorch's lists choose, and restores
-- the mode when f returns, also by an error. Without options, f may come second. In Lua, so that f may yield and that capture inlines it; what
-- capture has a model of is autocast_check, and autocast_region, whose arguments are complete: nil leaves a part as it is around.
local lt = ...
local enabled, dtype_of, cached = lt.is_autocast_enabled, lt.get_autocast_dtype, lt.is_autocast_cache_enabled
local set_enabled, set_dtype, set_cached = lt.set_autocast_enabled, lt.set_autocast_dtype, lt.set_autocast_cache_enabled
local kKeys = {dtype = true, enabled = true, cache_enabled = true}

local function fail(...) lt._native.use("errors").fail("autocast: " .. string.format(...)) end
local function no_function(v) lt._native.use("errors").wrong("autocast", "f", "a function or a module", v) end

local function restore(device_type, was, dtype, cache, ok, ...)
  set_dtype(device_type, dtype)
  set_cached(cache)
  set_enabled(device_type, was)
  if not ok then error((...), 0) end
  return ...
end

function lt.autocast_region(device_type, dtype, on, cache, f, ...)
  local was, outer, kept = enabled(device_type), dtype_of(device_type), cached()
  if dtype ~= nil then set_dtype(device_type, dtype) end
  if cache ~= nil then set_cached(cache) end
  set_enabled(device_type, on)
  return restore(device_type, was, outer, kept, pcall(f, ...))
end
function lt.autocast_check(options)
  for key in pairs(options) do
    if not kKeys[key] then fail("unknown option '%s' (dtype, enabled, cache_enabled)", tostring(key)) end
  end
end

local check, region = lt.autocast_check, lt.autocast_region

function lt.autocast(device_type, options, f, ...)
  if device_type ~= "cpu" and device_type ~= "cuda" then fail('device_type must be "cpu" or "cuda", got %s', tostring(device_type)) end
  if options == nil and f == nil then no_function(f) end
  if options == nil then return region(device_type, nil, true, nil, f, ...) end
  local kind = type(options)
  if kind == "function" or kind == "table" and getmetatable(options) ~= nil then return region(device_type, nil, true, nil, options, f, ...) end
  if kind ~= "table" then fail("options must be a table, got %s", kind) end
  if f == nil then no_function(f) end
  check(options)
  local on, dtype = options.enabled, options.dtype
  if on == nil then on = true end
  if dtype ~= nil and dtype ~= "bfloat16" and dtype ~= "float16" then
    if on then fail("dtype must be bfloat16 or float16, got %s", tostring(dtype)) end
    dtype = nil
  end
  return region(device_type, dtype, on and true or false, options.cache_enabled, f, ...)
end
