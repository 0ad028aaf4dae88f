-- lt.autocast(device_type, {dtype =, enabled =, cache_enabled =}, f, ...): runs f with ops on that device in the types
-- that PyTorch's lists choose. It restores the mode when f returns or raises. Without options, f may come second. It is
-- in Lua so that f may yield and capture inlines it. Capture has models of _native.autocast_check and
-- _native.autocast_region. The latter's arguments are complete: nil keeps a part of the surrounding mode.
local lt = ...
local native = lt._native
local enabled, dtype_of, cached = lt.is_autocast_enabled, lt.get_autocast_dtype, lt.is_autocast_cache_enabled
local set_enabled, set_dtype, set_cached = lt.set_autocast_enabled, lt.set_autocast_dtype, lt.set_autocast_cache_enabled
local kKeys = {dtype = true, enabled = true, cache_enabled = true}

local function wrong(...) native.use("errors").wrong("autocast", ...) end

-- Accepts a module by its metatable, so that capture guards nothing else.
local function callable(f)
  if type(f) == "function" or type(f) == "table" and getmetatable(f) ~= nil then return end
  native.use("errors").callable("autocast", "f", f)
end

local function restore(device_type, was, dtype, cache, ok, ...)
  set_dtype(device_type, dtype)
  set_cached(cache)
  set_enabled(device_type, was)
  if not ok then error((...), 0) end
  return ...
end

local function region(device_type, dtype, on, cache, f, ...)
  local was, outer, kept = enabled(device_type), dtype_of(device_type), cached()
  if dtype ~= nil then set_dtype(device_type, dtype) end
  if cache ~= nil then set_cached(cache) end
  set_enabled(device_type, on)
  return restore(device_type, was, outer, kept, pcall(f, ...))
end

local function check(options)
  for key in pairs(options) do
    if not kKeys[key] then
      local errors = native.use "errors"
      errors.fail("autocast: unknown option '%s'%s", tostring(key),
        errors.known(key, {"dtype", "enabled", "cache_enabled"}))
    end
  end
end

native.autocast_region, native.autocast_check = region, check

function lt.autocast(device_type, options, f, ...)
  if device_type ~= "cpu" and device_type ~= "cuda" then wrong("device_type", '"cpu" or "cuda"', device_type) end
  local kind = type(options)
  if kind == "function" then return region(device_type, nil, true, nil, options, f, ...) end
  if kind == "table" and getmetatable(options) ~= nil then
    return region(device_type, nil, true, nil, options, f, ...)
  end
  if options ~= nil and kind ~= "table" then wrong("options", "a table", options) end
  callable(f)
  if options == nil then return region(device_type, nil, true, nil, f, ...) end
  check(options)
  local on, dtype, cache = options.enabled, options.dtype, options.cache_enabled
  if on == nil then on = true end
  if on ~= true and on ~= false then wrong("enabled", "a boolean", on) end
  if cache ~= nil and cache ~= true and cache ~= false then wrong("cache_enabled", "a boolean", cache) end
  if dtype ~= nil and dtype ~= "bfloat16" and dtype ~= "float16" then
    if on then wrong("dtype", "bfloat16 or float16", dtype) end
    dtype = nil
  end
  return region(device_type, dtype, on, cache, f, ...)
end
